package backend

import "context"

// A Watcher is what a [Remote] can be besides: one that reports waiters to the session that holds the lock.
type Watcher interface {
	// Watch has the session told by [Sink.Wanted], at each attempt that queues up, that another session waits for the lock
	// that epoch has. This lasts until the lock is given to another attempt. After an unknown outcome sending it again is
	// right.
	Watch(ctx context.Context, epoch uint64) (WatchReply, error)
}

// A WatchReply answers a Watch.
type WatchReply struct {
	Gone    bool // the epoch does not have the lock, and nothing was changed
	Waiting bool // another session waits for the lock already
	_       struct{}
}
