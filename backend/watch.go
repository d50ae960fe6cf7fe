package backend

import "context"

// A Watcher is an optional interface of a [Remote] that reports waiters to the session that holds the lock.
type Watcher interface {
	// Watch requests [Sink.Wanted] for each attempt of another session that queues up for the lock that epoch has. This
	// lasts until another attempt gets the lock. After an unknown outcome it is right to send it again.
	Watch(ctx context.Context, epoch uint64) (WatchReply, error)
}

// A WatchReply is the reply to a Watch.
type WatchReply struct {
	Gone    bool // the epoch does not have the lock, and nothing was changed
	Waiting bool // another session waits for the lock already
	_       struct{}
}
