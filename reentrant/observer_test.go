package reentrant_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// A diary is an Observer that keeps all events.
type diary struct {
	mu     sync.Mutex
	events []reentrant.Event
	keys   []any
}

type diaryKey struct{}

func (d *diary) Observe(ctx context.Context, e reentrant.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e.At = time.Time{}
	d.events = append(d.events, e)
	d.keys = append(d.keys, ctx.Value(diaryKey{}))
}

// take returns the events since it was last called, in a bubble.
func (d *diary) take() []reentrant.Event {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	events := d.events
	d.events, d.keys = nil, nil
	return events
}

func TestAnObserverGetsAnEventOfEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		s := newSession(t, memory.New(), reentrant.WithObserver(d))
		l := s.NewLock("x")
		ctx := context.WithValue(reentrant.WithOwner(t.Context(), "a"), diaryKey{}, "a's")
		a, b := reentrant.CurrentOwner(ctx), reentrant.WithOwner(t.Context(), "b")
		require.NoError(t, l.Lock(ctx))
		require.NoError(t, l.Lock(ctx))
		synctest.Wait()
		assert.Equal(t, []any{"a's", "a's"}, d.keys)
		assert.Equal(t, []reentrant.Event{
			{Kind: reentrant.EventAcquired, Lock: "x", Owner: a, Token: 1},
			{Kind: reentrant.EventReentered, Lock: "x", Owner: a, Token: 1},
		}, d.take())

		ok, err := l.TryLockFor(b, time.Second)
		require.NoError(t, err)
		require.False(t, ok)
		assert.Equal(t, []reentrant.Event{
			{Kind: reentrant.EventFailed, Lock: "x", Owner: reentrant.CurrentOwner(b), Wait: time.Second},
		}, d.take())

		go func() { _ = l.Lock(b) }()
		synctest.Wait()
		time.Sleep(2 * time.Second)
		require.NoError(t, l.Unlock(ctx))
		assert.Empty(t, d.take(), "one hold is left")
		require.NoError(t, l.Unlock(ctx))
		synctest.Wait()
		events := d.take()
		require.Len(t, events, 2)
		assert.Contains(t, events, reentrant.Event{Kind: reentrant.EventReleased, Lock: "x", Owner: a, Token: 1,
			Held: 3 * time.Second, HandedOff: true})
		require.NoError(t, l.Unlock(b))
	})
}

func TestAnObserverGetsAnEventOfEachFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		b := memory.New()
		s := newSession(t, b, reentrant.WithObserver(d), reentrant.WithLease(3*time.Second))
		other := newSession(t, b, reentrant.WithLease(3*time.Second), reentrant.WithObserver(d))
		l := s.NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		d.take()
		b.SetFault(memory.Script(memory.Renew, memory.Lose, memory.Lose))
		time.Sleep(2 * time.Second)
		assert.Equal(t, []reentrant.EventKind{reentrant.EventRenewalFailing, reentrant.EventRenewalRecovered}, kinds(d.take()))

		go func() { _ = other.NewLock("x").Lock(reentrant.WithOwner(t.Context(), "o")) }()
		time.Sleep(4 * time.Second)
		long := d.take()
		require.Equal(t, []reentrant.EventKind{reentrant.EventWaitingLong}, kinds(long))
		assert.Equal(t, "~o", long[0].Owner.String())

		b.SetFault(memory.Script(memory.Renew, lose(100)...))
		<-l.Lost(t.Context())
		synctest.Wait()
		lost := d.take()
		require.Equal(t, reentrant.EventLost, lost[len(lost)-1].Kind)
		require.ErrorIs(t, lost[len(lost)-1].Err, reentrant.ErrLost)
		assert.Greater(t, lost[len(lost)-1].Held, 6*time.Second)
		time.Sleep(time.Second)
		require.NoError(t, other.NewLock("x").Unlock(reentrant.WithOwner(t.Context(), "o")))
	})
}

func kinds(events []reentrant.Event) (kinds []reentrant.EventKind) {
	for _, e := range events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func TestTheLogHasTheObserversEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		handler := slog.NewTextHandler(&out, &slog.HandlerOptions{
			Level: slog.LevelDebug,
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		})
		s, err := reentrant.NewSession(memory.New(), reentrant.WithLogger(slog.New(handler)))
		require.NoError(t, err)
		ctx, l := reentrant.WithOwner(t.Context(), "a"), s.NewLock("x")
		require.NoError(t, l.Lock(ctx))
		synctest.Wait()
		time.Sleep(time.Second)
		require.NoError(t, l.Unlock(ctx))
		require.NoError(t, s.Close(t.Context()))
		assert.Equal(t, "level=DEBUG msg=\"lock acquired\" lock=x owner=~a token=1 session="+s.ID()+"\n"+
			"level=DEBUG msg=\"lock released\" lock=x owner=~a token=1 held=1s session="+s.ID()+"\n", out.String())
	})
}

