//go:build unix && !linux

package main

import "syscall"

// processAttributes puts the command into a group of its own.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// adopt does nothing: init reaps a process that has lost its parent.
func adopt() {}
