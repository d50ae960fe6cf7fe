package reentrant_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// A wait ends at most a lease after its context has ended, or its time limit passed, whichever commands get no reply.
// Its error gives the reason.
func TestAWaitEndsWithinALeaseOfItsContext(t *testing.T) {
	const lease = 9 * time.Second
	for name, hang := range map[string]func(memory.Op) bool{
		"Redis is gone after a while":         func(op memory.Op) bool { return op.Verb != memory.Await },
		"Await is not answered, all else is":  func(op memory.Op) bool { return op.Verb == memory.Await },
		"Redis is gone before the wait begun": func(op memory.Op) bool { return true },
	} {
		for _, fixed := range []time.Duration{0, time.Hour} {
			for _, limited := range []bool{false, true} {
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						b := memory.New()
						s := newSession(t, b, reentrant.WithLease(lease))
						l := s.NewLock("x", reentrant.WithFixedLease(fixed))
						require.NoError(t, l.Lock(t.Context()))
						b.SetFault(func(op memory.Op) memory.Verdict {
							if hang(op) {
								return memory.Delay(time.Hour)
							}
							return memory.Pass
						})
						ctx, cancel := context.WithTimeout(t.Context(), time.Second)
						defer cancel()
						began := time.Now()
						var err error
						if limited {
							_, err = l.NewCondition("c").AwaitFor(t.Context(), time.Second)
						} else {
							err = l.NewCondition("c").Await(ctx)
						}
						assert.LessOrEqual(t, time.Since(began), time.Second+lease)
						require.ErrorIs(t, err, reentrant.ErrLost)
						assert.Equal(t, !limited, errors.Is(err, context.DeadlineExceeded), "%v", err)
						assert.NotErrorIs(t, err, context.Canceled)
						assert.ErrorIs(t, err, backend.ErrUnavailable)
						assert.ErrorContains(t, err, "memory: ", "the error of the backend")
						require.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
					})
				})
			}
		}
	}
}

// If a context ends before any command of the wait was sent, the wait ends at once and the caller keeps its hold.
func TestAWaitThatWasNotSentEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l := newSession(t, b).NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		b.SetFault(func(op memory.Op) memory.Verdict { return memory.Verdict{Lost: op.Verb == memory.Await} })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := l.NewCondition("c").Await(ctx)
		assert.Equal(t, time.Second, time.Since(began))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, reentrant.ErrLost)
		require.NoError(t, l.Unlock(t.Context()))
	})
}

// An owner was signalled, and cannot acquire the lock within a lease after its context has ended. It returns without
// the lock, and its signal goes to the next waiter.
func TestAnOverdueWaiterPassesItsSignalOn(t *testing.T) {
	for _, fair := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New()
			fairness := reentrant.WithFairness(fair)
			first, second := newSession(t, b).NewLock("x", fairness), newSession(t, b).NewLock("x", fairness)
			holder := newSession(t, b).NewLock("x", fairness)
			ctx, cancel := context.WithCancel(t.Context())
			overdue, next := make(chan error, 1), make(chan error, 1)
			wait := func(ctx context.Context, l *reentrant.Lock, done chan<- error) {
				assert.NoError(t, l.Lock(ctx))
				done <- l.NewCondition("c").Await(ctx)
			}
			back := make(chan error, 1)
			go wait(owner(t, "first"), first, back)
			synctest.Wait()
			go wait(reentrant.WithOwner(ctx, "overdue"), first, overdue)
			synctest.Wait()
			go wait(owner(t, "next"), second, next)
			synctest.Wait()

			require.NoError(t, holder.Lock(t.Context()))
			require.NoError(t, holder.NewCondition("c").Signal(t.Context()))
			require.NoError(t, holder.NewCondition("c").Signal(t.Context()))
			synctest.Wait()
			cancel()
			began := time.Now()
			err := <-overdue
			assert.LessOrEqual(t, time.Since(began), reentrant.DefaultLease)
			require.ErrorIs(t, err, reentrant.ErrLost)
			require.ErrorIs(t, err, context.Canceled)
			require.NoError(t, holder.Unlock(t.Context()))
			require.NoError(t, <-back)
			require.NoError(t, first.Unlock(owner(t, "first")))
			limit := time.NewTimer(time.Minute)
			select {
			case err := <-next:
				require.NoError(t, err)
			case <-limit.C:
				t.Fatal("the signal is lost")
			}
			require.NoError(t, second.Unlock(owner(t, "next")))
		})
	}
}
