package reentrant_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// aside runs f in a goroutine of its own.
func aside(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// isOpen reports whether the channel of a Lost is still open.
func isOpen(lost <-chan struct{}) bool {
	select {
	case <-lost:
		return false
	default:
		return true
	}
}

// A goroutine that is started in Do can ask about the hold of Do's owner with Do's context. It may not unlock.
func TestTheContextOfDoShowsTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		l, other := s.NewLock("x"), s.NewLock("y")
		var leaked context.Context
		require.NoError(t, l.Do(t.Context(), func(ctx context.Context) error {
			leaked = ctx
			token, err := l.Token(ctx)
			require.NoError(t, err)
			aside(func() {
				again := s.NewLock("x") // any handle
				assert.True(t, isOpen(again.Lost(ctx)))
				got, err := again.Token(ctx)
				assert.NoError(t, err)
				assert.Equal(t, token, got)
				_, err = l.TrustedUntil(ctx)
				assert.NoError(t, err)
				assert.NoError(t, l.Verify(ctx))
				assert.Equal(t, 1, l.HoldCount(ctx))
				assert.True(t, l.IsHeldByCurrentOwner(ctx))

				assert.ErrorIs(t, l.Unlock(ctx), reentrant.ErrNotHeld)
				ok, err := l.TryLock(ctx)
				assert.NoError(t, err)
				assert.False(t, ok, "the goroutine is another owner")
				assert.False(t, l.IsHeldByCurrentOwner(reentrant.WithOwner(ctx, "job")), "a named owner is the one that is asked about")
				assert.False(t, l.IsHeldByCurrentOwner(context.WithoutCancel(t.Context())))
				_, err = other.Token(ctx)
				assert.ErrorIs(t, err, reentrant.ErrNotHeld, "a lock that Do has not taken")

				// A hold of the goroutine itself comes first, and an inner Do hides no outer one.
				assert.NoError(t, other.Do(ctx, func(ctx context.Context) error {
					aside(func() {
						assert.Equal(t, 1, other.HoldCount(ctx))
						assert.Equal(t, 1, l.HoldCount(ctx))
					})
					return nil
				}))
				require.NoError(t, other.Lock(ctx))
				assert.Equal(t, 1, other.HoldCount(ctx))
				require.NoError(t, other.Unlock(ctx))
			})
			return nil
		}))
		require.NoError(t, l.Lock(t.Context()))
		aside(func() { assert.False(t, l.IsHeldByCurrentOwner(leaked), "Do has returned") })
		require.NoError(t, l.Unlock(t.Context()))
	})
}

// A goroutine that is started in Do is notified of a loss.
func TestTheContextOfDoEndsWithALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l := newSession(t, b).NewLock("x")
		err := l.Do(t.Context(), func(ctx context.Context) error {
			b.SetFault(memory.Script(memory.Renew, lose(1000)...))
			aside(func() {
				<-l.Lost(ctx)
				_, err := l.Token(ctx)
				assert.ErrorIs(t, err, reentrant.ErrLost)
				assert.ErrorIs(t, l.Verify(ctx), reentrant.ErrLost)
			})
			return nil
		})
		assert.ErrorIs(t, err, reentrant.ErrLost)
	})
}

// A goroutine that is started in the Do of a MultiLock can ask about the holds with Do's context, too.
func TestTheContextOfAMultiLocksDoShowsTheHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		x, y := s.NewLock("x"), s.NewLock("y")
		m := reentrant.NewMultiLock(x, y)
		require.NoError(t, m.Do(t.Context(), func(ctx context.Context) error {
			aside(func() {
				assert.True(t, isOpen(m.Lost(ctx)))
				assert.True(t, m.IsHeldByCurrentOwner(ctx))
				assert.True(t, x.IsHeldByCurrentOwner(ctx))
				assert.NoError(t, y.Verify(ctx))
				assert.Error(t, m.Unlock(ctx))
			})
			return nil
		}))
		assert.Zero(t, s.Stats().Held)
	})
}

// A name must not be empty, and has a maximum length.
func TestNamesThatAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		l := s.NewLock("x")
		c := l.NewCondition("c")
		long := strings.Repeat("n", 4097)
		for want, ctx := range map[string]context.Context{
			"empty name":               reentrant.WithOwner(t.Context(), ""),
			"has an empty name":        reentrant.WithPortableOwner(t.Context(), ""),
			"is 4097 bytes long":       reentrant.WithOwner(t.Context(), long),
			"4097 bytes long, at most": reentrant.WithPortableOwner(t.Context(), long),
		} {
			for op, err := range map[string]error{
				"Lock": l.Lock(ctx), "Unlock": l.Unlock(ctx), "Verify": l.Verify(ctx), "Resume": l.Resume(ctx),
				"Await": c.Await(ctx), "AwaitUninterruptibly": c.AwaitUninterruptibly(ctx), "Signal": c.Signal(ctx), "SignalAll": c.SignalAll(ctx),
				"Do":           l.Do(ctx, func(context.Context) error { panic("called") }),
				"TryLock":      second(l.TryLock(ctx)),
				"TryLockFor":   second(l.TryLockFor(ctx, time.Second)),
				"AwaitFor":     second(c.AwaitFor(ctx, time.Second)),
				"Token":        second(l.Token(ctx)),
				"TrustedUntil": second(l.TrustedUntil(ctx)),
			} {
				assert.ErrorContains(t, err, want, op)
			}
			assert.Panics(t, l.Locker(ctx).Lock)
			assert.False(t, isOpen(l.Lost(ctx)))
			assert.Zero(t, l.HoldCount(ctx))
		}
		assert.Zero(t, s.Stats().Commands)

		most := reentrant.WithOwner(t.Context(), long[:4096])
		require.NoError(t, l.Lock(most))
		assert.ErrorContains(t, l.NewCondition(long).Signal(most), "4097")
		assert.ErrorContains(t, l.NewCondition(long).Await(most), "4097")
		assert.NoError(t, l.NewCondition(long[:4096]).Signal(most))
		require.NoError(t, l.Unlock(most))
	})
}

func second[T any](_ T, err error) error { return err }
