package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// A process is one child as its parent sees it. Its fields belong to the parent's loop.
type process struct {
	name string // "p3", and its replacement "p3.2"
	seat int    // 3
	life int    // 2

	cmd    *exec.Cmd
	stdin  io.WriteCloser
	last   report // its latest
	killed bool   // by us
	exited bool
}

// An event is what a child said, or that it ended.
type event struct {
	from   *process
	report report
	exited bool
	err    error // how it ended; nil if well
}

// startProcess runs this program again in the given role. Everything the child says, and its end, arrives in events.
func startProcess(r role, stderr io.Writer, events chan<- event) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("role of %s: %w", r.Server, err)
	}
	p := &process{name: r.Server, cmd: exec.Command(program)}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	p.cmd.Stderr = stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", r.Server, err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", r.Server, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", r.Server, err)
	}
	go p.listen(stdout, events)
	return p, nil
}

// listen passes on what the child says until its output ends, and then how it ended.
func (p *process) listen(stdout io.Reader, events chan<- event) {
	lines := json.NewDecoder(stdout)
	for {
		var r report
		if err := lines.Decode(&r); err != nil {
			// The end, or the half of a line that a SIGKILL leaves. Whatever else the child might say is not for us.
			_, _ = io.Copy(io.Discard, stdout)
			break
		}
		events <- event{from: p, report: r}
	}
	events <- event{from: p, exited: true, err: p.cmd.Wait()}
}

// begin tells the child to start. A child that has just died will be noticed by its end.
func (p *process) begin() {
	_, _ = io.WriteString(p.stdin, "go\n")
}

// stop tells the child to end.
func (p *process) stop() {
	_ = p.stdin.Close()
}

// kill ends the child as a crash would: it has no say in it.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// busy tells whether the child is in the middle of its work.
func (p *process) busy() bool {
	return !p.exited && !p.killed && p.last.Phase == phaseWorking
}
