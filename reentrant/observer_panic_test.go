package reentrant_test

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// A faulty is a log handler that fails at some records, and keeps the others.
type faulty struct {
	fail func(r slog.Record) // called for a record that is to be lost: panics, or ends the goroutine

	mu      sync.Mutex
	kept    []string
	dropped int64 // the sum of records_dropped
}

func (f *faulty) Enabled(context.Context, slog.Level) bool { return true }
func (f *faulty) WithAttrs([]slog.Attr) slog.Handler       { return f }
func (f *faulty) WithGroup(string) slog.Handler            { return f }

func (f *faulty) Handle(_ context.Context, r slog.Record) error {
	f.fail(r)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = append(f.kept, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "records_dropped" {
			f.dropped += a.Value.Int64()
		}
		return true
	})
	return nil
}

// brokenEnds are the ways in which a user's code can fail to return.
var brokenEnds = map[string]func(){
	"panic":  func() { panic("broken") },
	"nil":    func() { panic(nil) },
	"Goexit": runtime.Goexit, // as t.FailNow does
}

// takeAll acquires and releases a lock, a side and a permit.
func takeAll(t *testing.T, s *reentrant.Session) {
	t.Helper()
	l, rw, m := s.NewLock("lock"), s.NewRWLock("book"), s.NewSemaphore("pool", 2)
	ctx := t.Context()
	for _, step := range []func() error{
		func() error { return l.Lock(ctx) }, func() error { return l.Unlock(ctx) },
		func() error { return rw.RLock(ctx) }, func() error { return rw.RUnlock(ctx) },
		func() error { return m.Acquire(ctx, 1) }, func() error { return m.Release(ctx, 1) },
	} {
		require.NoError(t, step())
	}
}

// If a log handler fails at a record, that record is lost. The next record has the number of lost records.
func TestALogHandlerThatFailsCostsItsLine(t *testing.T) {
	for name, fail := range brokenEnds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &faulty{fail: func(r slog.Record) {
					if r.Message == "lock acquired" {
						fail()
					}
				}}
				s, err := reentrant.NewSession(memory.New(), reentrant.WithLogger(slog.New(h)))
				require.NoError(t, err)
				takeAll(t, s)
				begun := time.Now()
				require.NoError(t, s.Close(t.Context()))
				assert.Zero(t, time.Since(begun), "no line is left to wait for")
				assert.Equal(t, []string{"lock released", "lock released", "lock released"}, h.kept)
				assert.Equal(t, int64(3), h.dropped)
			})
		})
	}
}

// A log handler that fails at every record changes nothing else.
func TestALogHandlerThatAlwaysFailsChangesNothing(t *testing.T) {
	for name, fail := range brokenEnds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &diary{}
				h := &faulty{fail: func(slog.Record) { fail() }}
				s, err := reentrant.NewSession(memory.New(), reentrant.WithLogger(slog.New(h)), reentrant.WithObserver(d))
				require.NoError(t, err)
				takeAll(t, s)
				assert.Len(t, d.take(), 6)
				require.NoError(t, s.Close(t.Context()))
				assert.Empty(t, h.kept)
			})
		})
	}
}

// disabling is a handler that panics when it is asked whether a level is enabled.
type disabling struct{ slog.Handler }

func (disabling) Enabled(context.Context, slog.Level) bool { panic("broken") }

func TestALogHandlerThatFailsAtALevelDoesNotTakeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, err := reentrant.NewSession(b, reentrant.WithLogger(slog.New(disabling{slog.DiscardHandler})))
		require.NoError(t, err)
		takeAll(t, s)
		require.NoError(t, newSession(t, b).NewLock("lock").Lock(owner(t, "holder")))
		ok, err := s.NewLock("lock").TryLockFor(owner(t, "waiter"), time.Minute) // the session asks for the holder after a while
		require.NoError(t, err)
		require.False(t, ok)
		require.NoError(t, s.Close(t.Context()))
	})
}

// If an observer fails at an event, it loses only that event, whatever kind of lock the event is about.
func TestAnObserverThatFailsCostsItsEvent(t *testing.T) {
	for name, fail := range brokenEnds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen []reentrant.Mode
				s, err := reentrant.NewSession(memory.New(), reentrant.WithObserver(observe(func(e reentrant.Event) {
					if e.Kind == reentrant.EventAcquired {
						fail()
					}
					seen = append(seen, e.Mode)
				})))
				require.NoError(t, err)
				takeAll(t, s)
				begun := time.Now()
				require.NoError(t, s.Close(t.Context()))
				assert.Zero(t, time.Since(begun), "no event is left to wait for")
				assert.Equal(t, []reentrant.Mode{reentrant.ModeLock, reentrant.ModeRead, reentrant.ModePermits}, seen)
			})
		})
	}
}
