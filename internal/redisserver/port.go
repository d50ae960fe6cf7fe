package redisserver

import (
	"net"
	"os"
	"strconv"
)

// A port is a loopback port of a server, while it runs and while it is stopped.
type port struct {
	number int
	socket *os.File // keeps the port from others; nil where nothing does
}

// addr returns the port's address.
func (p *port) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number)) }

// close gives the port back.
func (p *port) close() {
	if p.socket != nil {
		_ = p.socket.Close()
	}
}
