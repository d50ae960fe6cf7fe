package background

import (
	"sync/atomic"
	"time"
)

// A Feed calls the user's code (the log's handler, the observer) in order, in a goroutine of its own. So slow code delays
// neither a renewal nor the notice of a loss. While the feed is full, new calls are dropped.
type Feed struct {
	jobs    Workers // with one goroutine
	limit   int     // jobs that may wait
	Dropped atomic.Int64
}

// NewFeed returns a feed for which at most limit jobs may wait.
func NewFeed(limit int) Feed { return Feed{jobs: Workers{Size: 1}, limit: limit} }

// feedGrace is how long Session.Close waits for each feed.
const feedGrace = time.Second

// Post queues job behind the earlier ones. It never blocks. If too many jobs wait it drops job and returns false.
func (f *Feed) Post(job func()) bool {
	if f.jobs.Backlog() >= f.limit {
		f.Dropped.Add(1)
		return false
	}
	f.jobs.Do(job)
	return true
}

// Finish waits until all jobs are done, for feedGrace at most.
func (f *Feed) Finish() {
	limit := time.NewTimer(feedGrace)
	defer limit.Stop()
	if idle := f.jobs.busy(); idle != nil {
		select {
		case <-idle:
		case <-limit.C:
		}
	}
}
