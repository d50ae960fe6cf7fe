package reentrant_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// A part is what a caller may have of a shared name. Its methods take the context of the caller's owner.
type part struct {
	take, leave func(context.Context) error
	try         func(context.Context) (bool, error)
	wait        func(context.Context, time.Duration) (bool, error)
	wanted      func(context.Context) <-chan struct{}
}

// parts are what a caller may have of a read-write lock, and of a semaphore of three permits.
type parts struct{ read, write, one, two, three part }

func partsOf(s *reentrant.Session) parts {
	l, m := s.NewRWLock("x"), s.NewSemaphore("permits", 3)
	permits := func(n int) part {
		return part{
			func(ctx context.Context) error { return m.Acquire(ctx, n) },
			func(ctx context.Context) error { return m.Release(ctx, n) },
			func(ctx context.Context) (bool, error) { return m.TryAcquire(ctx, n) },
			func(ctx context.Context, d time.Duration) (bool, error) { return m.TryAcquireFor(ctx, n, d) },
			func(context.Context) <-chan struct{} { return m.Wanted() },
		}
	}
	return parts{
		part{l.RLock, l.RUnlock, l.TryRLock, l.TryRLockFor, l.Wanted}, part{l.Lock, l.Unlock, l.TryLock, l.TryLockFor, l.Wanted},
		permits(1), permits(2), permits(3),
	}
}

// wantedPairs are what one owner has, and what another waits for.
var wantedPairs = map[string]struct{ has, waitsFor func(parts) part }{
	"read side, by a writer":    {func(p parts) part { return p.read }, func(p parts) part { return p.write }},
	"write side, by a writer":   {func(p parts) part { return p.write }, func(p parts) part { return p.write }},
	"write side, by a reader":   {func(p parts) part { return p.write }, func(p parts) part { return p.read }},
	"three permits, by one":     {func(p parts) part { return p.three }, func(p parts) part { return p.one }},
	"one permit, by three":      {func(p parts) part { return p.one }, func(p parts) part { return p.three }},
	"two of three, by two more": {func(p parts) part { return p.two }, func(p parts) part { return p.two }},
}

// forWantedPairs runs a test for what an owner has, and for what another, here or in another process, wants.
func forWantedPairs(t *testing.T, test func(t *testing.T, b *memory.Backend, has, other part)) {
	for name, pair := range wantedPairs {
		for _, where := range []string{"here", "in another process"} {
			t.Run(name+", "+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := memory.New()
					p, q := partsOf(newSession(t, b)), partsOf(newSession(t, b))
					if where == "here" {
						q = p
					}
					test(t, b, pair.has(p), pair.waitsFor(q))
				})
			})
		}
	}
}

// waitsForPart makes an owner wait for a part for a while, in the background.
func waitsForPart(t *testing.T, p part, name string) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(owner(t, name))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if p.take(ctx) == nil {
			_ = p.leave(ctx)
		}
	}()
	synctest.Wait()
	return func() { cancel(); <-done; synctest.Wait() }
}

// comesSoon fails the test unless a channel is closed within twice the grace of a semaphore, which is less than a heartbeat.
func comesSoon(t *testing.T, c <-chan struct{}) {
	t.Helper()
	begun := time.Now()
	comes(t, c)
	assert.LessOrEqual(t, time.Since(begun), 2*backend.ShareGrace, "no heartbeat is needed")
}

func TestWantedOfASideAndOfPermitsIsClosedWhenAnotherWaits(t *testing.T) {
	for _, asked := range []string{"before", "after"} {
		t.Run("asked "+asked, func(t *testing.T) {
			forWantedPairs(t, func(t *testing.T, _ *memory.Backend, has, other part) {
				a := owner(t, "a")
				require.NoError(t, has.take(a))
				var wanted <-chan struct{}
				if asked == "before" {
					wanted = has.wanted(a)
					require.True(t, unasked(wanted))
				}
				leave := waitsForPart(t, other, "b")
				if asked == "after" {
					wanted = has.wanted(a)
				}
				comesSoon(t, wanted)
				leave()
				require.NoError(t, has.leave(a))
			})
		})
	}
}

func TestWantedOfASideAndOfPermitsIsClosedForAWaitWithATimeLimit(t *testing.T) {
	forWantedPairs(t, func(t *testing.T, _ *memory.Backend, has, other part) {
		a := owner(t, "a")
		require.NoError(t, has.take(a))
		wanted := has.wanted(a)
		ok, err := other.wait(owner(t, "b"), time.Second)
		require.NoError(t, err)
		require.False(t, ok)
		assert.False(t, unasked(wanted))
		require.NoError(t, has.leave(a))
	})
}

