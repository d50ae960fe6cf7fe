//go:build unix

package main

import (
	"os"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// startOnTerminal starts a program as a shell starts a login: in a session of its own that has the terminal. Output
// comes over the terminal, and the returned file writes to it.
func startOnTerminal(t *testing.T, r *run) *os.File {
	t.Helper()
	tty, err := pty.Start(r.cmd)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tty.Close() })
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := tty.Read(buffer)
			_, _ = r.stdout.Write(buffer[:n])
			if err != nil {
				return
			}
		}
	}()
	r.watch()
	return tty
}

func enter(t *testing.T, tty *os.File, text string) {
	t.Helper()
	_, err := tty.WriteString(text)
	require.NoError(t, err)
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

func TestACommandCanReadTheTerminal(t *testing.T) {
	t.Parallel()
	r := newRun(t, embedded(t), "run", "lock", "--", "sh", "-c", "read line; echo got: $line; read line; echo got: $line")
	tty := startOnTerminal(t, r)
	enter(t, tty, "first\n")
	r.says("got: first")
	enter(t, tty, "second\n")
	r.says("got: second")
	r.exits(0)
}

// Ctrl-C reaches the command once, whether the command is in the background of the terminal, or has read from it and is
// in the foreground.
func TestAnInterruptFromTheTerminalComesOnce(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"background": "",
		"foreground": "read line; ",
	} {
		t.Run(name, func(t *testing.T) {
			// The command ends some time after the first interrupt, so that a second one would arrive.
			script += "trap 'echo int; came=1' INT; echo ready; while [ -z \"$came\" ]; do sleep 0.01; done; " +
				"i=0; while [ $i -lt 30 ]; do sleep 0.01; i=$((i+1)); done; echo over"
			r := newRun(t, embedded(t), "run", "lock", "--", "sh", "-c", script)
			tty := startOnTerminal(t, r)
			enter(t, tty, "line\n")
			r.says("ready")
			enter(t, tty, ctrlC)
			r.says("over")
			r.exits(0)
			assert.Equal(t, 1, countLines(r.stdout.String(), "int"), r.stdout)
		})
	}
}

// A suspended holder would keep the lock, or lose it: so Ctrl-Z does nothing.
func TestTheCommandCannotBeSuspended(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"background": "",
		"foreground": "read line; ",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(t, embedded(t), "run", "lock", "--", "sh", "-c", script+"echo ready; read line; echo got: $line")
			tty := startOnTerminal(t, r)
			if script != "" {
				enter(t, tty, "line\n")
			}
			r.says("ready")
			enter(t, tty, ctrlZ)
			enter(t, tty, "more\n")
			r.says("got: more")
			r.exits(0)
		})
	}
}

// A script continues after relock, and can read from the terminal, too.
func TestTheTerminalIsGivenBack(t *testing.T) {
	t.Parallel()
	r := newRun(t, embedded(t))
	relock := r.cmd.Path
	r.cmd.Path, r.cmd.Args = "/bin/sh", []string{"sh", "-c",
		`"$0" run --lease 1m lock -- sh -c 'read line; echo inner: $line'; read line; echo outer: $line`, relock}
	tty := startOnTerminal(t, r)
	enter(t, tty, "one\n")
	r.says("inner: one")
	enter(t, tty, "two\n")
	r.says("outer: two")
	r.exits(0)
}
