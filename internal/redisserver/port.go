package redisserver

import (
	"net"
	"os"
	"strconv"
	"testing"
)

// A port is a loopback port that a server has, both while it runs and while it is stopped.
type port struct {
	number int
	socket *os.File // keeps the port from other processes; nil where nothing does
}

// KeepAddr returns a free loopback address for a server of the test that is stopped and started again at this address. On Linux
// the system gives the address to nothing else until the test ends. The server must reuse addresses, as Go's listeners do.
func KeepAddr(tb testing.TB) string {
	tb.Helper()
	p, err := reserve(0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.close)
	return p.addr()
}

// addr returns the port's address.
func (p *port) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number)) }

// close gives the port back.
func (p *port) close() {
	if p.socket != nil {
		_ = p.socket.Close()
	}
}
