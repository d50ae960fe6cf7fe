package reentrant_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/reentrant"
)

// A census counts the holders of each shared name, according to the events.
type census struct {
	limit  int // of permits
	inside map[resident]int
	wrong  []string
	ends   atomic.Int64 // how many releases of the semaphore "last" it has seen
}

// A resident is an owner on one side of a name. Permits have no owner.
type resident struct {
	name  string
	mode  reentrant.Mode
	owner reentrant.Owner
}

func (c *census) Observe(_ context.Context, e reentrant.Event) {
	r, n := resident{e.Lock, e.Mode, e.Owner}, 1
	if e.Mode == reentrant.ModePermits {
		r.owner, n = reentrant.Owner{}, e.Permits
	}
	switch e.Kind {
	case reentrant.EventAcquired:
		c.inside[r] += n
	case reentrant.EventReleased, reentrant.EventLost:
		c.inside[r] -= n
	default:
		return
	}
	if state := c.state(e.Lock); state != "" {
		c.wrong = append(c.wrong, fmt.Sprintf("%v of %v %v by %v: %s", e.Kind, e.Mode, e.Lock, e.Owner, state))
	}
	if c.inside[r] == 0 {
		delete(c.inside, r)
	}
	if e.Lock == "last" && e.Kind == reentrant.EventReleased {
		c.ends.Add(1)
	}
}

// state returns what is wrong with the residents of a name, "" if nothing is.
func (c *census) state(name string) string {
	var readers, writers, permits int
	for r, n := range c.inside {
		switch {
		case r.name != name:
		case r.mode == reentrant.ModePermits:
			permits = n
		case n < 0 || n > 1:
			return fmt.Sprintf("%v is inside %d times", r.owner, n)
		case r.mode == reentrant.ModeRead:
			readers += n
		case r.mode == reentrant.ModeWrite:
			writers += n
		}
	}
	if writers > 1 || writers == 1 && readers > 0 || permits < 0 || permits > c.limit {
		return fmt.Sprintf("%d writers, %d readers, %d permits", writers, readers, permits)
	}
	return ""
}

// According to the events a writer is never inside together with a reader, and never more permits are held than the
// semaphore has.
func TestTheEventsOfSharedNamesHaveAnOrder(t *testing.T) {
	c := &census{limit: 3, inside: map[resident]int{}}
	s, err := reentrant.NewSession(memory.New(), reentrant.WithObserver(c), patient)
	require.NoError(t, err)
	for range testsize.Of(40, 4) { // the watcher sees all events of this round before the next one, or there would be too many to keep
		useShared(t, s, 100)
		seen := s.Stats().Dropped // none
		require.Zero(t, seen)
		drained(t, s, c)
	}
	require.NoError(t, s.Close(t.Context()))
	require.Zero(t, s.Stats().Dropped)
	assert.Empty(t, c.wrong)
	assert.Empty(t, c.inside, "each Acquired has its Released")
}

// drained waits until the observer has seen all events so far: the last of them belongs to a call that drained makes. To
// count events is not enough, since some may still be under way.
func drained(t *testing.T, s *reentrant.Session, c *census) {
	m := s.NewSemaphore("last", 1)
	before := c.ends.Load()
	require.NoError(t, m.Acquire(t.Context(), 1))
	require.NoError(t, m.Release(t.Context(), 1))
	require.Eventually(t, func() bool { return c.ends.Load() > before && s.Stats().Held == 0 }, testsize.Patience(time.Minute), time.Millisecond)
}

// useShared makes goroutines use two read-write locks and a semaphore, each goroutine the given number of times. Two of the
// goroutines share an owner.
func useShared(t *testing.T, s *reentrant.Session, times int) {
	var wg sync.WaitGroup
	use := func(owner string, section func(ctx context.Context, i int) error) {
		ctx := t.Context()
		if owner != "" {
			ctx = reentrant.WithOwner(ctx, owner)
		}
		wg.Go(func() {
			for i := range times {
				if !assert.NoError(t, section(ctx, i)) {
					return
				}
			}
		})
	}
	none := func(context.Context) error { return nil }
	for n := range 4 {
		l, m := s.NewRWLock(fmt.Sprint("book", n%2)), s.NewSemaphore("pool", 3)
		use("", func(ctx context.Context, _ int) error { return l.Do(ctx, none) })
		use("", func(ctx context.Context, _ int) error { return l.RDo(ctx, none) })
		use("", func(ctx context.Context, i int) error { return m.Do(ctx, 1+i%2, none) })
		use("", func(ctx context.Context, _ int) error { return downgrade(ctx, l) })
		use("shared", func(ctx context.Context, _ int) error { return l.Do(ctx, none) })
		use("shared", func(ctx context.Context, _ int) error { return l.Do(ctx, none) })
		use("reader", func(ctx context.Context, _ int) error { return l.RDo(ctx, none) })
		use("reader", func(ctx context.Context, _ int) error { return l.RDo(ctx, none) })
	}
	wg.Wait()
}

