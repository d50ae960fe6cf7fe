package reentrant

import (
	"sync/atomic"
	"time"
)

// A feed calls code of the user's, the handler of the log or the observer, in order and beside everything else: code that
// is slow delays neither a renewal nor a loss. Code that blocks costs what comes while the feed is full.
type feed struct {
	jobs    workers // of one
	limit   int     // how many may wait
	dropped atomic.Int64
}

// feedGrace is how long a session that is closed waits for each of its feeds.
const feedGrace = time.Second

// post has job run soon, after those before it. It never blocks: false if too many wait, and then it is dropped.
func (f *feed) post(job func()) bool {
	if f.jobs.backlog() >= f.limit {
		f.dropped.Add(1)
		return false
	}
	f.jobs.do(job)
	return true
}

// finish waits until everything is done, but not for ever.
func (f *feed) finish() {
	limit := time.NewTimer(feedGrace)
	defer limit.Stop()
	if idle := f.jobs.busy(); idle != nil {
		select {
		case <-idle:
		case <-limit.C:
		}
	}
}
