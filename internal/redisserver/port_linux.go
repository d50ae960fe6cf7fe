package redisserver

import (
	"fmt"
	"net"
	"os"
	"syscall"
)

// reserve keeps a loopback port from other processes until the port is closed. If number is 0, it chooses any free port.
//
// The port's socket is bound but does not listen. So connections are refused while no server listens there, and the system does
// not give the port to a process that asks for a free one. Therefore a test that has stopped its server does not talk to the
// server of another test. A server that reuses addresses, as Redis does, can listen there.
func reserve(number int) (*port, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("redisserver: a socket: %w", err)
	}
	p := &port{socket: os.NewFile(uintptr(fd), "reserved port")}
	if p.number, err = bind(fd, number); err != nil {
		p.close()
		return nil, fmt.Errorf("redisserver: port %d: %w", number, err)
	}
	return p, nil
}

// bind binds a socket to a port to which no other socket is bound. From then on, other sockets may bind to the port.
func bind(fd, number int) (int, error) {
	loopback := [4]byte(net.IPv4(127, 0, 0, 1).To4())
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: number, Addr: loopback}); err != nil {
		return 0, err
	}
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	return bound.(*syscall.SockaddrInet4).Port, nil
}
