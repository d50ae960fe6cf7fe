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

// A copy of Resume that had no reply reaches the server after the next copy. Meanwhile the owner has acquired the lock
// in another session: the late copy must not move that hold to a session that does not know of it.
func TestALateCopyOfResumeMovesNoLaterHold(t *testing.T) {
	const delay = 1500 * time.Millisecond
	for name, c := range map[string]struct {
		goOn func(t *testing.T, ctx context.Context, resumed, first, next *reentrant.Lock)
		err  error // what Resume returns
	}{
		"unlocked and locked elsewhere": {goOn: func(t *testing.T, ctx context.Context, resumed, _, next *reentrant.Lock) {
			require.NoError(t, resumed.Unlock(ctx))
			require.NoError(t, next.Lock(ctx))
		}},
		"resumed elsewhere": {goOn: func(t *testing.T, ctx context.Context, _, _, next *reentrant.Lock) {
			require.NoError(t, next.Resume(ctx))
		}},
		"nothing to resume": {err: reentrant.ErrNotHeld, goOn: func(t *testing.T, ctx context.Context, _, _, next *reentrant.Lock) {
			require.NoError(t, next.Lock(ctx))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				first, two, next := newSession(t, b).NewLock("x"), newSession(t, b), newSession(t, b).NewLock("x")
				ctx := reentrant.WithPortableOwner(t.Context(), "order 7")
				if c.err == nil {
					require.NoError(t, first.Lock(ctx))
				}
				b.SetFault(memory.Script(memory.Resume, memory.Verdict{Delay: delay}))
				time.AfterFunc(10*time.Millisecond, b.Restart) // so that the session sends Resume again
				begun, resumed := time.Now(), two.NewLock("x")
				require.ErrorIs(t, resumed.Resume(ctx), c.err)
				require.Less(t, time.Since(begun), delay, "the second copy had a reply")
				c.goOn(t, ctx, resumed, first, next)

				time.Sleep(delay)
				require.NoError(t, next.Verify(ctx), "the first copy has taken the hold")
				require.NoError(t, next.Unlock(ctx))
				begun = time.Now()
				require.NoError(t, first.Lock(t.Context()))
				assert.Zero(t, time.Since(begun), "nothing is left behind")
			})
		})
	}
}

// A caller whose Resume ended without a reply tries again: the first copy must not take effect later.
func TestALateCopyOfAResumeThatWasGivenUpMovesNoLaterHold(t *testing.T) {
	const delay = 500 * time.Millisecond
	for name, c := range map[string]struct {
		limit  func(context.Context, time.Duration) (context.Context, context.CancelFunc)
		within bool // the caller tries again in the same session
	}{
		"cancelled, and tried again":                  {cancelledAfter, true},
		"its deadline passed, and tried again":        {context.WithTimeout, true},
		"its deadline passed, and resumed in another": {context.WithTimeout, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				first, resumed, next := newSession(t, b).NewLock("x"), newSession(t, b).NewLock("x"), newSession(t, b).NewLock("x")
				ctx := reentrant.WithPortableOwner(t.Context(), "order 7")
				require.NoError(t, first.Lock(ctx))
				b.SetFault(memory.Script(memory.Resume, memory.Delay(delay)))
				short, cancel := c.limit(ctx, delay/2)
				defer cancel()
				err := resumed.Resume(short)
				require.True(t, reentrant.OutcomeUnknown(err), "%v", err)
				if c.within {
					require.NoError(t, resumed.Resume(ctx))
					require.NoError(t, resumed.Unlock(ctx))
					require.NoError(t, next.Lock(ctx))
				} else {
					require.NoError(t, next.Resume(ctx))
				}

				time.Sleep(delay)
				require.NoError(t, next.Verify(ctx), "the first copy has taken the hold")
				require.NoError(t, next.Unlock(ctx))
			})
		})
	}
}

func cancelledAfter(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	time.AfterFunc(d, cancel)
	return ctx, cancel
}

// A ForceUnlock or ForceRelease that ended without a reply takes nothing from later holders.
func TestALateForceTakesNothingFromTheNext(t *testing.T) {
	const limit, delay = 100 * time.Millisecond, 200 * time.Millisecond
	for name, kind := range map[string]func(s *reentrant.Session) (forced forceable){
		"Lock": func(s *reentrant.Session) forceable {
			l := s.NewLock("x")
			return forceable{l.Lock, l.Unlock, l.Verify, l.ForceUnlock}
		},
		"RWLock": func(s *reentrant.Session) forceable {
			l := s.NewRWLock("x")
			return forceable{l.Lock, l.Unlock, l.Verify, l.ForceUnlock}
		},
		"Semaphore": func(s *reentrant.Session) forceable {
			m := s.NewSemaphore("x", 1)
			return forceable{
				take:  func(ctx context.Context) error { return m.Acquire(ctx, 1) },
				give:  func(ctx context.Context) error { return m.Release(ctx, 1) },
				force: m.ForceRelease,
				verify: func(ctx context.Context) error {
					st, err := m.Inspect(ctx)
					if err == nil && len(st.Holders) == 0 {
						err = reentrant.ErrLost
					}
					return err
				},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, ctx := memory.New(), t.Context()
				one, two, outside := kind(newSession(t, b)), kind(newSession(t, b)), kind(newSession(t, b))
				require.NoError(t, one.take(ctx))
				b.SetFault(memory.Script(memory.Force, memory.Delay(delay)))
				short, cancel := context.WithTimeout(ctx, limit)
				defer cancel()
				_, err := outside.force(short)
				require.True(t, reentrant.OutcomeUnknown(err), "%v", err)
				require.NoError(t, one.verify(ctx), "the caller sees that the lock is held")
				had, err := outside.force(ctx)
				require.NoError(t, err)
				require.True(t, had)
				require.NoError(t, two.take(ctx))
				time.Sleep(delay)
				require.NoError(t, two.verify(ctx), "the first copy has taken the lock away")
				require.NoError(t, two.give(ctx))
			})
		})
	}
}

// A forceable is a lock of any kind.
type forceable struct {
	take, give, verify func(context.Context) error
	force              func(context.Context) (bool, error)
}
