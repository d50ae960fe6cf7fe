package reentrant_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

type runner = func(context.Context, func(context.Context) error) error

// sidesOf returns the ways in which a read-write lock runs a function, by side.
func sidesOf(l *reentrant.RWLock) map[string]runner {
	return map[string]runner{
		"write": l.Do, "read": l.RDo,
		"write, tried": func(ctx context.Context, fn func(context.Context) error) error {
			_, err := l.TryDo(ctx, fn)
			return err
		},
		"read, tried": func(ctx context.Context, fn func(context.Context) error) error {
			_, err := l.TryRDo(ctx, fn)
			return err
		},
	}
}

// A goroutine that is started in Do or RDo can ask about the holds of its owner with its context, as with Lock.Do. It
// may not unlock.
func TestTheContextOfASidesDoShowsTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		l, plain := s.NewRWLock("x"), s.NewLock("lock")
		for name, do := range sidesOf(l) {
			writes := name[0] == 'w'
			var leaked context.Context
			err := do(t.Context(), func(ctx context.Context) error {
				leaked = ctx
				aside(func() {
					again := s.NewRWLock("x") // any handle
					asksAbout(t, ctx, again, writes)
					assert.False(t, again.IsHeldByCurrentOwner(reentrant.WithOwner(ctx, "job")), "a named owner is the one that is asked about")
					assert.Zero(t, again.ReadHoldCount(t.Context()), "a context of its own")
					assert.ErrorIs(t, l.Unlock(ctx), reentrant.ErrNotHeld)
					assert.ErrorIs(t, l.RUnlock(ctx), reentrant.ErrNotHeld)
					ok, err := l.TryLock(ctx)
					assert.NoError(t, err)
					assert.False(t, ok, "the goroutine is another owner")
					_, err = l.NewCondition("c").AwaitFor(ctx, 0)
					assert.ErrorIs(t, err, reentrant.ErrNotHeld)
					assert.ErrorIs(t, l.NewCondition("c").Signal(ctx), reentrant.ErrNotHeld)
					assert.NoError(t, plain.Do(ctx, func(ctx context.Context) error { // an inner Do hides no outer one
						aside(func() {
							assert.Equal(t, 1, plain.HoldCount(ctx))
							asksAbout(t, ctx, l, writes)
						})
						return nil
					}))
				})
				return nil
			})
			require.NoError(t, err)
			require.NoError(t, l.Lock(t.Context()))
			aside(func() { assert.False(t, l.IsHeldByCurrentOwner(leaked), "%s: Do has returned", name) })
			require.NoError(t, l.Unlock(t.Context()))
		}
	})
}

// asksAbout calls the methods that ask about one hold of one side.
func asksAbout(t *testing.T, ctx context.Context, l *reentrant.RWLock, writes bool) {
	t.Helper()
	assert.True(t, isOpen(l.Lost(ctx)))
	assert.NoError(t, l.Verify(ctx))
	_, err := l.TrustedUntil(ctx)
	assert.NoError(t, err)
	_, tokenErr := l.Token(ctx)
	_, versionErr := l.Version(ctx)
	assert.Equal(t, writes, l.IsHeldByCurrentOwner(ctx))
	if writes {
		assert.Equal(t, [2]int{0, 1}, [2]int{l.ReadHoldCount(ctx), l.HoldCount(ctx)})
		assert.NoError(t, tokenErr)
		assert.Error(t, versionErr)
	} else {
		assert.Equal(t, [2]int{1, 0}, [2]int{l.ReadHoldCount(ctx), l.HoldCount(ctx)})
		assert.ErrorIs(t, tokenErr, reentrant.ErrNotHeld)
		assert.NoError(t, versionErr)
	}
}

// A goroutine that was started in RDo and reads itself asks about its own hold, and not about that of RDo's owner.
func TestAGoroutineOfRDoThatReadsAsksAboutItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSession(t, memory.New()).NewRWLock("x")
		require.NoError(t, l.RDo(t.Context(), func(ctx context.Context) error {
			aside(func() {
				require.NoError(t, l.RLock(ctx))
				require.NoError(t, l.RLock(ctx))
				assert.Equal(t, 2, l.ReadHoldCount(ctx))
				require.NoError(t, l.RUnlock(ctx))
				require.NoError(t, l.RUnlock(ctx))
				assert.Equal(t, 1, l.ReadHoldCount(ctx))
			})
			return nil
		}))
	})
}

// A goroutine that is started in Do or RDo is notified of a loss, also of permits. Permits have no owner, so the goroutine
// needs only the context.
func TestTheContextOfASharedDoEndsWithALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		l, m := s.NewRWLock("rw"), s.NewSemaphore("sem", 2)
		permit := func(ctx context.Context, fn func(context.Context) error) error { return m.Do(ctx, 1, fn) }
		lost := map[string]func(context.Context) <-chan struct{}{
			"write": l.Lost, "read": l.Lost, "permit": func(context.Context) <-chan struct{} { return m.Lost() },
		}
		for name, do := range map[string]runner{"write": l.Do, "read": l.RDo, "permit": permit} {
			err := do(t.Context(), func(ctx context.Context) error {
				b.SetFault(memory.Script(memory.Renew, lose(1000)...))
				defer b.SetFault(nil)
				aside(func() {
					<-lost[name](ctx)
					<-ctx.Done()
					assert.ErrorIs(t, context.Cause(ctx), reentrant.ErrLost, name)
					if name != "permit" {
						assert.ErrorIs(t, l.Verify(ctx), reentrant.ErrLost, name)
					}
				})
				return nil
			})
			assert.ErrorIs(t, err, reentrant.ErrLost, name)
		}
	})
}
