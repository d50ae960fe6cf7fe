package reentrant

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// cleaners bounds the goroutines of a session that clean up after callers who have left: they do what a cancelled
// caller must not wait for.
const cleaners = 4

// A crew does jobs in the background, in their order if it is a crew of one. Its goroutines start when there is
// something to do and end when there is not.
type crew struct {
	size    int
	mu      sync.Mutex // a leaf
	jobs    []func()
	running int
	idle    chan struct{} // closed when nothing runs any more; nil while nobody waits for that
}

// do has job run soon. It never blocks.
func (c *crew) do(job func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs = append(c.jobs, job)
	if c.running < c.size {
		c.running++
		go c.work()
	}
}

// backlog is how many jobs have not begun.
func (c *crew) backlog() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.jobs)
}

func (c *crew) work() {
	for {
		job := c.next()
		if job == nil {
			return
		}
		job()
	}
}

func (c *crew) next() func() {
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
func (c *crew) wait() {
	if idle := c.busy(); idle != nil {
		<-idle
	}
}

// busy is a channel that is closed when nothing runs any more, nil if nothing does.
func (c *crew) busy() <-chan struct{} {
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
		s.log(slog.LevelWarn, "could not give back a lock; it expires", slog.String("lock", name), slog.Any("error", err))
	}
}
