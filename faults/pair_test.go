package faults

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
)

// A pair is a master with a replica.
type pair struct {
	t               *testing.T
	master, replica *redisserver.Server
	copying         *link // from the replica to the master
}

func newPair(t *testing.T) *pair {
	p := &pair{t: t, master: alone(t), replica: alone(t)}
	p.copying = newLink(t, p.master.Addr())
	p.follow()
	return p
}

func alone(t *testing.T) *redisserver.Server {
	return redisserver.Start(t, "--repl-diskless-sync-delay", "0")
}

// follow has the replica copy the master, and waits until it does.
func (p *pair) follow() {
	host, port, err := net.SplitHostPort(p.copying.addr)
	require.NoError(p.t, err)
	c := client(p.t, p.replica.Addr())
	do := func(words ...string) (string, error) {
		return c.Do(p.t.Context(), c.B().Arbitrary(words...).Build()).ToString()
	}
	_, err = do("REPLICAOF", host, port)
	require.NoError(p.t, err)
	eventually(p.t, func() bool {
		info, err := do("INFO", "replication")
		return err == nil && strings.Contains(info, "master_link_status:up")
	}, "the replica follows")
}

// failOver kills the master, makes the replica one, and has the ways lead to it.
func (p *pair) failOver(ways ...*link) {
	p.master.Stop()
	c := client(p.t, p.replica.Addr())
	require.NoError(p.t, c.Do(p.t.Context(), c.B().Arbitrary("REPLICAOF", "NO", "ONE").Build()).Error())
	p.master, p.replica = p.replica, p.master
	for _, way := range ways {
		way.redirect(p.master.Addr())
	}
}

// rejoin has the old master come back as the new one's replica.
func (p *pair) rejoin() {
	p.replica.Restart(p.t)
	p.copying.mend()
	p.copying.redirect(p.master.Addr())
	p.follow()
}
