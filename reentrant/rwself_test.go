package reentrant_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// An owner never waits for itself. In these tests goroutines of one owner ask for both sides of a lock that another
// owner has.

// begun starts a call, and returns when it has ended or waits.
func begun(call func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	synctest.Wait()
	return ended
}

func TestALockBehindItsOwnersRLockIsAnUpgrade(t *testing.T) {
	for name, elsewhere := range map[string]bool{"in this process": false, "in another": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				s := newSession(t, b)
				l := s.NewRWLock("x")
				writer := l
				if elsewhere {
					writer = newSession(t, b).NewRWLock("x")
				}
				w, job, other := owner(t, "w"), owner(t, "job"), owner(t, "other")
				require.NoError(t, writer.Lock(w))
				reads := begun(func() error { return l.RLock(job) })
				start := time.Now()
				assert.ErrorIs(t, <-begun(func() error { return l.Lock(job) }), reentrant.ErrUpgrade)
				_, err := l.TryLockFor(job, time.Hour)
				assert.ErrorIs(t, err, reentrant.ErrUpgrade)
				assert.Zero(t, time.Since(start), "at once")
				writes := begun(func() error { return l.Lock(other) })
				require.NoError(t, writer.Unlock(w))
				require.NoError(t, <-reads)
				require.NoError(t, l.RUnlock(job))
				require.NoError(t, <-writes)
				require.NoError(t, l.Unlock(other))
			})
		})
	}
}

func TestALockAfterItsOwnersRLockWasCancelledIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w, job := newSession(t, memory.New()).NewRWLock("x"), owner(t, "w"), owner(t, "job")
		require.NoError(t, l.Lock(w))
		ctx, cancel := context.WithCancel(job)
		reads := begun(func() error { return l.RLock(ctx) })
		cancel()
		require.ErrorIs(t, <-reads, context.Canceled)
		writes := begun(func() error { return l.Lock(job) })
		require.NoError(t, l.Unlock(w))
		require.NoError(t, <-writes)
		require.NoError(t, l.Unlock(job))
	})
}

func TestAnRLockBehindItsOwnersLockEntersWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w, job := newSession(t, memory.New()).NewRWLock("x"), owner(t, "w"), owner(t, "job")
		require.NoError(t, l.Lock(w))
		writes := begun(func() error { return l.Lock(job) })
		reads := begun(func() error { return l.RLock(job) })
		again := begun(func() error { return l.Lock(job) })
		require.NoError(t, l.Unlock(w))
		require.NoError(t, <-writes)
		require.NoError(t, <-reads)
		require.NoError(t, <-again)
		assert.Equal(t, 2, l.HoldCount(job))
		require.NoError(t, l.Unlock(job))
		require.NoError(t, l.Unlock(job))
		require.NoError(t, l.RUnlock(job))
	})
}

// While the server is asked for the read side, it is not known yet whether the Lock behind it is an upgrade.
func TestALockBehindItsOwnersTryRLockIsAnUpgradeIfThatSucceeds(t *testing.T) {
	for name, free := range map[string]bool{"it succeeds": true, "it fails": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := distant()
				l, writer := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
				w, job := owner(t, "w"), owner(t, "job")
				if !free {
					require.NoError(t, writer.Lock(w))
				}
				tried := make(chan bool, 1)
				_ = begun(func() error {
					ok, err := l.TryRLock(job)
					tried <- ok
					return err
				})
				writes := begun(func() error { return l.Lock(job) })
				require.Equal(t, free, <-tried)
				if free {
					require.ErrorIs(t, <-writes, reentrant.ErrUpgrade)
					require.NoError(t, l.RUnlock(job))
					return
				}
				require.NoError(t, writer.Unlock(w))
				require.NoError(t, <-writes)
				require.NoError(t, l.Unlock(job))
			})
		})
	}
}
