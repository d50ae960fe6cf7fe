//go:build unix && !linux

package main

import "syscall"

// processAttributes puts the command into a group of its own.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// adopt does nothing: who loses its parent is init's.
func adopt() {}
