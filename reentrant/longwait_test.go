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

// A queueing is two sessions. The first has an observer, and a log of its warnings.
type queueing struct {
	s, other *reentrant.Session
	d        *diary
	log      *notebook
}

func newQueueing(t *testing.T, opts ...reentrant.Option) *queueing {
	b, q := memory.New(), &queueing{d: &diary{}, log: &notebook{}}
	q.other = newSession(t, b)
	time.Sleep(time.Hour) // tokens count from the opening of the backend
	q.s = newSession(t, b, append(opts, logged(q.log))...)
	return q
}

// warnings returns the log's lines about long waits.
func (q *queueing) warnings() (lines []string) {
	synctest.Wait()
	for line := range strings.Lines(q.log.String()) {
		if strings.Contains(line, `level=WARN msg="waiting long for a lock"`) {
			lines = append(lines, line)
		}
	}
	return lines
}

// A what is a lock, a side or permits: something that calls can take, wait for, and give up.
type what struct {
	take, give func(s *reentrant.Session, ctx context.Context) error
	mode       string
}

var (
	anyLock = what{
		func(s *reentrant.Session, ctx context.Context) error { return s.NewLock("x").Lock(ctx) },
		func(s *reentrant.Session, ctx context.Context) error { return s.NewLock("x").Unlock(ctx) }, "",
	}
	aWriter = what{
		func(s *reentrant.Session, ctx context.Context) error { return s.NewRWLock("x").Lock(ctx) },
		func(s *reentrant.Session, ctx context.Context) error { return s.NewRWLock("x").Unlock(ctx) }, "mode=write ",
	}
	aReader = what{
		func(s *reentrant.Session, ctx context.Context) error { return s.NewRWLock("x").RLock(ctx) },
		func(s *reentrant.Session, ctx context.Context) error { return s.NewRWLock("x").RUnlock(ctx) }, "mode=read ",
	}
	twoPermits = what{
		func(s *reentrant.Session, ctx context.Context) error { return s.NewSemaphore("x", 3).Acquire(ctx, 2) },
		func(s *reentrant.Session, ctx context.Context) error { return s.NewSemaphore("x", 3).Release(ctx, 2) }, "mode=permits permits=2 ",
	}
)

// Each wait that takes longer than a lease gives one warning, which names the holder.
func TestEveryLongWaitIsAWarning(t *testing.T) {
	for name, c := range map[string]struct {
		held, waited what
		local        string // what the warning says, after the holder's session, about a holder in this process
		remote       string // what the warning says about a holder in another process
	}{
		"lock":                {anyLock, anyLock, ` holder_note="migration 42" held_since=\S+`, ` holder_note="migration 42" held_since=\S+ waiting_sessions=1`},
		"writer after reader": {aReader, aWriter, ` holder_note="migration 42"`, ` holder_note="migration 42" held_since=\S+ waiting_sessions=1`},
		"reader after writer": {aWriter, aReader, ` holder_note="migration 42" held_since=\S+`, ` holder_note="migration 42" held_since=\S+ waiting_sessions=1`},
		"writer after writer": {aWriter, aWriter, ` holder_note="migration 42" held_since=\S+`, ` holder_note="migration 42" held_since=\S+ waiting_sessions=1`},
		"permits":             {twoPermits, twoPermits, ` holder_note="migration 42"`, ` holder_note="migration 42" held_since=\S+ waiting_sessions=1`},
	} {
		for _, where := range []string{"own process", "another process"} {
			t.Run(name+"/"+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := newQueueing(t)
					holder, says := q.s, c.local
					if where == "another process" {
						holder, says = q.other, c.remote
					}
					if name != "permits" && (where == "own process" || name == "lock") {
						says = " holder=~ann holder_session=" + holder.ID() + says
					} else {
						says = " holder_session=" + holder.ID() + says
					}
					says += " session=" + q.s.ID()
					require.NoError(t, c.held.take(holder, reentrant.WithNote(owner(t, "ann"), "migration 42")))
					waited := make(chan error)
					go func() { waited <- c.waited.take(q.s, owner(t, "bob")) }()
					time.Sleep(reentrant.DefaultLease - time.Millisecond)
					assert.Empty(t, q.warnings(), "not yet")
					time.Sleep(time.Minute)
					require.NoError(t, c.held.give(holder, owner(t, "ann")))
					require.NoError(t, <-waited)
					require.NoError(t, c.waited.give(q.s, owner(t, "bob")))
					lines := q.warnings()
					require.Len(t, lines, 1, "%s", q.log)
					assert.Regexp(t, ` lock=x `+c.waited.mode+`owner=~bob wait=1\ds`+says+"\n$|"+` lock=x `+c.waited.mode+`owner=~bob wait=1\d\.\d+s`+says+"\n$", lines[0])
				})
			})
		}
	}
}