func TestEventKindsHaveNames(t *testing.T) {
	assert.Equal(t, "lock lost", reentrant.EventLost.String())
	assert.Equal(t, "EventKind(0)", reentrant.EventKind(0).String())
	assert.Equal(t, "EventKind(99)", reentrant.EventKind(99).String())
}

func TestAnObserverSeesTheErrorOfAFailedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		s := newSession(t, memory.New(), reentrant.WithObserver(d))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := s.NewLock("x").Lock(ctx)
		require.ErrorIs(t, err, context.Canceled)
		events := d.take()
		require.Len(t, events, 1)
		assert.True(t, errors.Is(events[0].Err, context.Canceled))
	})
}

// A hung is a log handler that does not return until the test releases it.
type hung struct {
	slog.Handler
	released chan struct{}
	mu       sync.Mutex
	wrote    []slog.Record
}

func (h *hung) Enabled(context.Context, slog.Level) bool { return true }

func (h *hung) Handle(_ context.Context, r slog.Record) error {
	<-h.released
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrote = append(h.wrote, r)
	return nil
}

// A log that hangs delays nothing. Later it gets all records in order, with the times of the events.
func TestALogThatHangsDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hung{Handler: slog.DiscardHandler, released: make(chan struct{})}
		b := memory.New()
		s, err := reentrant.NewSession(b, reentrant.WithLogger(slog.New(h)))
		require.NoError(t, err)
		l, y, other := s.NewLock("x"), s.NewLock("y"), newSession(t, b).NewLock("x")
		var times []time.Time
		for range 10 {
			times = append(times, time.Now())
			require.NoError(t, y.Lock(t.Context()))
			time.Sleep(time.Second)
			times = append(times, time.Now())
			require.NoError(t, y.Unlock(t.Context()))
		}
		require.NoError(t, other.Lock(t.Context()))
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, l.Lock(short))
		require.NoError(t, other.Unlock(t.Context()))
		short, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, l.Lock(short), "what the first try had left was released")
		require.NoError(t, l.Unlock(t.Context()))
		for range 1000 {
			require.NoError(t, l.Lock(t.Context()))
			require.NoError(t, l.Unlock(t.Context()))
		}
		require.NoError(t, s.Close(t.Context()), "the call returns although the log is not written")
		close(h.released)
		synctest.Wait()
		require.Len(t, h.wrote, 1001, "the record that hangs, and as many as may wait")
		for i, at := range times {
			assert.Equal(t, at, h.wrote[i].Time)
		}
		dropped := ""
		h.wrote[1].Attrs(func(a slog.Attr) bool {
			if a.Key == "records_dropped" {
				dropped = a.Value.String()
			}
			return true
		})
		assert.NotEmpty(t, dropped)
	})
}

// However often the server is asked, the log has one line when the server stops serving a lock and one when it serves
// it again.
func TestAnOutageIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, buf := memory.New(), &bytes.Buffer{}
		s := newSession(t, b, reentrant.WithLogger(slog.New(slog.NewTextHandler(buf, nil))))
		for _, name := range []string{"x", "y"} {
			b.SetFault(memory.Script(memory.Acquire, memory.Lose, memory.LoseReply, memory.Lose, memory.Lose))
			require.NoError(t, s.NewLock(name).Lock(owner(t, name)))
		}
		b.SetFault(memory.Script(memory.Acquire, memory.Lose))
		_, err := s.NewLock("w").TryLock(t.Context())
		require.Error(t, err, "for a caller that does not wait, only the error says it, and not the log")
		b.SetFault(nil)
		for _, name := range []string{"x", "y"} {
			assert.NoError(t, s.NewLock(name).Unlock(owner(t, name)))
		}
		synctest.Wait()
		lines := strings.Split(strings.TrimSpace(buf.String()), "\n")
		require.Len(t, lines, 4)
		for i, name := range []string{"x", "y"} {
			assert.Contains(t, lines[2*i], `level=WARN msg="the server does not serve a lock; trying again" lock=`+name)
			assert.Contains(t, lines[2*i], "connection refused", "the words of the error")
			assert.Regexp(t, `level=INFO msg="the server serves a lock again" lock=`+name+` lasted=\S+ waiters=1 failures=4 session=`+s.ID()+`$`, lines[2*i+1])
		}
	})
}

