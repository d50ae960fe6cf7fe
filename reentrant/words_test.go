package reentrant_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// sessionWithLog opens a session whose log has no times. lines returns the records so far that have a word, one a line.
func sessionWithLog(t *testing.T, b *memory.Backend, opts ...reentrant.Option) (s *reentrant.Session, lines func(word string) []string) {
	t.Helper()
	var out notebook
	handler := slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	s = newSession(t, b, append(opts, reentrant.WithLogger(slog.New(handler)))...)
	return s, func(word string) (with []string) {
		synctest.Wait() // the log is written in a goroutine of its own
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, word) {
				with = append(with, strings.TrimSuffix(line, "\n"))
			}
		}
		return with
	}
}

// An operator who has only the log's line of a loss knows whose hold was lost, since when that owner had it, and what this
// means for data that were written.
func TestTheLineOfALossSaysWhatItMeans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, lines := sessionWithLog(t, b)
		ctx, l := owner(t, "job"), s.NewLock("x")
		require.NoError(t, l.Lock(ctx))
		time.Sleep(7 * time.Second)
		assert.NoError(t, failure(newSession(t, b).NewLock("x").ForceUnlock(ctx)))
		<-l.Lost(ctx)
		assert.Equal(t, []string{`level=ERROR msg="lock lost" lock=x owner=~job token=1 held=9s error="lost while it was held (Redis no longer had it at renewal)"` +
			` hint="another owner may have it by now: what this one still writes is refused only by a resource that checks tokens" session=` + s.ID()}, lines("lost"))
		require.ErrorIs(t, l.Unlock(ctx), reentrant.ErrLost)

		m := s.NewSemaphore("sem", 1)
		require.NoError(t, m.Acquire(ctx, 1))
		assert.NoError(t, failure(newSession(t, b).NewSemaphore("sem", 1).ForceRelease(ctx)))
		<-m.Lost()
		require.Len(t, lines("lock=sem"), 1)
		assert.Contains(t, lines("lock=sem")[0], "others may have it by now, while the work of this owner still goes on")
	})
}

// The end of a fixed lease, and a hold that is left to be resumed, are what the program asked for.
func TestAnEndThatWasAskedForIsNoErrorInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, lines := sessionWithLog(t, memory.New(), reentrant.WithPortableHoldsLeft())
		ctx, l := owner(t, "job"), s.NewLock("fixed", reentrant.WithFixedLease(time.Second))
		require.NoError(t, l.Lock(ctx))
		<-l.Lost(ctx)
		assert.Equal(t, []string{`level=INFO msg="a fixed lease has ended" lock=fixed owner=~job token=1 held=988ms error="lost while it was held (its fixed lease ended)" session=` + s.ID()}, lines("fixed"))
		require.ErrorIs(t, l.Unlock(ctx), reentrant.ErrLost)

		require.NoError(t, s.NewLock("left").Lock(reentrant.WithPortableOwner(ctx, "p")))
		require.NoError(t, s.Close(ended()))
		require.Len(t, lines("left"), 1)
		assert.Contains(t, lines("left")[0], `level=INFO msg="a hold is left to be resumed" lock=left owner=@p`)
		assert.Empty(t, lines("level=ERROR"))
	})
}

// A fixed lease that ends before its time is a loss like any other.
func TestAFixedLeaseThatIsTakenAwayIsAnErrorInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, lines := sessionWithLog(t, b)
		ctx, l := owner(t, "job"), s.NewLock("fixed", reentrant.WithFixedLease(time.Minute))
		require.NoError(t, l.Lock(ctx))
		assert.NoError(t, failure(newSession(t, b).NewLock("fixed").ForceUnlock(ctx)))
		require.ErrorIs(t, l.Verify(ctx), reentrant.ErrLost)
		assert.Len(t, lines("level=ERROR"), 1)
		require.ErrorIs(t, l.Unlock(ctx), reentrant.ErrLost)
	})
}

