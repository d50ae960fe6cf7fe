package cookbook

import (
	"context"
	"time"

	"github.com/relock-go/relock/reentrant"
)

// A Section is all that most code needs of a lock.
type Section interface {
	Do(ctx context.Context, fn func(ctx context.Context) error) error
}

// Every takes a step after every interval, for as long as it has the section.
func Every(ctx context.Context, section Section, interval time.Duration, step func(ctx context.Context) error) error {
	return section.Do(ctx, func(ctx context.Context) error {
		ticks := time.NewTicker(interval)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-ticks.C:
				if err := step(ctx); err != nil {
					return err
				}
			}
		}
	})
}

var _, _ Section = (*reentrant.Lock)(nil), (*reentrant.MultiLock)(nil)
