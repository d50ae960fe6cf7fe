// Package background runs a session's work that no caller waits for, and calls the user's code (the log, the observer)
// beside everything else.
package background

import (
	"sync"
	"time"
)

// Workers do jobs in the background. Their goroutines start when there is something to do and end when there is not.
//
// A job that waits for a node which hangs must not delay those for other nodes. So a goroutine that has been at one job
// for longer than stall makes room for two others, as Go's scheduler replaces a thread that is in a system call. The jobs
// behind n such ones begin after stall × log2(n/size), and there are as many goroutines as commands without an
// answer.
type Workers struct {
	Size  int           // how many of its goroutines are at work at once, if no job takes longer than stall
	Stall time.Duration // 0: jobs take as long as they do, and those of one worker are done in their order

	mu      sync.Mutex // a leaf
	jobs    []func()
	running int           // goroutines
	stalled int           // those whose job has taken longer than stall
	idle    chan struct{} // closed when nothing runs any more; nil while no goroutine waits for that
}

// Do has job run soon. It never blocks.
func (c *Workers) Do(job func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs = append(c.jobs, job)
	c.growLocked()
}

// growLocked starts a goroutine for each job that waits, if there may be so many. c.mu is held.
func (c *Workers) growLocked() {
	for range min(len(c.jobs), c.Size+2*c.stalled-c.running) {
		c.running++
		go c.work()
	}
}

// Backlog is how many jobs have not begun.
func (c *Workers) Backlog() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.jobs)
}

func (c *Workers) work() {
	for {
		job := c.next()
		if job == nil {
			return
		}
		end := c.begin()
		job()
		end()
	}
}

// begin counts the goroutine as stalled when its job has taken too long, until end is called.
func (c *Workers) begin() (end func()) {
	if c.Stall == 0 {
		return func() {}
	}
	late, over := false, false // c.mu
	timer := time.AfterFunc(c.Stall, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !over {
			late = true
			c.stalled++
			c.growLocked()
		}
	})
	return func() {
		timer.Stop()
		c.mu.Lock()
		defer c.mu.Unlock()
		if over = true; late {
			c.stalled--
		}
	}
}

func (c *Workers) next() func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.jobs) == 0 {
		c.jobs = nil
		if c.running--; c.running == 0 && c.idle != nil {
			close(c.idle)
			c.idle = nil
		}
		return nil
	}
	job := c.jobs[0]
	c.jobs = c.jobs[1:]
	return job
}

// Wait returns when everything is done.
func (c *Workers) Wait() {
	if idle := c.busy(); idle != nil {
		<-idle
	}
}

// busy is a channel that is closed when nothing runs any more, nil if nothing does.
func (c *Workers) busy() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == 0 {
		return nil
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	return c.idle
}
