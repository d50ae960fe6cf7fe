package background

import (
	"sync/atomic"
	"time"
)

// A Feed calls code of the user's, the handler of the log or the observer, in order and beside everything else: code that
// is slow delays neither a renewal nor a loss. Code that blocks costs what comes while the feed is full.
type Feed struct {
	jobs    Workers // of one
	limit   int     // how many may wait
	Dropped atomic.Int64
}

// NewFeed returns a feed for which at most limit jobs may wait.
func NewFeed(limit int) Feed { return Feed{jobs: Workers{Size: 1}, limit: limit} }

// feedGrace is how long a session that is closed waits for each of its feeds.
const feedGrace = time.Second

// Post has job run soon, after those before it. It never blocks: false if too many wait, and then it is dropped.
func (f *Feed) Post(job func()) bool {
	if f.jobs.Backlog() >= f.limit {
		f.Dropped.Add(1)
		return false
	}
	f.jobs.Do(job)
	return true
}

// Finish waits until everything is done, but not for ever.
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
