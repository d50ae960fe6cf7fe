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

// calls are the calls that send commands. The owner of ctx makes each; it holds the lock "held" and not "free".
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

// deaf are the calls that ctx does not end.
var deaf = map[string]bool{"Unlock": true, "Signal": true}

// A backend that cannot be reached is ErrUnavailable in every call. The end of a context is seen only if it is the caller's
// own: commands and attempts have limits too, and those are no concern of the caller's.
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
		return // it goes on trying
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

// The error of a session that cannot be opened is ErrUnavailable, without the session's own time limit; so is that of a
// Close that gets no reply.
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
		require.NotErrorIs(t, err, backend.ErrUnavailable, "it was reached")
	})
}

// A tardyContext has not noticed yet that its deadline has passed.
type tardyContext struct {
	context.Context
	deadline time.Time
}

func (c tardyContext) Deadline() (time.Time, bool) { return c.deadline, true }

// A head whose deadline passes at the moment when it is to ask sends nothing, and so learns nothing about the server.
func TestADeadlineThatIsNotNoticedYetIsNoFailureOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		err := newSession(t, memory.New()).NewLock("x").Lock(tardyContext{ctx, time.Now()})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, reentrant.ErrUnavailable)
	})
}

// A timer fires late on a busy machine, so a context can end after its deadline. No call says before that that it has ended.
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

// A context of the caller's own making may have a deadline, and never end. The deadline ends the call, too.
func TestADeadlineCountsWithoutAnEndOfTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l := newSession(t, b).NewLock("x")
		b.Partition("A", true)
		defer b.Partition("A", false)
		for _, endless := range []context.Context{t.Context(), context.Background()} { // the second has no Done
			begun := time.Now()
			err := l.Lock(tardyContext{endless, begun.Add(time.Second)})
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Less(t, time.Since(begun), time.Minute)
		}
	})
}

// The watchdog and the calls notice the end of their leases at the same moment.
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