// The channel of Wanted is not closed for callers that only try, nor after the hold has ended. The next hold has a channel of
// its own.
func TestWantedOfASideAndOfPermitsStaysOpen(t *testing.T) {
	forWantedPairs(t, func(t *testing.T, _ *memory.Backend, has, other part) {
		a, b := owner(t, "a"), owner(t, "b")
		assert.False(t, unasked(has.wanted(a)), "it holds nothing")
		require.NoError(t, has.take(a))
		wanted := has.wanted(a)
		for range 3 {
			ok, err := other.try(b)
			require.NoError(t, err)
			require.False(t, ok)
			assert.Equal(t, wanted, has.wanted(a), "one channel for a hold")
		}
		time.Sleep(time.Minute)
		assert.True(t, unasked(wanted), "only tries")
		require.NoError(t, has.leave(a))
		synctest.Wait()
		assert.False(t, unasked(has.wanted(a)), "it holds nothing any more")

		require.NoError(t, has.take(a))
		next := has.wanted(a)
		defer waitsForPart(t, other, "b")()
		comesSoon(t, next)
		assert.True(t, unasked(wanted), "that hold has ended")
		require.NoError(t, has.leave(a))
	})
}

// A waiter that has left closes no channel of a later hold.
func TestWantedOfASideAndOfPermitsForgetsWaitersThatHaveLeft(t *testing.T) {
	forWantedPairs(t, func(t *testing.T, _ *memory.Backend, has, other part) {
		a := owner(t, "a")
		require.NoError(t, has.take(a))
		leave := waitsForPart(t, other, "b")
		comesSoon(t, has.wanted(a))
		leave()
		require.NoError(t, has.leave(a))
		require.NoError(t, has.take(a))
		wanted := has.wanted(a)
		time.Sleep(time.Minute)
		assert.True(t, unasked(wanted))
		require.NoError(t, has.leave(a))
	})
}

// A call of Wanted sends nothing, since the session gets the message about a waiter in any case. Without the call nothing changes.
func TestWantedOfASideAndOfPermitsSendsNothing(t *testing.T) {
	forWantedPairs(t, func(t *testing.T, b *memory.Backend, has, other part) {
		a := owner(t, "a")
		require.NoError(t, has.take(a))
		synctest.Wait()
		sent := b.Commands()
		wanted := has.wanted(a)
		require.True(t, unasked(wanted))
		assert.Equal(t, sent, b.Commands())
		leave := waitsForPart(t, other, "b")
		comesSoon(t, wanted)
		leave()
		require.NoError(t, has.leave(a))
	})
}

// Each heartbeat of the waiter repeats a message that was lost.
func TestWantedOfASideAndOfPermitsSurvivesLostMessages(t *testing.T) {
	for name, pair := range wantedPairs {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				has, other := pair.has(partsOf(newSession(t, b))), pair.waitsFor(partsOf(newSession(t, b)))
				a := owner(t, "a")
				require.NoError(t, has.take(a))
				wanted := has.wanted(a)
				b.SetFault(silent())
				defer waitsForPart(t, other, "b")()
				time.Sleep(2 * backend.ShareGrace)
				require.True(t, unasked(wanted), "the messages are lost")
				b.SetFault(nil)
				begun := time.Now()
				comes(t, wanted)
				assert.LessOrEqual(t, time.Since(begun), reentrant.DefaultHeartbeat)
				require.NoError(t, has.leave(a))
			})
		})
	}
}

// A waiter of a third process counts from the beginning of the hold.
func TestWantedOfASideAndOfPermitsKnowsThoseBehindTheHold(t *testing.T) {
	for name, pair := range wantedPairs {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				first, has, other := partsOf(newSession(t, b)), pair.has(partsOf(newSession(t, b))), pair.waitsFor(partsOf(newSession(t, b)))
				f, a := owner(t, "f"), owner(t, "a")
				require.NoError(t, first.write.take(f))
				require.NoError(t, first.three.take(f))
				got := make(chan error)
				go func() { got <- has.take(a) }()
				synctest.Wait()
				defer waitsForPart(t, other, "b")()
				require.NoError(t, first.write.leave(f))
				require.NoError(t, first.three.leave(f))
				require.NoError(t, <-got)
				synctest.Wait()
				comesSoon(t, has.wanted(a))
				require.NoError(t, has.leave(a))
			})
		})
	}
}