// If a deadline ends a wait behind another owner, the error names that owner, whether it is of this process or of another.
func TestAWaitInVainNamesTheHolder(t *testing.T) {
	for name, c := range map[string]struct {
		held, waited what
		near, far    string // the holder in this process, and in another, %s being its session
	}{
		"lock":    {anyLock, anyLock, `lock "x": held by owner ~ann of session %s for 2s ("migration 42")`, `lock "x": held by owner ~ann of session %s for 2s ("migration 42")`},
		"write":   {aWriter, aWriter, `lock "x": held by owner ~ann of session %s (write) for 2s ("migration 42")`, `lock "x": held by session %s (write) for 2s ("migration 42")`},
		"read":    {aReader, aWriter, `lock "x": held by owner ~ann of session %s (read) ("migration 42")`, `lock "x": held by session %s (read) for 2s ("migration 42")`},
		"permits": {twoPermits, twoPermits, `acquire "x": held by session %s (permits: 2) ("migration 42")`, `acquire "x": held by session %s (permits: 2) for 2s ("migration 42")`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				b.SetSkew(time.Since(time.Unix(0, 0))) // tokens show the time of day, as Redis's do
				s, other := newSession(t, b), newSession(t, b)
				for where, holder := range map[string]*reentrant.Session{"near": s, "far": other} {
					says := map[string]string{"near": c.near, "far": c.far}[where]
					require.NoError(t, c.held.take(holder, reentrant.WithNote(owner(t, "ann"), "migration 42")))
					ctx, cancel := context.WithTimeout(owner(t, "bob"), 2*time.Second)
					err := c.waited.take(s, ctx)
					cancel()
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					assert.EqualError(t, err, fmt.Sprintf("reentrant: "+says, holder.ID())+": context deadline exceeded")
					if e, ok := errors.AsType[*reentrant.Error](err); assert.True(t, ok) && assert.Len(t, e.Holders, 1) {
						assert.Equal(t, holder.ID(), e.Holders[0].Session)
					}
					require.NoError(t, c.held.give(holder, owner(t, "ann")))
					time.Sleep(2 * time.Second) // so that the next wait asks for the holder anew
				}
			})
		})
	}
}

// Calls whose time ends together ask for the holder once. A call that was cancelled asks nothing: its caller has left.
func TestCallsThatWaitInVainAskOnceForTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		require.NoError(t, newSession(t, b).NewLock("x").Lock(owner(t, "ann")))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		errs := make(chan error)
		const calls = 50
		for i := range calls {
			go func() { errs <- s.NewLock("x").Lock(reentrant.WithOwner(ctx, fmt.Sprint(i))) }()
		}
		for range calls {
			assert.ErrorContains(t, <-errs, `held by owner ~ann of session `)
		}
		assert.Equal(t, 1, b.Count(memory.Inspect))

		time.Sleep(time.Minute)
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		assert.EqualError(t, s.NewLock("x").Lock(ctx), `reentrant: lock "x": others come first: context canceled`)
		assert.Equal(t, 1, b.Count(memory.Inspect))
	})
}

// A server that does not reply when the time of a call is up does not keep the call for long.
func TestALookForTheHolderIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		require.NoError(t, newSession(t, b).NewLock("x").Lock(t.Context()))
		b.SetFault(func(op memory.Op) memory.Verdict {
			if op.Verb == memory.Inspect {
				return memory.Delay(time.Hour)
			}
			return memory.Verdict{}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		assert.EqualError(t, s.NewLock("x").Lock(ctx), `reentrant: lock "x": others come first: context deadline exceeded`)
		assert.Equal(t, 1020*time.Millisecond, time.Since(begun))
	})
}