// The log has one line at the beginning of an outage and one at its end for names that sessions share, too.
func TestAnOutageOfASharedNameIsLoggedOnce(t *testing.T) {
	for name, held := range map[string]what{"read": aReader, "write": aWriter, "permits": twoPermits} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, buf := memory.New(), &bytes.Buffer{}
				s := newSession(t, b, reentrant.WithLogger(slog.New(slog.NewTextHandler(buf, nil))))
				b.SetFault(func(memory.Op) memory.Verdict { return memory.Lose })
				ok, err := s.NewSemaphore("tried", 1).TryAcquire(t.Context(), 1)
				require.Error(t, err, "for a caller that does not wait, only the error says it, and not the log")
				require.False(t, ok)
				synctest.Wait()
				require.Empty(t, buf.String())
				b.SetFault(nil)
				time.Sleep(time.Minute)

				b.SetFault(memory.Script(memory.Share, memory.Lose, memory.LoseReply, memory.Lose, memory.Lose))
				require.NoError(t, held.take(s, t.Context()))
				require.NoError(t, held.give(s, t.Context()))
				synctest.Wait()
				lines := strings.Split(strings.TrimSpace(buf.String()), "\n")
				require.Len(t, lines, 2, "%s", buf)
				assert.Contains(t, lines[0], `level=WARN msg="the server does not serve a lock; trying again" lock=x`)
				assert.Regexp(t, `level=INFO msg="the server serves a lock again" lock=x lasted=\S+ waiters=1 failures=4 session=`+s.ID()+`$`, lines[1])
			})
		})
	}
}

// Twenty callers stop waiting one after the other while the server is away.
func TestManyWaitersInOneOutageAreTwoLines(t *testing.T) {
	for name, comesBack := range map[string]bool{"the server comes back": true, "it stays away": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, buf := memory.New(), &bytes.Buffer{}
				s := newSession(t, b, reentrant.WithLogger(slog.New(slog.NewTextHandler(buf, nil))), reentrant.WithLease(time.Minute))
				b.SetFault(func(memory.Op) memory.Verdict { return memory.Lose })
				for range 20 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					assert.Error(t, s.NewLock("x").Lock(ctx))
					cancel()
				}
				if comesBack {
					b.SetFault(nil)
					require.NoError(t, s.NewLock("x").Do(t.Context(), func(context.Context) error { return nil }))
				} else {
					time.Sleep(10 * time.Minute)
				}
				b.SetFault(nil)
				synctest.Wait()
				lines := strings.Split(strings.TrimSpace(buf.String()), "\n")
				require.Len(t, lines, 2, "%s", buf)
				assert.Contains(t, lines[0], "does not serve a lock")
				assert.Regexp(t, `lock=x lasted=\S+ waiters=20 failures=\d\d+ session=`, lines[1])
			})
		})
	}
}

// The event of a long wait says which owner holds the lock, since when, and how many sessions wait.
func TestALongWaitNamesTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, buf := memory.New(), &bytes.Buffer{}
		holder := newSession(t, b)
		time.Sleep(time.Hour) // tokens count from the opening of the backend
		require.NoError(t, holder.NewLock("x").Lock(reentrant.WithNote(owner(t, "ann"), "migration 42")))
		s := newSession(t, b, reentrant.WithLogger(slog.New(slog.NewTextHandler(buf, nil))))
		waited := make(chan error)
		go func() { waited <- s.NewLock("x").Lock(owner(t, "bob")) }()
		time.Sleep(time.Minute)
		require.NoError(t, holder.NewLock("x").Unlock(owner(t, "ann")))
		require.NoError(t, <-waited)
		require.NoError(t, s.NewLock("x").Unlock(owner(t, "bob")))
		synctest.Wait()
		assert.Regexp(t, `^\S+ level=WARN msg="waiting long for a lock" lock=x owner=~bob wait=\S+ holder=~ann holder_session=`+holder.ID()+
			` holder_note="migration 42" held_since=2000-01-01T01:00:00.000Z waiting_sessions=1 session=`+s.ID()+`\n$`, buf.String())
	})
}
