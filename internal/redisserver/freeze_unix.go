//go:build unix

package redisserver

import "syscall"

// Freeze suspends the process, as an overloaded machine would do: connections stay open, and no command gets a reply.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw lets a frozen server go on.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }
