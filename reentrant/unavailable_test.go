package reentrant_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// calls are the calls that send commands. The owner of ctx makes each of them; it holds the lock "held" and not the
// lock "free".
var calls = map[string]func(ctx context.Context, held, free *reentrant.Lock) error{
	"Lock":       func(ctx context.Context, _, free *reentrant.Lock) error { return free.Lock(ctx) },
	"Lock again": func(ctx context.Context, held, _ *reentrant.Lock) error { return held.Lock(ctx) },
	"TryLock":    func(ctx context.Context, _, free *reentrant.Lock) error { return failure(free.TryLock(ctx)) },
	"TryLockFor": func(ctx context.Context, _, free *reentrant.Lock) error {
		return failure(free.TryLockFor(ctx, time.Second/5))
	},
	"TryAny": func(ctx context.Context, _, free *reentrant.Lock) error { return failure(reentrant.TryAny(ctx, free)) },
	"MultiLock": func(ctx context.Context, _, free *reentrant.Lock) error {
		return failure(reentrant.NewMultiLock(free).TryLock(ctx))
	},
	"Unlock":      func(ctx context.Context, held, _ *reentrant.Lock) error { return held.Unlock(ctx) },
	"Verify":      func(ctx context.Context, held, _ *reentrant.Lock) error { return held.Verify(ctx) },
	"Inspect":     func(ctx context.Context, held, _ *reentrant.Lock) error { return failure(held.Inspect(ctx)) },
	"IsLocked":    func(ctx context.Context, held, _ *reentrant.Lock) error { return failure(held.IsLocked(ctx)) },
	"ForceUnlock": func(ctx context.Context, held, _ *reentrant.Lock) error { return failure(held.ForceUnlock(ctx)) },
	"Signal":      func(ctx context.Context, held, _ *reentrant.Lock) error { return held.NewCondition("c").Signal(ctx) },
	"Await":       func(ctx context.Context, held, _ *reentrant.Lock) error { return held.NewCondition("c").Await(ctx) },
	"AwaitFor": func(ctx context.Context, held, _ *reentrant.Lock) error {
		return failure(held.NewCondition("c").AwaitFor(ctx, time.Second))
	},
}

func failure[T any](_ T, err error) error { return err }

// deaf lists the calls that do not end with ctx.
var deaf = map[string]bool{"Unlock": true, "Signal": true}

// If a backend cannot be reached, every call returns ErrUnavailable. The error is that of a context only if the
// caller's own context has ended: commands and attempts have time limits of their own, which do not concern the caller.
func TestABackendThatCannotBeReachedIsUnavailable(t *testing.T) {
	for outage, verdict := range map[string]memory.Verdict{"hangs": memory.Delay(24 * time.Hour), "is gone": memory.Lose} {
		for name, call := range calls {
			t.Run(name+" "+outage, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					for _, limit := range []time.Duration{0, 300 * time.Millisecond} {
						testUnavailable(t, name, verdict, limit, call)
					}
				})
			})
		}
	}
}

func testUnavailable(t *testing.T, name string, verdict memory.Verdict, limit time.Duration, call func(context.Context, *reentrant.Lock, *reentrant.Lock) error) {
	if limit == 0 && name == "Lock" {
		return // the call goes on trying
	}
	b := memory.New()
	s := newSession(t, b)
	held, free := s.NewLock("held"), s.NewLock("free")
	require.NoError(t, held.Lock(owner(t, "o")))
	b.SetFault(func(memory.Op) memory.Verdict { return verdict })
	ctx := owner(t, "o")
	if limit > 0 {
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		ctx = limited
	}
	err := call(ctx, held, free)
	if name == "Lock again" && limit == 0 || name == "Signal" || name == "AwaitFor" || name == "Await" { // until the hold is lost
		assert.True(t, errors.Is(err, reentrant.ErrLost) || errors.Is(err, backend.ErrUnavailable), "%v", err)
	} else {
		require.ErrorIs(t, err, backend.ErrUnavailable)
	}
	assert.NotErrorIs(t, err, context.Canceled)
	if limit > 0 && !deaf[name] && name != "TryLockFor" && !verdict.Lost {
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	} else if limit == 0 || deaf[name] {
		assert.NotErrorIs(t, err, context.DeadlineExceeded)
	}
}

