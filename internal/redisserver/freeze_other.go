//go:build !unix

package redisserver

import "runtime"

// Freeze panics: there is no signal that suspends a process.
func (s *Server) Freeze() { panic("redisserver: no process can be suspended on " + runtime.GOOS) }

// Thaw does nothing.
func (s *Server) Thaw() {}
