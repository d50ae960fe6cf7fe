package reentrant_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// everyMode has the options of all modes in which a session can use locks.
var everyMode = map[string][]reentrant.Option{
	"registered": nil,
	"cohort":     {reentrant.WithCohort()},
	"alone":      {reentrant.WithLinger(time.Millisecond)},
	"linger":     {reentrant.WithCohort(), reentrant.WithLinger(time.Millisecond), reentrant.WithTurn(2, 0)},
}

// A watcher counts the holders of each lock according to the events.
type watcher struct {
	holders map[string]int
	strange []string
	seen    atomic.Int64 // number of events of locks taken and released
}

func (w *watcher) Observe(_ context.Context, e reentrant.Event) {
	switch e.Kind {
	case reentrant.EventAcquired:
		w.holders[e.Lock]++
	case reentrant.EventReleased, reentrant.EventLost:
		w.holders[e.Lock]--
	}
	if e.Kind == reentrant.EventAcquired || e.Kind == reentrant.EventReleased {
		defer w.seen.Add(1)
	}
	if n := w.holders[e.Lock]; n < 0 || n > 1 {
		w.strange = append(w.strange, fmt.Sprintf("%v %q by %v: %d holders", e.Kind, e.Lock, e.Owner, n))
	}
	if e.Owner == (reentrant.Owner{}) {
		return // the event belongs to no call
	}
	if name, _, _ := strings.Cut(strings.TrimPrefix(e.Owner.String(), "~"), " "); name != e.Lock {
		w.strange = append(w.strange, fmt.Sprintf("%v %q by %v, in a call about %q", e.Kind, e.Lock, e.Owner, name))
	}
}

// According to the events a lock never has two holders, and each event names its lock.
func TestTheEventsOfALockHaveAnOrder(t *testing.T) {
	for name, mode := range everyMode {
		t.Run(name, func(t *testing.T) {
			w := &watcher{holders: map[string]int{}}
			s, err := reentrant.NewSession(memory.New(), append(mode, reentrant.WithObserver(w), patient)...)
			require.NoError(t, err)
			for round := range int64(6) { // the watcher sees these events before the next round, or there would be too many to keep
				useLocks(t, s, 250)
				all := 2 * 12 * 250 * (round + 1)
				require.Eventually(t, func() bool { return w.seen.Load() == all }, time.Minute, time.Millisecond)
			}
			require.NoError(t, s.Close(t.Context()))
			require.Zero(t, s.Stats().Dropped)
			assert.Empty(t, w.strange)
			for lock, n := range w.holders {
				assert.Zero(t, n, lock)
			}
		})
	}
}

// useLocks makes twelve goroutines acquire and release four locks, the given number of times each.
func useLocks(t *testing.T, s *reentrant.Session, times int) {
	var wg sync.WaitGroup
	for n := range 12 {
		lock := fmt.Sprint("lock", n%4)
		ctx := reentrant.WithOwner(t.Context(), fmt.Sprint(lock, " ", n))
		wg.Go(func() {
			l := s.NewLock(lock)
			for i := range times {
				if !assert.NoError(t, l.Lock(ctx)) || !assert.NoError(t, l.Unlock(ctx)) {
					return
				}
				if i%100 == 0 {
					time.Sleep(time.Millisecond) // until an idle lock is released
				}
			}
		})
	}
	wg.Wait()
}

// observe is an Observer.
type observe func(e reentrant.Event)

func (o observe) Observe(_ context.Context, e reentrant.Event) { o(e) }

// An observer that panics is called for the next event nevertheless, and the log reports the panic once.
func TestAnObserverThatPanicsChangesNothing(t *testing.T) {
	for name, mode := range everyMode {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				calls := 0
				s, err := reentrant.NewSession(memory.New(), append(mode, reentrant.WithLogger(slog.New(slog.NewTextHandler(&out, nil))),
					reentrant.WithObserver(observe(func(reentrant.Event) { calls++; panic("no") })))...)
				require.NoError(t, err)
				l := s.NewLock("x")
				for range 3 {
					for range 2 {
						require.NoError(t, l.Lock(t.Context()))
					}
					for range 2 {
						require.NoError(t, l.Unlock(t.Context()))
					}
				}
				require.NoError(t, s.Close(t.Context()))
				assert.Equal(t, 9, calls)
				assert.Equal(t, 1, strings.Count(out.String(), "observer panicked"), out.String())
			})
		})
	}
}

// An observer that blocks delays no call, no loss and no other lock. The events that the observer misses are counted, and the
// log reports them once.
func TestAnObserverThatBlocksDelaysNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		released, seen := make(chan struct{}), 0
		b := memory.New()
		s, err := reentrant.NewSession(b, reentrant.WithLogger(slog.New(slog.NewTextHandler(&out, nil))),
			reentrant.WithObserver(observe(func(reentrant.Event) { <-released; seen++ })))
		require.NoError(t, err)
		l, m := s.NewLock("x"), s.NewLock("y")
		begun := time.Now()
		require.NoError(t, l.Lock(t.Context()))
		for range 6_000 {
			require.NoError(t, m.Lock(t.Context()))
			require.NoError(t, m.Unlock(t.Context()))
		}
		assert.Zero(t, time.Since(begun))
		until, err := l.TrustedUntil(t.Context())
		require.NoError(t, err)
		b.SetFault(memory.Script(memory.Renew, lose(1000)...))
		<-l.Lost(t.Context())
		assert.Equal(t, until, time.Now(), "the loss is reported on time")
		require.ErrorIs(t, l.Unlock(t.Context()), reentrant.ErrLost)
		require.NoError(t, s.Close(t.Context()), "the call succeeds although events wait")
		close(released)
		synctest.Wait()
		assert.Equal(t, 10_001, seen, "the event that blocked, and as many as may wait")
		assert.Equal(t, uint64(1+12_000+2-10_001), s.Stats().Dropped)
		assert.Equal(t, 1, strings.Count(out.String(), "observer is too slow"))
	})
}

// The time of an event is when it happened, not when the observer was called.
func TestAnEventSaysWhenItHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		s := newSession(t, memory.New(), reentrant.WithObserver(observe(func(e reentrant.Event) {
			time.Sleep(time.Minute)
			at = append(at, e.At)
		})))
		begun := time.Now()
		require.NoError(t, s.NewLock("x").Lock(t.Context()))
		time.Sleep(time.Second)
		require.NoError(t, s.NewLock("x").Unlock(t.Context()))
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, []time.Time{begun, begun.Add(time.Second)}, at)
	})
}

// If an owner returns from a wait to a lock that another of its goroutines has taken meanwhile, that is no new hold.
func TestAReturnToALockThatItsOwnerHasIsAReentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		l, ctx := newSession(t, memory.New(), reentrant.WithObserver(d)).NewLock("x"), owner(t, "a")
		require.NoError(t, l.Lock(ctx))
		waited := make(chan error)
		go func() {
			_, err := l.NewCondition("c").AwaitFor(ctx, time.Second)
			waited <- err
		}()
		synctest.Wait()
		require.NoError(t, l.Lock(ctx))
		require.NoError(t, <-waited)
		require.NoError(t, l.Unlock(ctx))
		require.NoError(t, l.Unlock(ctx))
		assert.Equal(t, []reentrant.EventKind{reentrant.EventAcquired, reentrant.EventReleased, reentrant.EventAcquired,
			reentrant.EventReentered, reentrant.EventReleased}, kinds(d.take()))
	})
}
