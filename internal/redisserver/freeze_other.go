//go:build !unix

package redisserver

import "runtime"

// Freeze panics, because no signal can suspend a process here.
func (s *Server) Freeze() { panic("redisserver: no process can be suspended on " + runtime.GOOS) }

// Thaw does nothing.
func (s *Server) Thaw() {}
