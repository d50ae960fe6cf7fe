package faults

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
)

// A pair is a master with a replica, each with a clock of its own.
type pair struct {
	t               *testing.T
	master, replica *redisserver.Server
	copying         *link // from the replica to the master
	marks           int
}

func newPair(t *testing.T) *pair {
	p := &pair{t: t, master: alone(t), replica: alone(t)}
	p.copying = newLink(t, p.master.Addr())
	p.follow()
	return p
}

// alone starts a server whose clock can be set. By way of a file a replica gets what comes after its first copy at once; otherwise it may be told
// that only a second later.
func alone(t *testing.T) *redisserver.Server {
	return redisserver.StartWithClock(t, "--repl-diskless-sync", "no", "--hz", "100")
}

// follow has the replica copy the master from now on, and waits until it knows all.
func (p *pair) follow() {
	host, port, err := net.SplitHostPort(p.copying.addr)
	require.NoError(p.t, err)
	p.ask(p.replica, "REPLICAOF", "NO", "ONE") // so that it does not wait before it tries again
	p.ask(p.replica, "REPLICAOF", host, port)
	p.synced()
}

// synced waits until the replica knows what the master knows now. That it follows would not say so: what comes next may
// still be held back.
func (p *pair) synced() {
	p.marks++
	mark := strconv.Itoa(p.marks)
	p.ask(p.master, "SET", "mark", mark)
	eventually(p.t, func() bool {
		seen, err := p.replica.Command("GET", "mark")
		return err == nil && seen == mark
	}, "the replica follows")
}

func (p *pair) ask(server *redisserver.Server, command ...string) {
	_, err := server.Command(command...)
	require.NoError(p.t, err)
}

// failOver kills the master, makes the replica one, and has the ways lead to it.
func (p *pair) failOver(proxies ...*link) {
	p.master.Stop()
	p.ask(p.replica, "REPLICAOF", "NO", "ONE")
	p.master, p.replica = p.replica, p.master
	for _, proxy := range proxies {
		proxy.redirect(p.master.Addr())
	}
}

// leadReplica has the replica's clock show what the master's does, and d more.
func (p *pair) leadReplica(d time.Duration) {
	p.replica.Clock().Step(p.master.Clock().Ahead() + d - p.replica.Clock().Ahead())
}

// rejoin has the old master come back as the new one's replica.
func (p *pair) rejoin() {
	p.replica.Restart(p.t)
	p.copying.mend()
	p.copying.redirect(p.master.Addr())
	p.follow()
}
