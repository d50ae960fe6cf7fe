package reentrant_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

func TestDoValueReturnsWhatTheFunctionReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		l, rw := s.NewLock("x"), s.NewRWLock("y")
		failed := errors.New("failed")
		for name, do := range map[string]func(context.Context, func(context.Context) error) error{
			"Lock.Do": l.Do, "RWLock.Do": rw.Do, "RWLock.RDo": rw.RDo, "MultiLock.Do": reentrant.NewMultiLock(l).Do,
		} {
			n, err := reentrant.DoValue(t.Context(), do, func(context.Context) (int, error) { return 7, nil })
			assert.NoError(t, err, name)
			assert.Equal(t, 7, n, name)
			n, err = reentrant.DoValue(t.Context(), do, func(context.Context) (int, error) { return 8, failed })
			assert.ErrorIs(t, err, failed, name)
			assert.Equal(t, 8, n, name)
			n, err = reentrant.DoValue(ended(), do, func(context.Context) (int, error) { t.Error("fn runs"); return 9, nil })
			assert.ErrorIs(t, err, context.Canceled, name)
			assert.Zero(t, n, name)
		}
		n, err := reentrant.DoValue(t.Context(), l.Do, func(ctx context.Context) (int, error) {
			b.Flush()
			<-ctx.Done()
			return 7, nil
		})
		assert.ErrorIs(t, err, reentrant.ErrLost)
		assert.Equal(t, 7, n, "fn has done its work")
	})
}

func TestTryDoRunsOnlyWithTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		l, other := s.NewLock("x"), owner(t, "other")
		failed := errors.New("failed")
		ran, err := l.TryDo(t.Context(), func(ctx context.Context) error {
			assert.Equal(t, 1, l.HoldCount(t.Context()))
			ran, err := l.TryDo(other, func(context.Context) error { t.Error("two callers run at once"); return nil })
			assert.False(t, ran)
			assert.NoError(t, err, "another owner has the lock")
			return failed
		})
		assert.True(t, ran)
		assert.ErrorIs(t, err, failed)
		assert.Zero(t, l.HoldCount(t.Context()))

		ran, err = l.TryDo(ended(), func(context.Context) error { t.Error("fn runs"); return nil })
		assert.False(t, ran)
		assert.ErrorIs(t, err, context.Canceled)
		assert.PanicsWithValue(t, "out", func() { _, _ = l.TryDo(t.Context(), func(context.Context) error { panic("out") }) })
		assert.Zero(t, l.HoldCount(t.Context()), "a panic releases the lock")
	})
}

func TestTryDoForWaitsItsTimeAndNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		l := s.NewLock("x")
		unlock := lockFor(t, owner(t, "other"), l)
		begun := time.Now()
		ran, err := l.TryDoFor(t.Context(), time.Second, func(context.Context) error { t.Error("fn runs"); return nil })
		assert.False(t, ran)
		require.NoError(t, err)
		assert.Equal(t, time.Second, time.Since(begun))

		time.AfterFunc(time.Second, unlock)
		ran, err = l.TryDoFor(t.Context(), 2*time.Second, func(ctx context.Context) error {
			time.Sleep(time.Hour) // the time limit is that of the wait, not of fn
			return ctx.Err()
		})
		assert.True(t, ran)
		require.NoError(t, err)
	})
}

func TestTheContextOfTryDoEndsWithTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		l := s.NewLock("x", reentrant.WithFixedLease(time.Second))
		for _, do := range []func(func(context.Context) error) (bool, error){
			func(fn func(context.Context) error) (bool, error) { return l.TryDo(t.Context(), fn) },
			func(fn func(context.Context) error) (bool, error) { return l.TryDoFor(t.Context(), time.Minute, fn) },
		} {
			ran, err := do(func(ctx context.Context) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
			assert.True(t, ran)
			assert.ErrorIs(t, err, reentrant.ErrLost)
		}
	})
}

