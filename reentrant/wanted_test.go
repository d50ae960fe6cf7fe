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

// unasked reports whether a channel is still open when all other goroutines are blocked.
func unasked(c <-chan struct{}) bool {
	synctest.Wait()
	return stillOpen(c)
}

// comes waits until a channel is closed, for at most an hour of virtual time.
func comes(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Hour):
		t.Error("the holder is not notified")
	}
}

// waitsFor makes an owner wait for a lock for a while, in the background.
func waitsFor(t *testing.T, l *reentrant.Lock, name string) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(owner(t, name))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if l.Lock(ctx) == nil {
			_ = l.Unlock(ctx)
		}
	}()
	synctest.Wait()
	return func() { cancel(); <-done }
}

// heldByA returns handles of a lock in two sessions. The owner "a" of the first session holds the lock.
func heldByA(t *testing.T, opts ...reentrant.Option) (b *memory.Backend, l, m *reentrant.Lock, a context.Context) {
	t.Helper()
	b = memory.New()
	l, m, a = newSession(t, b, opts...).NewLock("x"), newSession(t, b, opts...).NewLock("x"), owner(t, "a")
	require.NoError(t, l.Lock(a))
	return b, l, m, a
}

func TestWantedIsClosedWhenAnotherOwnerWaits(t *testing.T) {
	modes := map[string][]reentrant.Option{
		"registered": nil, "cohort": {reentrant.WithCohort()},
		"linger": {reentrant.WithCohort(), reentrant.WithLinger(time.Minute)},
	}
	for mode, opts := range modes {
		for _, where := range []string{"here", "in another process"} {
			for _, asked := range []string{"before", "after"} {
				t.Run(mode+" "+where+", asked "+asked, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						_, l, m, a := heldByA(t, opts...)
						other := m
						if where == "here" {
							other = l
						}
						var wanted <-chan struct{}
						if asked == "before" {
							wanted = l.Wanted(a)
							require.True(t, unasked(wanted))
						}
						leave := waitsFor(t, other, "b")
						if asked == "after" {
							wanted = l.Wanted(a)
						}
						begun := time.Now()
						assert.False(t, unasked(wanted))
						assert.Zero(t, time.Since(begun), "no heartbeat is needed")
						assert.True(t, l.IsHeldByCurrentOwner(a), "there is no other message")
						leave()
						require.NoError(t, l.Unlock(a))
					})
				})
			}
		}
	}
}

func TestWantedIsClosedForAWaiterWithATimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, m, a := heldByA(t)
		wanted := l.Wanted(a)
		ok, err := m.TryLockFor(owner(t, "b"), time.Second)
		require.NoError(t, err)
		require.False(t, ok)
		assert.False(t, unasked(wanted))
	})
}

func TestWantedStaysOpenForTheOwnerItselfAndForTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, m, a := heldByA(t)
		wanted := l.Wanted(a)
		require.True(t, unasked(wanted))
		require.NoError(t, l.Lock(a))
		ok, err := l.TryLockFor(a, time.Second)
		require.NoError(t, err)
		require.True(t, ok)
		for _, other := range []*reentrant.Lock{l, m} {
			ok, err := other.TryLock(owner(t, "b"))
			require.NoError(t, err)
			require.False(t, ok)
		}
		time.Sleep(time.Minute)
		assert.True(t, unasked(wanted))
		assert.Equal(t, wanted, l.Wanted(a), "one channel for a hold")
		for range 3 {
			require.NoError(t, l.Unlock(a))
		}
		assert.True(t, unasked(wanted), "the hold has ended")
		assert.False(t, unasked(l.Wanted(a)), "it holds nothing")
	})
}

// Nothing changes for a hold whose owner has not called Wanted.
func TestWantedCostsNothingUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l, m, a := heldByA(t)
		leave := waitsFor(t, m, "b")
		time.Sleep(5 * time.Second)
		assert.Zero(t, b.Count(memory.Watch))
		assert.Zero(t, b.Count(memory.Push))

		require.False(t, unasked(l.Wanted(a)))
		assert.Equal(t, 1, b.Count(memory.Watch))
		time.Sleep(2 * time.Second)
		assert.Positive(t, b.Count(memory.Push), "now the waiter's heartbeats are reported")
		leave()
		synctest.Wait() // the waiter's place is withdrawn, so the lock is free at once, and no session is granted it
		require.NoError(t, l.Unlock(a))

		require.NoError(t, l.Lock(a))
		pushed := b.Count(memory.Push)
		leave = waitsFor(t, m, "b")
		time.Sleep(5 * time.Second)
		assert.Equal(t, 1, b.Count(memory.Watch), "the next hold did not ask")
		assert.Equal(t, pushed, b.Count(memory.Push))
		leave()
	})
}

