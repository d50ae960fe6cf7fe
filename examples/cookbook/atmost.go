package cookbook

import (
	"context"
	"errors"
	"time"

	"github.com/relock-go/relock/reentrant"
)

// ErrBusy is returned when as many calls as allowed were under way for too long.
var ErrBusy = errors.New("too many calls at once")

// Limited makes a call that only so many processes and goroutines may make at once. It waits for two seconds at most.
func Limited(ctx context.Context, calls *reentrant.Semaphore, call func(ctx context.Context) error) error {
	made, err := calls.TryDoFor(ctx, 1, 2*time.Second, call)
	if err == nil && !made || errors.Is(err, reentrant.ErrQueueFull) {
		return ErrBusy
	}
	return err
}
