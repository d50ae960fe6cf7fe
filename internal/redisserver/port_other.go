//go:build !linux

package redisserver

import (
	"fmt"
	"net"
)

// reserve returns a port that is free now. Only on Linux is the port kept from other processes.
func reserve(number int) (*port, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", number))
	if err != nil {
		return nil, fmt.Errorf("redisserver: port %d: %w", number, err)
	}
	defer l.Close()
	return &port{number: l.Addr().(*net.TCPAddr).Port}, nil
}
