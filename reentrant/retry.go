package reentrant

import (
	"context"
	"time"
)

// retryPause is how long a command waits before it is sent again after an error, growing with each try.
func retryPause(try int, most time.Duration) time.Duration {
	return min(time.Millisecond<<min(try, 10), most)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// pause waits for d; false if ctx ends first. A session that closes cuts it short.
func pause(ctx context.Context, d time.Duration, closing <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-closing:
	case <-ctx.Done():
		return false
	}
	return true
}