// An observer knows since when owners of its own session have held a side or permits.
func TestALongWaitSaysSinceWhenAnObservedHolderHolds(t *testing.T) {
	for name, held := range map[string]what{"lock": anyLock, "write": aWriter, "read": aReader, "permits": twoPermits} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &diary{}
				s := newSession(t, memory.New(), reentrant.WithObserver(d))
				since := time.Now()
				require.NoError(t, held.take(s, owner(t, "ann")))
				time.Sleep(time.Minute)
				waited, asked := make(chan error), held
				if name == "read" {
					asked = aWriter
				}
				go func() { waited <- asked.take(s, owner(t, "bob")) }()
				time.Sleep(time.Minute)
				require.NoError(t, held.give(s, owner(t, "ann")))
				require.NoError(t, <-waited)
				require.NoError(t, asked.give(s, owner(t, "bob")))
				var long []reentrant.Event
				for _, e := range d.take() {
					if e.Kind == reentrant.EventWaitingLong {
						long = append(long, e)
					}
				}
				require.Len(t, long, 1)
				assert.Equal(t, reentrant.DefaultLease, long[0].Wait)
				assert.Equal(t, "~bob", long[0].Owner.String())
				require.NoError(t, long[0].Err)
				require.Len(t, long[0].Holders, 1)
				assert.Equal(t, "~ann", long[0].Holders[0].Owner)
				assert.Equal(t, s.ID(), long[0].Holders[0].Session)
				assert.Equal(t, since, long[0].Holders[0].Since)
			})
		})
	}
}

// A call that waits first in this process's queue and then at its head for the server gives one warning.
func TestAWaitIsReportedOnceWhereverItTakesPlace(t *testing.T) {
	for holder, after := range map[string]time.Duration{"carl": reentrant.DefaultLease / 2, "ann": 2 * reentrant.DefaultLease} {
		t.Run("held by "+holder, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueueing(t)
				require.NoError(t, anyLock.take(q.s, owner(t, "ann")))
				waited, other := make(chan error), make(chan error)
				go func() { waited <- anyLock.take(q.s, owner(t, "bob")) }()
				go func() { other <- anyLock.take(q.other, owner(t, "carl")) }()
				time.Sleep(after)
				_, err := q.other.NewLock("x").ForceUnlock(t.Context())
				require.NoError(t, err)
				require.NoError(t, <-other)
				time.Sleep(time.Minute)
				require.ErrorIs(t, anyLock.give(q.s, owner(t, "ann")), reentrant.ErrLost)
				lines := q.warnings()
				require.Len(t, lines, 1)
				assert.Contains(t, lines[0], "owner=~bob")
				assert.Contains(t, lines[0], "holder=~"+holder)
				require.NoError(t, anyLock.give(q.other, owner(t, "carl")))
				require.NoError(t, <-waited)
				require.NoError(t, anyLock.give(q.s, owner(t, "bob")))
				assert.Len(t, q.warnings(), 1)
			})
		})
	}
}

// The server is asked for the holder only once, however many callers wait for a name.
func TestManyLongWaitsAskOnce(t *testing.T) {
	for name, held := range map[string]what{"lock": anyLock, "write": aWriter, "permits": twoPermits} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const waiters = 20
				b, log := memory.New(), &notebook{}
				other := newSession(t, b)
				commands := func(s *reentrant.Session) uint64 {
					require.NoError(t, held.take(other, owner(t, "ann")))
					ctx, cancel := context.WithCancel(t.Context())
					for n := range waiters {
						go func() { _ = held.take(s, reentrant.WithOwner(ctx, string(rune('a'+n)))) }()
					}
					time.Sleep(reentrant.DefaultLease + reentrant.DefaultHeartbeat)
					synctest.Wait()
					n := s.Stats().Commands
					cancel()
					synctest.Wait()
					require.NoError(t, held.give(other, owner(t, "ann")))
					return n
				}
				reported, quiet := commands(newSession(t, b, logged(log))), commands(newSession(t, b))
				assert.Equal(t, waiters, strings.Count(log.String(), `msg="waiting long for a lock"`))
				assert.LessOrEqual(t, reported, quiet+3, "at most two looks, one for the head and one for the others, and one more heartbeat because of jitter")
			})
		})
	}
}

