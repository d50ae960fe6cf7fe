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
	copying         *link // the link from the replica to the master
	marks           int
}

func newPair(t *testing.T) *pair {
	p := &pair{t: t, master: alone(t), replica: alone(t)}
	p.copying = newLink(t, p.master.Addr())
	p.follow()
	return p
}

// alone starts a server whose clock can be set. The server sends its first copy to a replica as a file. So the replica gets
// later writes at once; without the option it might get them only a second later.
func alone(t *testing.T) *redisserver.Server {
	return redisserver.StartWithClock(t, "--repl-diskless-sync", "no", "--hz", "100")
}

// follow makes the replica copy the master from now on, and waits until the replica has everything.
func (p *pair) follow() {
	host, port, err := net.SplitHostPort(p.copying.addr)
	require.NoError(p.t, err)
	p.ask(p.replica, "REPLICAOF", "NO", "ONE") // so that the replica does not pause before it tries again
	p.ask(p.replica, "REPLICAOF", host, port)
	p.synced()
}

// synced waits until the replica has what the master has now. A connection between the two is not enough: the master may still
// hold later writes back.
func (p *pair) synced() {
	p.marks++
	mark := strconv.Itoa(p.marks)
	p.ask(p.master, "SET", "mark", mark)
	eventually(p.t, func() bool {
		seen, err := p.replica.Command("GET", "mark")
		return err == nil && seen == mark
	}, "the replica is connected")
}

func (p *pair) ask(server *redisserver.Server, command ...string) {
	_, err := server.Command(command...)
	require.NoError(p.t, err)
}

// failOver kills the master, makes the replica the master, and redirects the links to it.
func (p *pair) failOver(proxies ...*link) {
	p.master.Stop()
	p.ask(p.replica, "REPLICAOF", "NO", "ONE")
	p.master, p.replica = p.replica, p.master
	for _, proxy := range proxies {
		proxy.redirect(p.master.Addr())
	}
}

// leadReplica makes the replica's clock show the time of the master's clock plus d.
func (p *pair) leadReplica(d time.Duration) {
	p.replica.Clock().Step(p.master.Clock().Ahead() + d - p.replica.Clock().Ahead())
}

// rejoin makes the old master come back as a replica of the new master.
func (p *pair) rejoin() {
	p.replica.Restart(p.t)
	p.copying.mend()
	p.copying.redirect(p.master.Addr())
	p.follow()
}