// The error of a session that cannot be opened is ErrUnavailable, and does not mention the session's own time limit. So
// is the error of a Close without a reply.
func TestASessionWithoutAReplyIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, verdict := range []memory.Verdict{memory.Delay(time.Hour), memory.Lose} {
			b := memory.New(memory.WithFault(memory.Script(memory.Connect, verdict)))
			_, err := reentrant.NewSession(b)
			require.ErrorIs(t, err, backend.ErrUnavailable)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
		}
		b := memory.New(memory.WithFault(memory.Script(memory.Connect, memory.Refuse("WRONGPASS"))))
		_, err := reentrant.NewSession(b)
		require.True(t, backend.Refused(err))
		require.NotErrorIs(t, err, backend.ErrUnavailable, "the backend was reached")
	})
}

// A tardyContext is a context whose deadline has passed, but which has not ended yet.
type tardyContext struct {
	context.Context
	deadline time.Time
}

func (c tardyContext) Deadline() (time.Time, bool) { return c.deadline, true }

// If the deadline passes at the moment at which a head is to ask, the head sends nothing, and so learns nothing about
// the server.
func TestADeadlineThatIsNotNoticedYetIsNoFailureOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		err := newSession(t, memory.New()).NewLock("x").Lock(tardyContext{ctx, time.Now()})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, reentrant.ErrUnavailable)
	})
}

// Timers are late on a busy machine, so a context can end after its deadline. Until the context has ended, no call says that
// it has.
func TestNoErrorBlamesAContextThatHasNotEnded(t *testing.T) {
	const deadline, late = 10 * time.Millisecond, 300 * time.Millisecond
	for name, call := range map[string]func(context.Context, *reentrant.Lock) error{
		"Lock":    func(ctx context.Context, l *reentrant.Lock) error { return l.Lock(ctx) },
		"TryLock": func(ctx context.Context, l *reentrant.Lock) error { _, err := l.TryLock(ctx); return err },
		"Inspect": func(ctx context.Context, l *reentrant.Lock) error { _, err := l.Inspect(ctx); return err },
		"Resume":  func(ctx context.Context, l *reentrant.Lock) error { return l.Resume(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				l := newSession(t, b).NewLock("x")
				b.Partition("A", true)
				defer b.Partition("A", false)
				ctx, cancel := context.WithTimeout(reentrant.WithPortableOwner(t.Context(), "ann"), late)
				defer cancel()
				err := call(tardyContext{ctx, time.Now().Add(deadline)}, l)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
			})
		})
	}
}

// A caller's own type of context may have a deadline and never end. The deadline ends the call nevertheless.
func TestADeadlineCountsWithoutAnEndOfTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l := newSession(t, b).NewLock("x")
		b.Partition("A", true)
		defer b.Partition("A", false)
		for _, endless := range []context.Context{t.Context(), context.Background()} { // the second one has no Done channel
			begun := time.Now()
			err := l.Lock(tardyContext{endless, begun.Add(time.Second)})
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Less(t, time.Since(begun), time.Minute)
		}
	})
}

// The watchdog and the calls notice the end of a lease at the same moment.
func TestLostIsClosedBeforeACallReturnsErrLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		cut := make(chan struct{})
		var calls sync.WaitGroup
		for i := range 500 {
			calls.Go(func() {
				l, ctx := s.NewLock(fmt.Sprint(i)), t.Context()
				assert.NoError(t, l.Lock(ctx))
				lost := l.Lost(ctx)
				<-cut
				assert.ErrorIs(t, l.Lock(ctx), reentrant.ErrLost)
				assert.False(t, stillOpen(lost))
			})
		}
		synctest.Wait()
		b.Partition("A", true)
		close(cut)
		calls.Wait()
		b.Partition("A", false)
	})
}
