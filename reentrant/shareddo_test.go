package reentrant_test

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

type section = func(ctx context.Context) error

// A doer is a shared name with the methods that run functions under it.
type doer struct {
	do    func(ctx context.Context, fn section) error
	try   func(ctx context.Context, fn section) (bool, error)
	tryIn func(ctx context.Context, wait time.Duration, fn section) (bool, error)
}

// doers are the sides of a read-write lock, and a permit.
func doers(s *reentrant.Session) map[string]doer {
	l, m := s.NewRWLock("rw"), s.NewSemaphore("permits", 1)
	return map[string]doer{
		"write": {l.Do, l.TryDo, l.TryDoFor},
		"read":  {l.RDo, l.TryRDo, l.TryRDoFor},
		"permits": {
			func(ctx context.Context, fn section) error { return m.Do(ctx, 1, fn) },
			func(ctx context.Context, fn section) (bool, error) { return m.TryDo(ctx, 1, fn) },
			func(ctx context.Context, wait time.Duration, fn section) (bool, error) {
				return m.TryDoFor(ctx, 1, wait, fn)
			},
		},
	}
}

func never(t *testing.T) section {
	return func(context.Context) error { t.Error("fn runs"); return nil }
}

func TestTryDoOfSharedNamesRunsOnlyWithThem(t *testing.T) {
	for _, name := range []string{"write", "read", "permits"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, failed := newSession(t, memory.New()), errors.New("failed")
				x, other := doers(s)[name], owner(t, "other")
				ran, err := x.try(t.Context(), func(context.Context) error { return failed })
				assert.True(t, ran)
				assert.ErrorIs(t, err, failed)
				assert.Zero(t, s.Stats().Held)

				// Another owner writes, or has the permit.
				holder := doers(s)[map[string]string{"write": "write", "read": "write", "permits": "permits"}[name]]
				require.NoError(t, holder.do(other, func(context.Context) error {
					ran, err := x.try(t.Context(), never(t))
					assert.False(t, ran)
					require.NoError(t, err)
					begun := time.Now()
					ran, err = x.tryIn(t.Context(), time.Second, never(t))
					assert.False(t, ran)
					require.NoError(t, err)
					assert.Equal(t, time.Second, time.Since(begun))
					return nil
				}))
				ran, err = x.tryIn(t.Context(), time.Second, func(ctx context.Context) error {
					time.Sleep(time.Hour) // the time limit is that of the wait, not of fn
					return ctx.Err()
				})
				assert.True(t, ran)
				require.NoError(t, err)

				ran, err = x.try(ended(), never(t))
				assert.False(t, ran)
				assert.ErrorIs(t, err, context.Canceled)
				assert.PanicsWithValue(t, "out", func() { _, _ = x.try(t.Context(), func(context.Context) error { panic("out") }) })
				assert.Zero(t, s.Stats().Held, "a panic releases the lock")
			})
		})
	}
}

func TestTheContextOfTryDoOfSharedNamesEndsWithTheHold(t *testing.T) {
	for _, name := range []string{"write", "read", "permits"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				x := doers(newSession(t, b))[name]
				ran, err := x.try(t.Context(), func(ctx context.Context) error {
					b.Flush()
					<-ctx.Done()
					return context.Cause(ctx)
				})
				assert.True(t, ran)
				assert.ErrorIs(t, err, reentrant.ErrLost)
			})
		})
	}
}

func TestProfilesHaveTheNameOfASharedName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, x := range doers(newSession(t, memory.New(), reentrant.WithProfilerLabels())) {
			require.NoError(t, x.do(t.Context(), func(ctx context.Context) error {
				label, _ := pprof.Label(ctx, "relock.lock")
				assert.Equal(t, map[string]string{"write": "rw", "read": "rw", "permits": "permits"}[name], label)
				return nil
			}))
		}
	})
}

func TestStatsCountSharedHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ctx := memory.New(), t.Context()
		s := newSession(t, b)
		l, w, m := s.NewRWLock("read"), s.NewRWLock("written"), s.NewSemaphore("permits", 3)
		count := func(held, waiting int) {
			t.Helper()
			synctest.Wait()
			st := s.Stats()
			assert.Equal(t, held, st.Held)
			assert.Equal(t, waiting, st.Waiting)
		}
		count(0, 0)
		require.NoError(t, l.RLock(ctx))
		require.NoError(t, l.RLock(owner(t, "two")))
		require.NoError(t, w.Lock(ctx))
		require.NoError(t, m.Acquire(ctx, 2))
		require.NoError(t, s.NewLock("lock").Lock(ctx))
		count(4, 0)
		done := make(chan error, 3)
		go func() { done <- l.Do(owner(t, "writer"), nothing) }()
		go func() { done <- w.RDo(owner(t, "reader"), nothing) }()
		go func() { done <- m.Do(ctx, 2, nothing) }()
		count(4, 3)
		require.NoError(t, w.Unlock(ctx))
		require.NoError(t, m.Release(ctx, 2))
		count(2, 1)
		require.NoError(t, l.RUnlock(ctx))
		require.NoError(t, l.RUnlock(owner(t, "two")))
		count(1, 0)
		for range 3 {
			require.NoError(t, <-done)
		}
		require.NoError(t, s.NewLock("lock").Unlock(ctx))

		// A registration that no reader uses is no hold.
		require.NoError(t, l.RLock(ctx))
		require.NoError(t, l.RUnlock(ctx))
		count(0, 0)
	})
}

// A pausedContext pauses the goroutine that asks it for a value, after a number of earlier questions.
type pausedContext struct {
	context.Context
	before          int32
	looks           atomic.Int32
	reached, resume chan struct{}
}

func (c *pausedContext) Value(key any) any {
	if c.looks.Add(1) == c.before+1 {
		close(c.reached)
		<-c.resume
	}
	return c.Context.Value(key)
}

// The caller of Do has its hold, and its goroutine is paused before it calls fn. The hold is lost, and another
// goroutine of the same owner acquires a new one.
func TestDoIsNotifiedOfALossThoughItsOwnerHasANewHoldBefore(t *testing.T) {
	type side struct {
		lock, unlock func(l *reentrant.RWLock, ctx context.Context) error
		do           func(l *reentrant.RWLock, ctx context.Context, fn section) error
	}
	read := side{(*reentrant.RWLock).RLock, (*reentrant.RWLock).RUnlock, (*reentrant.RWLock).RDo}
	write := side{(*reentrant.RWLock).Lock, (*reentrant.RWLock).Unlock, (*reentrant.RWLock).Do}
	for name, s := range map[string]side{"read": read, "write": write} {
		for _, waits := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, after a wait %v", name, waits), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := memory.New()
					l := newSession(t, b).NewRWLock("x")
					ctx, other := owner(t, "shared"), newSession(t, b).NewRWLock("x")
					if waits {
						require.NoError(t, other.Lock(t.Context()))
					}
					paused := &pausedContext{Context: ctx, before: 1, reached: make(chan struct{}), resume: make(chan struct{})}
					done := make(chan error, 1)
					go func() {
						done <- s.do(l, paused, func(within context.Context) error {
							<-within.Done()
							return context.Cause(within)
						})
					}()
					if waits {
						synctest.Wait()
						require.NoError(t, other.Unlock(t.Context()))
					}
					<-paused.reached
					b.SetFault(func(memory.Op) memory.Verdict { return memory.Lose })
					time.Sleep(reentrant.DefaultLease)
					b.SetFault(nil)
					require.NoError(t, s.lock(l, ctx))
					close(paused.resume)
					synctest.Wait()
					select {
					case err := <-done:
						require.ErrorIs(t, err, reentrant.ErrLost)
					default:
						assert.Fail(t, "the context of fn has not ended, although another goroutine has the lock")
						b.Flush()
					}
				})
			})
		}
	}
}

func TestDoIsNotNotifiedOfALossOfItsOwnerFromBeforeItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l, ctx := newSession(t, b).NewRWLock("x"), owner(t, "shared")
		require.NoError(t, l.RLock(ctx))
		b.SetFault(func(memory.Op) memory.Verdict { return memory.Lose })
		<-l.Lost(ctx)
		b.SetFault(nil)
		require.NoError(t, l.RDo(ctx, func(within context.Context) error {
			time.Sleep(2 * reentrant.DefaultLease)
			return within.Err()
		}))
		require.ErrorIs(t, l.RUnlock(ctx), reentrant.ErrLost)
	})
}