// Without an observer and a log, a session never asks for the holder of what it has itself.
func TestAWaitThatIsNotReportedCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		require.NoError(t, anyLock.take(s, owner(t, "ann")))
		m := s.NewSemaphore("pool", 1)
		require.NoError(t, m.Acquire(t.Context(), 1))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { _ = m.Acquire(ctx, 1) }()
		time.Sleep(time.Second)
		require.Error(t, anyLock.take(s, reentrant.WithOwner(ctx, "bob")))
		assert.Zero(t, b.Count(memory.Inspect))
		require.NoError(t, anyLock.give(s, owner(t, "ann")))
		require.NoError(t, m.Release(t.Context(), 1))
	})
}

// The wait for the lock at the end of an Await can be a long wait, too.
func TestALongWayBackFromAConditionIsReported(t *testing.T) {
	for name, held := range map[string]what{"lock": anyLock, "write": aWriter} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueueing(t)
				c := q.s.NewLock("x").NewCondition("c")
				if name == "write" {
					c = q.s.NewRWLock("x").NewCondition("c")
				}
				require.NoError(t, held.take(q.s, owner(t, "bob")))
				back := make(chan error)
				go func() {
					_, err := c.Await(owner(t, "bob")), error(nil)
					back <- err
				}()
				synctest.Wait()
				require.NoError(t, held.take(q.s, owner(t, "ann")))
				require.NoError(t, c.Signal(owner(t, "ann")))
				time.Sleep(time.Minute)
				require.NoError(t, held.give(q.s, owner(t, "ann")))
				require.NoError(t, <-back)
				require.NoError(t, held.give(q.s, owner(t, "bob")))
				lines := q.warnings()
				require.Len(t, lines, 1, "%s", q.log)
				assert.Contains(t, lines[0], "owner=~bob")
				assert.Contains(t, lines[0], "holder=~ann")
			})
		})
	}
}

// If the reason of a wait is no owner of this process, but a server that does not reply, the warning says so.
func TestALongWaitForASilentServerIsReportedAsSuch(t *testing.T) {
	for name, held := range map[string]what{"lock": anyLock, "write": aWriter, "permits": twoPermits} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, d := memory.New(), &diary{}
				s := newSession(t, b, reentrant.WithObserver(d))
				b.SetFault(func(memory.Op) memory.Verdict { return memory.Lose })
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for _, owner := range []string{"a", "b"} {
					go func() { _ = held.take(s, reentrant.WithOwner(ctx, owner)) }()
				}
				time.Sleep(30 * time.Second)
				events := d.take()
				long := 0
				for _, e := range events {
					if e.Kind == reentrant.EventWaitingLong {
						long++
						assert.ErrorIs(t, e.Err, reentrant.ErrUnavailable)
						assert.Empty(t, e.Holders)
					}
				}
				assert.Equal(t, 2, long)
				<-ctx.Done()
				b.SetFault(nil)
			})
		})
	}
}

// If a goroutine waits for the Do that has started it, the warning says so.
func TestALongWaitForTheCallersOwnDoIsReportedAsSuch(t *testing.T) {
	type do func(s *reentrant.Session, ctx context.Context, fn func(context.Context) error) error
	for name, c := range map[string]struct {
		outer do
		inner what
	}{
		"lock": {func(s *reentrant.Session, ctx context.Context, fn func(context.Context) error) error {
			return s.NewLock("x").Do(ctx, fn)
		}, anyLock},
		"locks": {func(s *reentrant.Session, ctx context.Context, fn func(context.Context) error) error {
			return reentrant.NewMultiLock(s.NewLock("w"), s.NewLock("x")).Do(ctx, fn)
		}, anyLock},
		"write": {func(s *reentrant.Session, ctx context.Context, fn func(context.Context) error) error {
			return s.NewRWLock("x").Do(ctx, fn)
		}, aReader},
		"read": {func(s *reentrant.Session, ctx context.Context, fn func(context.Context) error) error {
			return s.NewRWLock("x").RDo(ctx, fn)
		}, aWriter},
		"permits": {func(s *reentrant.Session, ctx context.Context, fn func(context.Context) error) error {
			return s.NewSemaphore("x", 3).Do(ctx, 2, fn)
		}, twoPermits},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueueing(t)
				inner := make(chan error)
				wait := func(ctx context.Context) {
					ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
					defer cancel()
					inner <- c.inner.take(q.s, ctx)
				}
				err := c.outer(q.s, t.Context(), func(ctx context.Context) error {
					return q.s.NewLock("another").Do(ctx, func(ctx context.Context) error {
						go wait(ctx)
						return <-inner
					})
				})
				require.ErrorIs(t, err, context.DeadlineExceeded)
				lines := q.warnings()
				require.Len(t, lines, 1)
				assert.Contains(t, lines[0], `hint="the call is made with the context of a Do that has the lock`)

				require.NoError(t, c.outer(q.s, t.Context(), func(ctx context.Context) error {
					go wait(t.Context())
					require.Error(t, <-inner)
					return nil
				}))
				lines = q.warnings()
				require.Len(t, lines, 2)
				assert.NotContains(t, lines[1], "hint=", "another owner waits")
			})
		})
	}
}

