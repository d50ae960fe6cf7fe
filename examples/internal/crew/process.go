package crew

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// A process is one child as its parent sees it. Its fields belong to the parent's loop.
type process[T any] struct {
	name string // "p3", and its replacement "p3.2"
	seat int    // 3
	life int    // 2

	cmd    *exec.Cmd
	stdin  io.WriteCloser
	last   report[T] // the child's latest report
	killed bool      // by us
	exited bool
}

// An event is a report of a child, or its end.
type event[T any] struct {
	from   *process[T]
	report report[T]
	exited bool
	err    error // how the child ended; nil if it ended without an error
}

// startProcess runs this program again in the given role. The child's reports and its end arrive in events.
func startProcess[T any](name string, role any, stderr io.Writer, events chan<- event[T]) (*process[T], error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	text, err := json.Marshal(part{Name: name, Role: role})
	if err != nil {
		return nil, fmt.Errorf("role of %s: %w", name, err)
	}
	p := &process[T]{name: name, cmd: exec.Command(program)}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	p.cmd.Stderr = stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go p.listen(stdout, events)
	return p, nil
}

// listen passes on the child's reports until the child's output ends. Then it passes on the end.
func (p *process[T]) listen(stdout io.Reader, events chan<- event[T]) {
	lines := json.NewDecoder(stdout)
	for {
		var r report[T]
		if err := lines.Decode(&r); err != nil {
			// This is the end, or the half of a line that a SIGKILL leaves. The parent ignores what follows.
			_, _ = io.Copy(io.Discard, stdout)
			break
		}
		events <- event[T]{from: p, report: r}
	}
	events <- event[T]{from: p, exited: true, err: p.cmd.Wait()}
}

// begin starts the child's work. If the child has just died, its end will show that.
func (p *process[T]) begin() {
	_, _ = io.WriteString(p.stdin, "go\n")
}

// stop makes the child end.
func (p *process[T]) stop() {
	_ = p.stdin.Close()
}

// kill ends the child with SIGKILL, as a crash would.
func (p *process[T]) kill() error {
	err := p.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// busy reports whether the child is in the middle of its work.
func (p *process[T]) busy() bool {
	return !p.exited && !p.killed && p.last.Phase == phaseWorking
}