// With WithProfilerLabels, the context of Do has a profiler label with the lock's name, so that a profile shows the work under
// each lock. Without the option there is no label.
func TestProfilesHaveTheNameOfTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, failed := memory.New(), errors.New("failed")
		label := func(s *reentrant.Session) (name string, labelled bool) {
			err := s.NewLock("orders").Do(t.Context(), func(ctx context.Context) error {
				name, labelled = pprof.Label(ctx, "relock.lock")
				return failed
			})
			assert.ErrorIs(t, err, failed)
			return name, labelled
		}
		name, _ := label(newSession(t, b, reentrant.WithProfilerLabels()))
		assert.Equal(t, "orders", name)
		_, labelled := label(newSession(t, b))
		assert.False(t, labelled)
	})
}

func TestProfilesHaveTheNamesOfAMultiLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		label := func(names ...string) (label string) {
			s := newSession(t, memory.New(), reentrant.WithProfilerLabels())
			var locks []*reentrant.Lock
			for _, name := range names {
				locks = append(locks, s.NewLock(name))
			}
			require.NoError(t, reentrant.NewMultiLock(locks...).Do(t.Context(), func(ctx context.Context) error {
				label, _ = pprof.Label(ctx, "relock.lock")
				return nil
			}))
			return label
		}
		assert.Equal(t, "a and 2 more", label("c", "a", "b"))
		assert.Equal(t, "a", label("a"))
	})
}

// A loss that ends the function of a Do is one error, which names the lock.
func TestALossIsOneErrorOfDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, thief := newSession(t, b), newSession(t, b)
		l, rw, sem := s.NewLock("x"), s.NewRWLock("rw"), s.NewSemaphore("sem", 1)
		for name, do := range map[string]func(func(context.Context) error) error{
			`unlock "x"`: func(fn func(context.Context) error) error {
				return l.Do(t.Context(), func(ctx context.Context) error {
					return cmp.Or(failure(thief.NewLock("x").ForceUnlock(t.Context())), fn(ctx))
				})
			},
			`unlock "rw"`: func(fn func(context.Context) error) error {
				return rw.Do(t.Context(), func(ctx context.Context) error {
					return cmp.Or(failure(thief.NewRWLock("rw").ForceUnlock(t.Context())), fn(ctx))
				})
			},
			`release "sem"`: func(fn func(context.Context) error) error {
				return sem.Do(t.Context(), 1, func(ctx context.Context) error {
					return cmp.Or(failure(thief.NewSemaphore("sem", 1).ForceRelease(t.Context())), fn(ctx))
				})
			},
			`unlock "m"`: func(fn func(context.Context) error) error {
				return reentrant.NewMultiLock(s.NewLock("l"), s.NewLock("m")).Do(t.Context(), func(ctx context.Context) error {
					return cmp.Or(failure(thief.NewLock("m").ForceUnlock(t.Context())), fn(ctx))
				})
			},
		} {
			for says, fn := range map[string]func(context.Context) error{
				"lost while it was held":                          context.Cause,
				"step 3: lost while it was held":                  func(ctx context.Context) error { return fmt.Errorf("step 3: %w", context.Cause(ctx)) },
				"lost while it was held: query: context canceled": func(ctx context.Context) error { return fmt.Errorf("query: %w", ctx.Err()) },
			} {
				err := do(func(ctx context.Context) error {
					<-ctx.Done()
					return fn(ctx)
				})
				assert.ErrorIs(t, err, reentrant.ErrLost)
				assert.EqualError(t, err, "reentrant: "+name+": "+says)
			}
		}
	})
}

// A function that fails for a reason of its own, or because of another lock's loss, adds its error.
func TestAnErrorOfItsOwnStaysBesideALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, thief := newSession(t, b), newSession(t, b)
		own := errors.New("disk full")
		for _, fails := range []error{own, &reentrant.Error{Op: "unlock", Lock: "y", Err: reentrant.ErrLost}} {
			err := s.NewLock("x").Do(t.Context(), func(ctx context.Context) error {
				assert.NoError(t, failure(thief.NewLock("x").ForceUnlock(t.Context())))
				<-ctx.Done()
				return fails
			})
			assert.EqualError(t, err, fails.Error()+"\nreentrant: unlock \"x\": lost while it was held")
		}
	})
}