// The session asks the server for the holder. The reply takes a while, and meanwhile the caller gets the lock.
func TestALongWaitDoesNotNameTheCallerItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		log := &notebook{}
		holder, s := newSession(t, b), newSession(t, b, logged(log))
		require.NoError(t, holder.NewLock("x").Lock(owner(t, "holder")))
		b.SetFault(func(op memory.Op) memory.Verdict {
			if op.Verb == memory.Inspect {
				time.AfterFunc(100*time.Millisecond, func() { assert.NoError(t, holder.NewLock("x").Unlock(owner(t, "holder"))) })
				return memory.Delay(time.Second)
			}
			return memory.Pass
		})
		me := owner(t, "me")
		require.NoError(t, s.NewLock("x").Lock(me))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Contains(t, log.String(), "waiting long")
		assert.NotContains(t, log.String(), "holder=~me")
		require.NoError(t, s.NewLock("x").Unlock(me))
	})
}

// For a second the session uses what it has found out about holders. By then a caller that held the lock may wait for it.
func TestALongWaitOfAShortLeaseDoesNotNameTheCallerItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &notebook{}
		s := newSession(t, memory.New(), logged(log), reentrant.WithLease(200*time.Millisecond), reentrant.WithHeartbeat(20*time.Millisecond), reentrant.WithObserver(&diary{}))
		l := s.NewRWLock("x")
		me, other := owner(t, "me"), owner(t, "other")
		require.NoError(t, l.Lock(me))
		done := make(chan error, 2)
		go func() { done <- l.Lock(other) }()
		time.Sleep(250 * time.Millisecond) // the session has found out that the owner me holds the lock
		require.NoError(t, l.Unlock(me))
		require.NoError(t, <-done)
		go func() { done <- l.Lock(me) }()
		time.Sleep(250 * time.Millisecond)
		require.NoError(t, l.Unlock(other))
		require.NoError(t, <-done)
		require.NoError(t, l.Unlock(me))
		synctest.Wait()
		assert.Equal(t, 2, strings.Count(log.String(), "waiting long"))
		assert.Equal(t, 1, strings.Count(log.String(), "holder=~me"), "as the holder for the other: %s", log)
	})
}

// The head of the queue asks for the holder before it reports its wait. The server does not reply to that question. The call
// ends with its context all the same, whether the head asks at that time or has not asked yet.
func TestTheReportOfALongWaitDelaysNoEnd(t *testing.T) {
	for _, limit := range []time.Duration{reentrant.DefaultLease, reentrant.DefaultLease + 500*time.Millisecond, reentrant.DefaultLease + time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New()
			a, c := newSession(t, b, logged(&notebook{})), newSession(t, b)
			unlock := lockFor(t, t.Context(), c.NewLock("x"))
			b.SetFault(func(op memory.Op) memory.Verdict {
				if op.Verb == memory.Inspect {
					return memory.Delay(time.Minute)
				}
				return memory.Pass
			})
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			begun := time.Now()
			require.ErrorIs(t, a.NewLock("x").Lock(ctx), context.DeadlineExceeded)
			assert.LessOrEqual(t, time.Since(begun), limit+20*time.Millisecond, "as long as a call asks for whom it waited in vain")
			begun = time.Now()
			ok, err := a.NewLock("x").TryLockFor(t.Context(), limit)
			assert.False(t, ok)
			assert.NoError(t, err)
			assert.Equal(t, limit, time.Since(begun))
			unlock()
		})
	}
}
