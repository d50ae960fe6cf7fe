package cookbook

import (
	"context"
	"sync"

	"github.com/relock-go/relock/reentrant"
)

// A Cached value is read by many and written by few, in every process. Each process has a copy of it.
type Cached[T any] struct {
	Lock *reentrant.RWLock                    // its write side is taken for every change of the value, in any process
	Load func(ctx context.Context) (T, error) // reads the value from where it is stored

	mu      sync.Mutex
	copy    T
	version reentrant.Token // of the lock when copy was loaded; 0: there is none
}

// Get returns the value. It loads it only if the write side was taken since the last time.
func (c *Cached[T]) Get(ctx context.Context) (T, error) {
	return reentrant.DoValue(ctx, c.Lock.RDo, func(ctx context.Context) (value T, err error) {
		version, err := c.Lock.Version(ctx) // sends nothing
		if err != nil {
			return value, err
		}
		c.mu.Lock() // the first reader after a change loads, and the others wait for its copy
		defer c.mu.Unlock()
		if c.version != version {
			if value, err = c.Load(ctx); err != nil {
				return value, err
			}
			c.copy, c.version = value, version
		}
		return c.copy, nil
	})
}

// Change changes the stored value by save, while there are no readers.
func (c *Cached[T]) Change(ctx context.Context, save func(ctx context.Context) error) error {
	return c.Lock.Do(ctx, save)
}