// Readers do not wait for each other. A writer that goes on as a reader keeps its channel.
func TestWantedOfAReaderIsAboutWritersOnly(t *testing.T) {
	for _, where := range []string{"here", "in another process"} {
		for _, how := range []string{"reader", "writer that goes on as a reader"} {
			t.Run(how+", "+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := memory.New()
					p, q := partsOf(newSession(t, b)), partsOf(newSession(t, b))
					if where == "here" {
						q = p
					}
					a := owner(t, "a")
					var wanted <-chan struct{}
					if how == "reader" {
						require.NoError(t, p.read.take(a))
						wanted = p.read.wanted(a)
					} else {
						require.NoError(t, p.write.take(a))
						require.NoError(t, p.read.take(a))
						wanted = p.read.wanted(a)
						require.NoError(t, p.write.leave(a))
					}
					waitsForPart(t, q.read, "b")()
					time.Sleep(time.Minute)
					assert.True(t, unasked(wanted))
					assert.Equal(t, wanted, p.read.wanted(a))
					defer waitsForPart(t, q.write, "b")()
					assert.False(t, unasked(wanted))
					require.NoError(t, p.read.leave(a))
				})
			})
		}
	}
}

// Until the server has replied, the session of a writer that goes on as a reader is asked for what it no longer needs.
func TestWantedOfAReaderThatWasAWriterIsAboutWritersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		p, q, a := partsOf(newSession(t, b)), partsOf(newSession(t, b)), owner(t, "a")
		require.NoError(t, p.write.take(a))
		require.NoError(t, p.read.take(a))
		stop := waitsForPart(t, q.read, "b")
		b.SetFault(func(op memory.Op) memory.Verdict { return memory.Verdict{Delay: 50 * time.Millisecond} })
		left := make(chan error)
		go func() { left <- p.write.leave(a) }()
		synctest.Wait()
		assert.True(t, unasked(p.read.wanted(a)))
		require.NoError(t, <-left)
		stop()
		require.NoError(t, p.read.leave(a))
	})
}

// Each reader has a channel of its own, and the owner does not wait for itself.
func TestWantedOfASideIsTheOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := partsOf(newSession(t, memory.New()))
		a, c := owner(t, "a"), owner(t, "c")
		require.NoError(t, p.read.take(a))
		require.NoError(t, p.read.take(c))
		gone, wanted := p.read.wanted(a), p.read.wanted(c)
		require.NoError(t, p.read.take(c))
		require.NoError(t, p.read.leave(c))
		require.NoError(t, p.read.leave(a))
		defer waitsForPart(t, p.write, "b")()
		assert.False(t, unasked(wanted))
		assert.True(t, unasked(gone), "the hold has ended")
		assert.False(t, unasked(p.read.wanted(a)), "it holds nothing")
		require.NoError(t, p.read.leave(c))
	})
}

// Callers that wait only for the reply, or for permits that are free, are no waiters. Callers behind them may become waiters.
func TestWantedOfPermitsIsAboutPermitsThatAreNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		b.SetFault(func(op memory.Op) memory.Verdict { return memory.Verdict{Delay: 50 * time.Millisecond} })
		m := newSession(t, b).NewSemaphore("x", 5)
		require.NoError(t, m.Acquire(t.Context(), 1))
		wanted := m.Wanted()
		require.NoError(t, m.Acquire(t.Context(), 2))
		require.True(t, unasked(wanted), "they were free at the server")
		got := make(chan error)
		for _, n := range []int{2, 1} {
			go func() { got <- m.Acquire(t.Context(), n) }()
			synctest.Wait()
		}
		assert.True(t, stillOpen(wanted), "both would fit alone")
		require.NoError(t, <-got)
		assert.False(t, unasked(wanted), "the last one waits for a Release")
		require.NoError(t, m.Release(t.Context(), 1))
		require.NoError(t, <-got)
		assert.True(t, unasked(m.Wanted()), "no caller waits now")
		require.NoError(t, m.Release(t.Context(), 5))
		assert.False(t, unasked(m.Wanted()))
	})
}

// A session whose permits are all in use waits at the server for more. Its own callers can serve it too, by a Release.
func TestWantedOfPermitsIsClosedForACallerThatWaitsAtTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		m, other := newSession(t, b).NewSemaphore("x", 3), newSession(t, b).NewSemaphore("x", 3)
		require.NoError(t, other.Acquire(t.Context(), 2))
		require.NoError(t, m.Acquire(t.Context(), 1))
		wanted, theirs := m.Wanted(), other.Wanted()
		got := make(chan error)
		go func() { got <- m.Acquire(t.Context(), 1) }()
		comesSoon(t, wanted)
		comesSoon(t, theirs)
		require.NoError(t, other.Release(t.Context(), 1))
		require.NoError(t, <-got)
		require.NoError(t, m.Release(t.Context(), 2))
		require.NoError(t, other.Release(t.Context(), 1))
	})
}

