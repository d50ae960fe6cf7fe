package reentrant

import (
	"context"
	"github.com/relock-go/relock/backend"
	"log/slog"
	"sync"
	"time"
)

// cleaners is how many goroutines of a session clean up after callers who have left, besides those that wait for a node
// which does not answer.
const cleaners = 4

// Workers do jobs in the background. Their goroutines start when there is something to do and end when there is not.
//
// A job that waits for a node which hangs must not delay those for other nodes. So a goroutine that has been at one job
// for longer than stall makes room for two others, as Go's scheduler replaces a thread that is in a system call. The jobs
// behind n such ones begin after stall × log2(n/size), and there are as many goroutines as commands without an
// answer.
type workers struct {
	size  int           // how many of its goroutines are at work at once, if no job takes longer than stall
	stall time.Duration // 0: jobs take as long as they do, and those of one worker are done in their order

	mu      sync.Mutex // a leaf
	jobs    []func()
	running int           // goroutines
	stalled int           // those whose job has taken longer than stall
	idle    chan struct{} // closed when nothing runs any more; nil while nobody waits for that
}

// do has job run soon. It never blocks.
func (c *workers) do(job func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs = append(c.jobs, job)
	c.growLocked()
}

// growLocked starts a goroutine for each job that waits, if there may be so many. c.mu is held.
func (c *workers) growLocked() {
	for range min(len(c.jobs), c.size+2*c.stalled-c.running) {
		c.running++
		go c.work()
	}
}

// backlog is how many jobs have not begun.
func (c *workers) backlog() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.jobs)
}

func (c *workers) work() {
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
func (c *workers) begin() (end func()) {
	if c.stall == 0 {
		return func() {}
	}
	late, over := false, false // c.mu
	timer := time.AfterFunc(c.stall, func() {
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

func (c *workers) next() func() {
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

// wait returns when everything is done.
func (c *workers) wait() {
	if idle := c.busy(); idle != nil {
		<-idle
	}
}

// busy is a channel that is closed when nothing runs any more, nil if nothing does.
func (c *workers) busy() <-chan struct{} {
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

// retryPause is how long a command waits before it is sent again after an error, growing with each try.
func retryPause(try int, most time.Duration) time.Duration {
	return min(time.Millisecond<<min(try, 10), most)
}

// releaseOrphan gives back what an epoch has on a lock, without the baton: release(epoch) touches nothing newer. It is a
// courtesy to the others (it would expire), so one try is enough.
func (s *session) releaseOrphan(remote backend.Remote, name string, epoch uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), s.config.commandTimeout())
	defer cancel()
	s.stats.commands.Add(1)
	if _, err := remote.Release(ctx, backend.ReleaseRequest{Epoch: epoch}); err != nil {
		s.log(slog.LevelWarn, "could not give back a lock; it expires", slog.String("lock", name), slog.Any("error", err))
	}
}