// A Close that takes long says for whom it waits.
func TestALongCloseSaysForWhomItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, lines := sessionWithLog(t, memory.New())
		ctx := owner(t, "job")
		require.NoError(t, s.NewLock("x").Lock(ctx))
		require.NoError(t, s.NewRWLock("rw").RLock(ctx))
		require.NoError(t, s.NewRWLock("book").Lock(ctx))
		require.NoError(t, s.NewSemaphore("pool", 3).Acquire(ctx, 2))
		closed := make(chan error)
		go func() { closed <- s.Close(context.Background()) }()
		time.Sleep(time.Second - 1)
		assert.Empty(t, lines("Close"))
		time.Sleep(time.Minute)
		assert.Equal(t, []string{`level=WARN msg="Close waits until all holders have unlocked, or its context ends" holders=4 ` +
			`locks="[book: owner ~job (write) pool: some callers (permits: 2) rw: owner ~job (read) x: owner ~job]" session=` + s.ID()}, lines("Close"))
		require.NoError(t, s.NewSemaphore("pool", 3).Release(ctx, 2))
		require.NoError(t, s.NewRWLock("book").Unlock(ctx))
		require.NoError(t, s.NewRWLock("rw").RUnlock(ctx))
		require.NoError(t, s.NewLock("x").Unlock(ctx))
		require.NoError(t, <-closed)

		s, lines = sessionWithLog(t, memory.New())
		require.NoError(t, s.Close(context.Background()))
		time.Sleep(time.Minute)
		assert.Empty(t, lines("Close"), "a Close that does not wait says nothing")
	})
}

// People see the name of a session wherever they see its id, in this process and in others.
func TestSessionsHaveNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, lines := sessionWithLog(t, b, reentrant.WithName("billing 7"))
		assert.Regexp(t, `^billing-7\.[a-z2-7]{16}$`, s.ID())
		unnamed := newSession(t, b)
		assert.Regexp(t, `^`+regexp.QuoteMeta(backend.ProcessName())+`\.[a-z2-7]{16}$`, unnamed.ID())
		assert.NotEqual(t, unnamed.ID(), newSession(t, b).ID())

		require.NoError(t, s.NewLock("x").Lock(owner(t, "ann")))
		st, err := unnamed.NewLock("x").Inspect(t.Context())
		require.NoError(t, err)
		assert.Equal(t, s.ID(), st.Session)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorContains(t, unnamed.NewLock("x").Lock(ctx), "held by owner ~ann of session billing-7.")
		assert.NoError(t, failure(unnamed.NewLock("x").ForceUnlock(t.Context())))
		<-s.NewLock("x").Lost(owner(t, "ann"))
		assert.Len(t, lines("session=billing-7."), 1)
		assert.ErrorIs(t, s.NewLock("x").Unlock(owner(t, "ann")), reentrant.ErrLost)
	})
}

// Inspect says since when a lock is held, however long its lease and whatever the clocks of the processes say.
func TestInspectSaysSinceWhenALockIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		b.SetSkew(time.Hour) // the server's clock is not this process's
		s, other := newSession(t, b), newSession(t, b)
		l := s.NewLock("x")
		st, err := l.Inspect(t.Context())
		require.NoError(t, err)
		assert.Zero(t, st.Since)
		require.NoError(t, l.Lock(t.Context()))
		begun := time.Now()
		time.Sleep(time.Minute)
		require.NoError(t, l.Lock(t.Context()))
		states, err := other.InspectAll(t.Context(), "x", "free")
		require.NoError(t, err)
		assert.WithinDuration(t, begun, states[0].Since, time.Millisecond)
		assert.Zero(t, states[1].Since)
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, l.Unlock(t.Context()))
	})
}

// The names of a deadlock cannot change a terminal.
func TestADeadlockIsPrintedSafely(t *testing.T) {
	err := &reentrant.DeadlockError{Cycle: []reentrant.Blocked{{Session: "a", Owner: "~\x1b[2J", Lock: "\x1b"}, {Session: "\n", Owner: "7", Lock: "y"}}}
	assert.Equal(t, `deadlock: owner "~\x1b[2J" of session a waits for "\x1b", which owner 7 of session "\n" holds`+
		`; owner 7 of session "\n" waits for "y", which owner "~\x1b[2J" of session a holds`, err.Error())
}
