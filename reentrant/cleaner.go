package reentrant

import (
	"context"
	"sync"
	"time"
)

// maxCleaners bounds the goroutines of a session that clean up after callers who have left. They start when there
// is something to do and end when there is not.
const maxCleaners = 4

// A cleaner does in the background what a cancelled caller must not wait for.
type cleaner struct {
	mu      sync.Mutex // a leaf
	jobs    []func()
	running int
	idle    chan struct{} // closed when nothing runs any more; nil while nobody waits for that
}

// do has job run soon. It never blocks.
func (c *cleaner) do(job func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs = append(c.jobs, job)
	if c.running < maxCleaners {
		c.running++
		go c.work()
	}
}

func (c *cleaner) work() {
	for {
		job := c.next()
		if job == nil {
			return
		}
		job()
	}
}

func (c *cleaner) next() func() {
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
func (c *cleaner) wait() {
	if idle := c.busy(); idle != nil {
		<-idle
	}
}

// busy is a channel that is closed when nothing runs any more, nil if nothing does.
func (c *cleaner) busy() <-chan struct{} {
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

// disown gives back what an epoch has on a lock, without the baton: release(epoch) touches nothing newer. It is a
// courtesy to the others (it would expire), so one try is enough.
func (s *core) disown(remote Remote, name string, epoch uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), s.config.commandTimeout())
	defer cancel()
	s.stats.commands.Add(1)
	if _, err := remote.Release(ctx, ReleaseRequest{Epoch: epoch}); err != nil {
		s.config.logger.Warn("could not give back a lock; it expires", "lock", name, "error", err)
	}
}
