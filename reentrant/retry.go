package reentrant

import (
	"context"
	"time"
)

// retryPause returns how long to wait before a command is sent again after an error. It grows with each try, up to
// most.
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

// pause waits for d, or until closing is closed. It returns false if ctx ends first.
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