// downgrade writes, and then goes on as a reader.
func downgrade(ctx context.Context, l *reentrant.RWLock) error {
	for _, step := range []func(context.Context) error{l.Lock, l.RLock, l.Unlock, l.RUnlock} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// steps calls one function after the other. Each takes a second.
func steps(t *testing.T, ctx context.Context, all ...func(context.Context) error) {
	t.Helper()
	for _, step := range all {
		require.NoError(t, step(ctx))
		time.Sleep(time.Second)
	}
}

// brief is the part of an event that these tests compare.
type brief struct {
	kind    reentrant.EventKind
	mode    reentrant.Mode
	permits int
	held    time.Duration
}

func briefs(events []reentrant.Event) (all []brief) {
	for _, e := range events {
		all = append(all, brief{e.Kind, e.Mode, e.Permits, e.Held})
	}
	return all
}

// According to the events an owner has a side once, and leaves it when its last hold of it has ended.
func TestTheEventsOfASideComeInPairs(t *testing.T) {
	const acquired, reentered, released = reentrant.EventAcquired, reentrant.EventReentered, reentrant.EventReleased
	const read, write = reentrant.ModeRead, reentrant.ModeWrite
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		l := newSession(t, memory.New(), reentrant.WithObserver(d)).NewRWLock("x")
		for name, ctx := range map[string]context.Context{"goroutine": t.Context(), "shared owner": owner(t, "a")} {
			steps(t, ctx, l.RLock, l.RLock, l.RUnlock, l.RUnlock)
			assert.Equal(t, []brief{{acquired, read, 0, 0}, {reentered, read, 0, 0}, {released, read, 0, 3 * time.Second}}, briefs(d.take()), name)

			steps(t, ctx, l.Lock, l.RLock, l.Lock, l.Unlock, l.RUnlock, l.Unlock)
			assert.Equal(t, []brief{{acquired, write, 0, 0}, {reentered, read, 0, 0}, {reentered, write, 0, 0}, {released, write, 0, 5 * time.Second}},
				briefs(d.take()), "%s: a writer reads", name)

			steps(t, ctx, l.Lock, l.RLock, l.Unlock, l.RUnlock)
			assert.Equal(t, []brief{{acquired, write, 0, 0}, {reentered, read, 0, 0}, {released, write, 0, 2 * time.Second},
				{acquired, read, 0, 0}, {released, read, 0, time.Second}}, briefs(d.take()), "%s: a writer goes on as a reader", name)
		}
	})
}

// Two goroutines of one owner wait for a side, and get it together.
func TestTwoGoroutinesOfAnOwnerAcquireOnce(t *testing.T) {
	for _, mode := range []reentrant.Mode{reentrant.ModeRead, reentrant.ModeWrite} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &diary{}
				l, ctx := newSession(t, memory.New(), reentrant.WithObserver(d)).NewRWLock("x"), owner(t, "both")
				lock, unlock := l.Lock, l.Unlock
				if mode == reentrant.ModeRead {
					lock, unlock = l.RLock, l.RUnlock
				}
				require.NoError(t, l.Lock(t.Context()))
				for range 2 {
					go func() { assert.NoError(t, lock(ctx)) }()
				}
				synctest.Wait()
				d.take()
				time.Sleep(time.Second)
				require.NoError(t, l.Unlock(t.Context()))
				events := d.take()
				assert.Equal(t, []brief{{reentrant.EventReleased, reentrant.ModeWrite, 0, time.Second}, {reentrant.EventAcquired, mode, 0, 0},
					{reentrant.EventReentered, mode, 0, 0}}, briefs(events))
				assert.Equal(t, time.Second, events[1].Wait)
				assert.Equal(t, time.Second, events[2].Wait)
				require.NoError(t, unlock(ctx))
				assert.Empty(t, d.take(), "the other is inside")
				require.NoError(t, unlock(ctx))
				assert.Equal(t, []reentrant.EventKind{reentrant.EventReleased}, kinds(d.take()))
			})
		})
	}
}