// A caller that waits for permits of its own session, whatever other sessions give back, does not concern the other sessions.
func TestWantedOfPermitsIsNotClosedForACallerThatNoOtherSessionCanServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		m, other := newSession(t, b).NewSemaphore("x", 3), newSession(t, b).NewSemaphore("x", 3)
		require.NoError(t, m.Acquire(t.Context(), 1))
		require.NoError(t, other.Acquire(t.Context(), 2))
		wanted, theirs := m.Wanted(), other.Wanted()
		got := make(chan error)
		go func() { got <- other.Acquire(t.Context(), 2) }()
		comesSoon(t, theirs)
		time.Sleep(time.Minute)
		assert.True(t, stillOpen(wanted), "with the two in use it would have four")
		require.NoError(t, other.Release(t.Context(), 1))
		comesSoon(t, wanted)
		require.NoError(t, m.Release(t.Context(), 1))
		require.NoError(t, <-got)
		require.NoError(t, other.Release(t.Context(), 3))
	})
}

func TestWantedOfASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		m, other := newSession(t, b).NewSemaphore("x", 2), newSession(t, b).NewSemaphore("x", 2)
		assert.False(t, unasked(reentrant.Slot{}.Wanted()))
		slot, err := m.AcquireSlot(t.Context())
		require.NoError(t, err)
		gone, err := m.AcquireSlot(t.Context())
		require.NoError(t, err)
		wanted, released := slot.Wanted(), gone.Wanted()
		ok, err := other.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		require.False(t, ok)
		require.NoError(t, gone.Release(t.Context()))
		require.True(t, unasked(wanted))
		got := make(chan error)
		go func() { got <- other.Acquire(t.Context(), 2) }()
		comesSoon(t, wanted)
		assert.True(t, unasked(released), "it was released before")
		assert.False(t, unasked(gone.Wanted()))
		require.NoError(t, slot.Release(t.Context()))
		require.NoError(t, <-got)
		require.NoError(t, other.Release(t.Context(), 2))
	})
}

// A loss ends the hold, and closes no channel of Wanted.
func TestWantedOfASideAndOfPermitsEndsWithALoss(t *testing.T) {
	for name, pair := range wantedPairs {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				s := newSession(t, b)
				has, other := pair.has(partsOf(s)), pair.waitsFor(partsOf(newSession(t, b)))
				a := owner(t, "a")
				require.NoError(t, has.take(a))
				wanted := has.wanted(a)
				b.Partition(s.ID(), true)
				time.Sleep(2 * reentrant.DefaultLease)
				assert.False(t, unasked(has.wanted(a)), "it holds nothing")
				b.Partition(s.ID(), false)
				synctest.Wait()
				waitsForPart(t, other, "b")()
				assert.True(t, unasked(wanted))
				require.ErrorIs(t, has.leave(a), reentrant.ErrLost)
			})
		})
	}
}

// A waiter counts as long as it waits, also after the session has given back a part: here a writer goes on as a reader, and
// lets in another reader that waited in this process.
func TestWantedOfASideKnowsAWaiterThatNeedsMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		p, q := partsOf(newSession(t, b)), partsOf(newSession(t, b))
		a, c := owner(t, "a"), owner(t, "c")
		require.NoError(t, p.write.take(a))
		got := make(chan error)
		go func() { got <- p.read.take(c) }()
		synctest.Wait()
		defer waitsForPart(t, q.write, "b")()
		require.NoError(t, p.read.take(a))
		require.NoError(t, p.write.leave(a))
		require.NoError(t, <-got)
		synctest.Wait()
		assert.False(t, unasked(p.read.wanted(c)), "it still waits")
		require.NoError(t, p.read.leave(a))
		require.NoError(t, p.read.leave(c))
	})
}

// A message about a waiter that overtakes the reply with the grant is not forgotten. A message about a try closes no channel.
func TestWantedOfASideKnowsAMessageThatOvertookTheGrant(t *testing.T) {
	for _, asks := range []string{"a waiter", "a try"} {
		t.Run(asks, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				p, q := partsOf(newSession(t, b)), partsOf(newSession(t, b))
				first := true
				b.SetFault(func(op memory.Op) memory.Verdict {
					switch {
					case op.Verb != memory.Share || op.Session != "A":
						return memory.Pass
					case first:
						first = false
						return memory.DelayReply(100 * time.Millisecond)
					}
					return memory.Delay(50 * time.Millisecond)
				})
				a, got := owner(t, "a"), make(chan error)
				go func() { got <- p.write.take(a) }()
				synctest.Wait()
				if asks == "a waiter" {
					defer waitsForPart(t, q.write, "b")()
				} else {
					tried := owner(t, "b")
					go func() {
						ok, err := q.write.try(tried)
						assert.NoError(t, err)
						assert.False(t, ok)
					}()
					synctest.Wait()
				}
				require.NoError(t, <-got)
				assert.Equal(t, asks == "a try", unasked(p.write.wanted(a)))
				time.Sleep(time.Second)
				require.NoError(t, p.write.leave(a))
			})
		})
	}
}
