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

// A copy of Resume that had no reply reaches the server after the next one has. The owner has gone on since: it has the
// lock in another session, and the copy must not move that hold to a session that does not know of it.
func TestALateCopyOfResumeMovesNoLaterHold(t *testing.T) {
	const delay = 1500 * time.Millisecond
	for name, c := range map[string]struct {
		goOn func(t *testing.T, ctx context.Context, resumed, first, next *reentrant.Lock)
		err  error // of the Resume
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
				time.AfterFunc(10*time.Millisecond, b.Restart) // the session sends it again
				begun, resumed := time.Now(), two.NewLock("x")
				require.ErrorIs(t, resumed.Resume(ctx), c.err)
				require.Less(t, time.Since(begun), delay, "the second copy had a reply")
				c.goOn(t, ctx, resumed, first, next)

				time.Sleep(delay)
				require.NoError(t, next.Verify(ctx), "the first copy has taken it")
				require.NoError(t, next.Unlock(ctx))
				begun = time.Now()
				require.NoError(t, first.Lock(t.Context()))
				assert.Zero(t, time.Since(begun), "nothing is left behind")
			})
		})
	}
}

// A caller whose Resume ended without a reply tries again: the first copy must not come through later.
func TestALateCopyOfAResumeThatWasGivenUpMovesNoLaterHold(t *testing.T) {
	const delay = 500 * time.Millisecond
	for name, limit := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"its deadline passed": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, delay/2)
		},
		"it was cancelled": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(delay/2, cancel)
			return ctx, cancel
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				first, resumed, next := newSession(t, b).NewLock("x"), newSession(t, b).NewLock("x"), newSession(t, b).NewLock("x")
				ctx := reentrant.WithPortableOwner(t.Context(), "order 7")
				require.NoError(t, first.Lock(ctx))
				b.SetFault(memory.Script(memory.Resume, memory.Delay(delay)))
				short, cancel := limit(ctx)
				defer cancel()
				err := resumed.Resume(short)
				require.Error(t, err)
				require.True(t, reentrant.OutcomeUnknown(err), "%v", err)
				require.NoError(t, resumed.Resume(ctx))
				require.NoError(t, resumed.Unlock(ctx))
				require.NoError(t, next.Lock(ctx))

				time.Sleep(delay)
				require.NoError(t, next.Verify(ctx), "the first copy has taken it")
				require.NoError(t, next.Unlock(ctx))
			})
		})
	}
}
