package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// A Child is a process at work, as its parent sees it.
type Child struct {
	process *exec.Cmd
	stdin   io.WriteCloser
	lines   *json.Encoder
	answers chan Outcome // closed when the child's output ends
	stop    sync.Once
}

// Start runs this program once more, as a worker. The child's own stderr goes to stderr.
func Start(job Job, stderr io.Writer) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	c := &Child{process: exec.Command(self), answers: make(chan Outcome, 1)}
	c.process.Env = append(os.Environ(), childEnv+"=1")
	c.process.Stderr = stderr
	if c.stdin, err = c.process.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	stdout, err := c.process.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	if err := c.process.Start(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	c.lines = json.NewEncoder(c.stdin)
	go c.listen(stdout)
	if err := c.lines.Encode(job); err != nil {
		c.Stop()
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	return c, nil
}

func (c *Child) listen(stdout io.Reader) {
	defer close(c.answers)
	for answers := json.NewDecoder(stdout); ; {
		var o Outcome
		if answers.Decode(&o) != nil {
			return
		}
		c.answers <- o
	}
}

// Run gives the order for a run. Answer returns the run's outcome.
func (c *Child) Run(order Order) error { return c.lines.Encode(order) }

// The errors of Answer.
var (
	ErrSilent = errors.New("a worker does not answer")
	ErrEnded  = errors.New("a worker has ended")
)

// Answer waits for a reply until a deadline. The first reply is to the job, and each later one to an order.
func (c *Child) Answer(deadline time.Time) (Outcome, error) {
	late := time.NewTimer(time.Until(deadline))
	defer late.Stop()
	select {
	case o, ok := <-c.answers:
		switch {
		case !ok:
			return o, ErrEnded
		case o.Err != "":
			return o, errors.New(o.Err)
		}
		return o, nil
	case <-late.C:
		return Outcome{}, ErrSilent
	}
}

// stopWithin is how long a child may take to close its connections.
const stopWithin = time.Second

// Stop ends the child, and kills it if it does not end in time. When any call of Stop returns, the child has ended.
func (c *Child) Stop() { c.stop.Do(c.end) }

func (c *Child) end() {
	_ = c.stdin.Close()
	kill := time.AfterFunc(stopWithin, func() { _ = c.process.Process.Kill() })
	defer kill.Stop()
	for range c.answers { // until the output ends: Wait closes the pipe
	}
	_ = c.process.Wait() // the status shows nothing new
}
