// Package background runs a session's work that no caller waits for, and calls the user's code (the log, the observer)
// beside everything else.
package background

import (
	"sync"
	"time"
)

// Workers run jobs in the background. Goroutines start when there are jobs and end when there are none.
// A job that waits for a hanging node must not delay the jobs for other nodes. So a goroutine that has been at one job
// for longer than Stall makes room for two more, as Go's scheduler replaces a thread that is in a system call. Jobs
// behind n stalled ones begin after Stall × log2(n/Size), and the number of goroutines follows the number of commands
// without a reply.
type Workers struct {
	Size  int           // goroutines that run at once while no job takes longer than Stall
	Stall time.Duration // 0: never; with Size 1 the jobs then run in order

	mu      sync.Mutex // a leaf
	jobs    []func()
	running int           // goroutines
	stalled int           // goroutines whose job has taken longer than Stall
	idle    chan struct{} // closed when no goroutine runs any more; nil unless a caller waits for that
}

// Do queues job. It never blocks.
func (c *Workers) Do(job func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs = append(c.jobs, job)
	c.growLocked()
}

// growLocked starts a goroutine for each waiting job, up to the limit. c.mu is held.
func (c *Workers) growLocked() {
	for range min(len(c.jobs), c.Size+2*c.stalled-c.running) {
		c.running++
		go c.work()
	}
}

// Backlog returns the number of jobs that have not begun.
func (c *Workers) Backlog() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.jobs)
}

// work runs jobs until there are none. A job that ends its goroutine (runtime.Goexit), as a user's code can, gets
// another in its place.
func (c *Workers) work() {
	done := false
	defer func() {
		if !done {
			go c.work()
		}
	}()
	for job := c.next(); job != nil; job = c.next() {
		c.run(job)
	}
	done = true
}

func (c *Workers) run(job func()) {
	defer c.begin()()
	job()
}

// begin starts the clock of a job. Once the job has taken longer than Stall, its goroutine counts as stalled until end
// is called.
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

// Wait returns when all jobs are done.
func (c *Workers) Wait() {
	if idle := c.busy(); idle != nil {
		<-idle
	}
}

// busy returns a channel that is closed when no goroutine runs any more, nil if none runs now.
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