// The events of permits have their number, and for how long the caller had them.
func TestTheEventsOfPermitsHaveTheirNumber(t *testing.T) {
	const acquired, released, mode = reentrant.EventAcquired, reentrant.EventReleased, reentrant.ModePermits
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		m := newSession(t, memory.New(), reentrant.WithObserver(d)).NewSemaphore("x", 10)
		a, b, c := owner(t, "a"), owner(t, "b"), owner(t, "c")
		take := func(n int) func(context.Context) error {
			return func(ctx context.Context) error { return m.Acquire(ctx, n) }
		}
		give := func(n int) func(context.Context) error {
			return func(ctx context.Context) error { return m.Release(ctx, n) }
		}
		steps(t, a, take(2)) // from 0 s
		steps(t, b, take(3)) // from 1 s
		steps(t, b, take(1)) // from 2 s
		assert.Equal(t, []brief{{acquired, mode, 2, 0}, {acquired, mode, 3, 0}, {acquired, mode, 1, 0}}, briefs(d.take()))
		ok, err := m.TryAcquire(a, 5)
		require.NoError(t, err)
		require.False(t, ok)
		assert.Equal(t, []brief{{reentrant.EventFailed, mode, 5, 0}}, briefs(d.take()))
		steps(t, b, give(1)) // at 3 s: of the caller's own permits the youngest
		steps(t, a, give(1)) // at 4 s
		steps(t, c, give(3)) // at 5 s: the caller has none, so these are the oldest
		steps(t, b, give(1)) // at 6 s
		assert.Equal(t, []brief{{released, mode, 1, time.Second}, {released, mode, 1, 4 * time.Second}, {released, mode, 3, 5 * time.Second},
			{released, mode, 1, 5 * time.Second}}, briefs(d.take()))
		require.ErrorIs(t, m.Release(a, 1), reentrant.ErrNotHeld)
		assert.Empty(t, d.take())
	})
}

// What was lost counts as released at the loss, and no later event is about it.
func TestALossOfASharedNameIsADeparture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b := &diary{}, memory.New()
		s := newSession(t, b, reentrant.WithObserver(d))
		l, m := s.NewRWLock("book"), s.NewSemaphore("pool", 5)
		require.NoError(t, l.RLock(owner(t, "reader")))
		require.NoError(t, m.Acquire(t.Context(), 2))
		time.Sleep(time.Second)
		require.NoError(t, m.Acquire(t.Context(), 1))
		d.take()
		b.SetFault(func(memory.Op) memory.Verdict { return memory.Lose })
		<-m.Lost()
		time.Sleep(time.Minute)
		b.SetFault(nil)
		lost := map[reentrant.Mode]reentrant.Event{}
		for _, e := range d.take() {
			if e.Kind == reentrant.EventLost {
				lost[e.Mode] = e
			}
		}
		assert.Equal(t, 3, lost[reentrant.ModePermits].Permits)
		for _, mode := range []reentrant.Mode{reentrant.ModeRead, reentrant.ModePermits} {
			assert.Greater(t, lost[mode].Held, reentrant.DefaultLease/2, mode)
			assert.LessOrEqual(t, lost[mode].Held, 2*reentrant.DefaultLease, mode)
		}
		require.ErrorIs(t, l.RUnlock(owner(t, "reader")), reentrant.ErrLost)
		require.NoError(t, m.Acquire(t.Context(), 2))
		require.ErrorIs(t, m.Release(t.Context(), 4), reentrant.ErrLost, "of which three are lost")
		require.NoError(t, m.Release(t.Context(), 1))
		assert.Equal(t, []brief{{reentrant.EventAcquired, reentrant.ModePermits, 2, 0}, {reentrant.EventReleased, reentrant.ModePermits, 1, 0},
			{reentrant.EventReleased, reentrant.ModePermits, 1, 0}}, briefs(d.take()))
	})
}

// An owner that waits for a condition leaves the side and enters it again. Both events have the context of the call.
func TestAWaitForAConditionOfAWriterIsADeparture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		l := newSession(t, memory.New(), reentrant.WithObserver(d)).NewRWLock("x")
		ctx := context.WithValue(owner(t, "a"), diaryKey{}, "a's")
		steps(t, ctx, l.Lock, l.Lock, l.RLock)
		d.take()
		_, err := l.NewCondition("c").AwaitFor(ctx, time.Second)
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, []any{"a's", "a's"}, d.keys)
		assert.Equal(t, []brief{{reentrant.EventReleased, reentrant.ModeWrite, 0, 3 * time.Second}, {reentrant.EventAcquired, reentrant.ModeWrite, 0, 0}}, briefs(d.take()))
		steps(t, ctx, l.Unlock, l.Unlock)
		synctest.Wait()
		assert.Equal(t, []any{"a's", "a's"}, d.keys)
		assert.Equal(t, []brief{{reentrant.EventReleased, reentrant.ModeWrite, 0, time.Second}, {reentrant.EventAcquired, reentrant.ModeRead, 0, 0}}, briefs(d.take()))
		require.NoError(t, l.RUnlock(ctx))
	})
}