// The waiter's first command notifies the holder: that takes one round trip, half of it to Redis and half to the
// holder.
func TestWantedTakesOneRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const way = 50 * time.Millisecond
		b, l, m, a := heldByA(t)
		b.SetFault(func(op memory.Op) memory.Verdict {
			if op.Verb == memory.Push {
				return memory.Verdict{Delay: way}
			}
			return memory.Verdict{Delay: way, Late: way}
		})
		wanted := l.Wanted(a)
		time.Sleep(time.Second)
		begun := time.Now()
		defer waitsFor(t, m, "b")()
		comes(t, wanted)
		assert.Equal(t, 2*way, time.Since(begun))
	})
}

// Each heartbeat of the waiter repeats a message that was lost.
func TestWantedSurvivesLostMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l, m, a := heldByA(t)
		wanted := l.Wanted(a)
		require.True(t, unasked(wanted))
		b.SetFault(memory.Script(memory.Push, memory.Lose, memory.Lose))
		defer waitsFor(t, m, "b")()
		require.True(t, unasked(wanted), "the message is lost")
		begun := time.Now()
		comes(t, wanted)
		assert.LessOrEqual(t, time.Since(begun), 2*reentrant.DefaultHeartbeat)
	})
}

// The request to report waiters is repeated until there is a reply, and again after the channel was lost.
func TestWantedIsAskedUntilThereIsAReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l, m, a := heldByA(t)
		b.SetFault(memory.Script(memory.Watch, memory.Lose, memory.LoseReply, memory.Lose))
		defer waitsFor(t, m, "b")()
		begun := time.Now()
		comes(t, l.Wanted(a))
		assert.LessOrEqual(t, time.Since(begun), 3*reentrant.DefaultLease)
	})
}

func TestWantedIsAskedAgainWhenTheChannelIsReopened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l, m, a := heldByA(t)
		wanted := l.Wanted(a)
		require.True(t, unasked(wanted))
		b.SetFault(silent())
		defer waitsFor(t, m, "b")()
		require.True(t, unasked(wanted), "the message is lost")
		b.Restart()
		synctest.Wait()
		assert.False(t, unasked(wanted))
	})
}

func TestWantedEndsWithItsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l, m, a := heldByA(t)
		b.SetFault(memory.Script(memory.Watch, memory.Lose, memory.Lose, memory.Lose))
		wanted := l.Wanted(a)
		synctest.Wait()
		require.NoError(t, l.Unlock(a))
		time.Sleep(time.Minute)
		assert.Zero(t, b.Count(memory.Watch), "nothing is asked for a hold that has ended")
		defer waitsFor(t, m, "b")()
		assert.True(t, unasked(wanted))
	})
}

// If a hold is resumed by its own session, waiters are still reported.
func TestWantedOutlastsAResumeInItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l, m := newSession(t, b).NewLock("x"), newSession(t, b).NewLock("x")
		ctx := order(t)
		require.NoError(t, l.Lock(ctx))
		wanted := l.Wanted(ctx)
		require.True(t, unasked(wanted))
		require.NoError(t, l.Resume(ctx))
		require.True(t, unasked(wanted))
		defer waitsFor(t, m, "b")()
		assert.False(t, unasked(wanted))
		require.NoError(t, l.Unlock(ctx))
	})
}

// A signalled owner waits for the lock, too, so it is reported.
func TestWantedIsClosedForAnOwnerThatWasSignalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l := newSession(t, b).NewLock("x")
		a, c := owner(t, "a"), owner(t, "c")
		done := make(chan struct{})
		go func() {
			defer close(done)
			assert.NoError(t, l.Lock(c))
			assert.NoError(t, l.NewCondition("ready").Await(c))
			assert.NoError(t, l.Unlock(c))
		}()
		synctest.Wait()
		require.NoError(t, l.Lock(a))
		wanted := l.Wanted(a)
		require.True(t, unasked(wanted))
		require.NoError(t, l.NewCondition("ready").Signal(a))
		assert.False(t, unasked(wanted))
		require.NoError(t, l.Unlock(a))
		<-done
	})
}

// With the context of Do, Wanted is about the hold of Do's owner.
func TestWantedInsideDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l, m := newSession(t, b).NewLock("x"), newSession(t, b).NewLock("x")
		require.NoError(t, l.Do(t.Context(), func(ctx context.Context) error {
			asked := make(chan (<-chan struct{}))
			go func() { asked <- l.Wanted(ctx) }()
			wanted := <-asked
			assert.True(t, unasked(wanted))
			defer waitsFor(t, m, "b")()
			assert.False(t, unasked(wanted))
			return nil
		}))
	})
}
