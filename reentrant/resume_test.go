package reentrant_test

import (
	"context"
	"errors"
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

func TestResumeTakesUpAHoldWhereItStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		one, two := newSession(t, b), newSession(t, b)
		ctx := reentrant.WithPortableOwner(t.Context(), "order 7")
		l, m := one.NewLock("x"), two.NewLock("x")
		require.NoError(t, l.Lock(ctx))
		require.NoError(t, l.Lock(ctx))
		token, err := l.Token(ctx)
		require.NoError(t, err)
		lost := l.Lost(ctx)

		require.NoError(t, m.Resume(ctx))
		assert.Equal(t, 2, m.HoldCount(ctx))
		got, err := m.Token(ctx)
		require.NoError(t, err)
		assert.Equal(t, token, got)
		<-lost
		assert.ErrorIs(t, l.Unlock(ctx), reentrant.ErrLost)
		assert.ErrorIs(t, l.Unlock(ctx), reentrant.ErrLost)
		assert.ErrorIs(t, l.Unlock(ctx), reentrant.ErrNotHeld)

		time.Sleep(time.Minute) // from now on this session renews the hold
		require.NoError(t, m.Verify(ctx))
		require.NoError(t, m.Lock(ctx))
		for range 3 {
			require.NoError(t, m.Unlock(ctx))
		}
		free, err := m.IsLocked(ctx)
		require.NoError(t, err)
		assert.False(t, free)
		assert.ErrorIs(t, m.Resume(ctx), reentrant.ErrNotHeld)
	})
}

func TestResumeAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		ctx := reentrant.WithPortableOwner(t.Context(), "order 7")
		before := newSession(t, b)
		require.NoError(t, before.NewLock("x").Lock(ctx))
		b.Partition(before.ID(), true) // the process has ended
		time.Sleep(5 * time.Second)

		after := newSession(t, b)
		l := after.NewLock("x")
		ok, err := l.TryLock(ctx)
		require.NoError(t, err)
		require.False(t, ok, "the id alone does not open the lock: it must be resumed")
		require.NoError(t, l.Resume(ctx))
		time.Sleep(time.Minute)
		require.NoError(t, l.Unlock(ctx))
		b.Partition(before.ID(), false)
	})
}

// A process that stops leaves the holds of portable owners to another process, with their counts and tokens. It
// releases its other holds.
func TestCloseLeavesPortableHoldsToBeResumed(t *testing.T) {
	for name, options := range map[string][]reentrant.LockOption{"renewed": nil, "fixed": {reentrant.WithFixedLease(time.Minute)}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				ctx := reentrant.WithPortableOwner(t.Context(), "order 7")
				before, after := newSession(t, b, reentrant.WithPortableHoldsLeft()), newSession(t, b)
				l := before.NewLock("x", options...)
				require.NoError(t, l.Lock(ctx))
				require.NoError(t, l.Lock(ctx))
				token, err := l.Token(ctx)
				require.NoError(t, err)
				lost := l.Lost(ctx)
				require.NoError(t, before.Close(ended()), "nothing was given up")
				<-lost
				assert.ErrorIs(t, l.Unlock(ctx), reentrant.ErrLost)

				time.Sleep(reentrant.DefaultLease / 2)
				ok, err := after.NewLock("x").TryLock(owner(t, "another"))
				require.NoError(t, err)
				assert.False(t, ok, "the lock is held all the while")
				m := after.NewLock("x")
				require.NoError(t, m.Resume(ctx))
				assert.Equal(t, 2, m.HoldCount(ctx))
				got, err := m.Token(ctx)
				require.NoError(t, err)
				assert.Equal(t, token, got)
				require.NoError(t, m.Unlock(ctx))
				require.NoError(t, m.Unlock(ctx))
			})
		})
	}
}

// A hold that Close leaves was granted by a reply, and the message of the grant comes after the hold has ended in this
// process. The session must not take that message for the grant of an attempt that was given up.
func TestALateGrantDoesNotGiveBackWhatCloseHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		other, leaves := newSession(t, b), newSession(t, b, reentrant.WithPortableHoldsLeft())
		require.NoError(t, other.NewLock("x").Lock(owner(t, "o")))
		require.NoError(t, leaves.NewLock("own").Lock(owner(t, "o")))
		b.SetFault(func(op memory.Op) memory.Verdict {
			switch {
			case op.Session == "A" && op.Verb == memory.Release:
				return memory.Delay(50 * time.Millisecond) // so B is queued
			case op.Session == "B" && op.Verb == memory.Acquire && op.Try == 1:
				return memory.Verdict{Mute: true, Late: 100 * time.Millisecond}
			case op.Session == "B" && op.Verb == memory.Push:
				return memory.Delay(500 * time.Millisecond)
			case op.Session == "B" && op.Verb == memory.Release && op.Lock == "own":
				return memory.DelayReply(time.Second) // Close waits for this release, and the channel stays open
			}
			return memory.Pass
		})
		go func() { assert.NoError(t, other.NewLock("x").Unlock(owner(t, "o"))) }()
		require.NoError(t, leaves.NewLock("x").Lock(order(t)))
		require.ErrorIs(t, leaves.Close(ended()), context.Canceled, "the lock of the other owner is given up")
		assert.NoError(t, other.NewLock("x").Resume(order(t)))
	})
}

// Close leaves a hold while a call of the hold's owner is under way. The call ends after Close has left the hold.
func TestCloseLeavesTheHoldOfAnOwnerInTheMiddleOfACall(t *testing.T) {
	for name, c := range map[string]struct {
		verb memory.Verb
		here bool
		call func(ctx context.Context, l *reentrant.Lock) error
		err  error
	}{
		"taking it again":    {memory.Reenter, true, func(ctx context.Context, l *reentrant.Lock) error { return l.Lock(ctx) }, reentrant.ErrLost},
		"resuming it here":   {memory.Resume, true, func(ctx context.Context, l *reentrant.Lock) error { return l.Resume(ctx) }, reentrant.ErrLost},
		"resuming another's": {memory.Resume, false, func(ctx context.Context, l *reentrant.Lock) error { return l.Resume(ctx) }, reentrant.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				other, leaves := newSession(t, b), newSession(t, b, reentrant.WithPortableHoldsLeft())
				ctx, l := order(t), leaves.NewLock("x")
				holder := other
				if c.here {
					holder = leaves
				}
				require.NoError(t, holder.NewLock("x").Lock(ctx))
				b.SetFault(memory.Script(c.verb, memory.DelayReply(100*time.Millisecond)))
				called := make(chan error, 1)
				go func() { called <- c.call(ctx, l) }()
				synctest.Wait()
				_ = leaves.Close(ended()) // if Close gave nothing up, and left nothing, it returns the error of its context
				assert.ErrorIs(t, <-called, c.err)
				b.SetFault(nil)
				synctest.Wait()
				after := newSession(t, b).NewLock("x")
				require.NoError(t, after.Resume(ctx))
				assert.NoError(t, after.Unlock(ctx))
			})
		})
	}
}

// Close gives up a hold. A late copy of the attempt by which the hold was acquired arrives after another session has had the
// lock.
func TestALateCopyOfAnAttemptTakesNothingAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		closed, other := newSession(t, b), newSession(t, b)
		b.SetFault(memory.Script(memory.Acquire, memory.Verdict{Mute: true, Again: time.Second}))
		require.NoError(t, closed.NewLock("x").Lock(owner(t, "o")))
		require.ErrorIs(t, closed.Close(ended()), context.Canceled)
		l := other.NewLock("x")
		require.NoError(t, l.Lock(owner(t, "p")))
		require.NoError(t, l.Unlock(owner(t, "p")))
		time.Sleep(2 * time.Second)
		locked, err := l.IsLocked(t.Context())
		require.NoError(t, err)
		assert.False(t, locked)
	})
}

// After Close has left a hold, an owner of the same lock comes back from a condition, and finds the session closed.
func TestAnOwnerThatComesBackDoesNotGiveBackWhatCloseHasLeft(t *testing.T) {
	for name, resumes := range map[string]bool{"held": false, "resumed while Close left it": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				other, leaves := newSession(t, b), newSession(t, b, reentrant.WithPortableHoldsLeft())
				l, awaited, resumed := leaves.NewLock("x"), make(chan error, 1), make(chan error, 1)
				go func() {
					ctx := owner(t, "waiter")
					assert.NoError(t, l.Lock(ctx))
					awaited <- l.NewCondition("ready").Await(ctx)
				}()
				synctest.Wait()
				b.SetFault(func(op memory.Op) memory.Verdict {
					switch op.Verb {
					case memory.Resume:
						return memory.DelayReply(100 * time.Millisecond)
					case memory.Leave:
						return memory.DelayReply(200 * time.Millisecond)
					}
					return memory.Pass
				})
				if resumes {
					require.NoError(t, other.NewLock("x").Lock(order(t)))
					go func() { resumed <- l.Resume(order(t)) }()
					synctest.Wait()
				} else {
					require.NoError(t, l.Lock(order(t)))
					resumed <- reentrant.ErrClosed
				}
				_ = leaves.Close(ended()) // if Close gave nothing up, and left nothing, it returns the error of its context
				assert.ErrorIs(t, <-resumed, reentrant.ErrClosed)
				assert.ErrorIs(t, <-awaited, reentrant.ErrClosed)
				synctest.Wait()
				assert.NoError(t, other.NewLock("x").Resume(order(t)))
			})
		})
	}
}

func TestCloseGivesUpWhatCannotBeResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		portable := reentrant.WithPortableOwner(t.Context(), "order 7")
		leaves, gives := newSession(t, b, reentrant.WithPortableHoldsLeft()), newSession(t, b)
		require.NoError(t, leaves.NewLock("left").Lock(portable))
		require.NoError(t, leaves.NewLock("own").Lock(owner(t, "o")))
		require.NoError(t, gives.NewLock("given up").Lock(portable), "without the option")
		err := leaves.Close(ended())
		require.ErrorIs(t, err, context.Canceled)
		assert.ErrorContains(t, err, "1 hold given up")
		require.ErrorIs(t, gives.Close(ended()), context.Canceled)
		for name, want := range map[string]bool{"left": true, "own": false, "given up": false} {
			locked, err := newSession(t, b).NewLock(name).IsLocked(t.Context())
			require.NoError(t, err)
			assert.Equal(t, want, locked, name)
		}
		time.Sleep(reentrant.DefaultLease + time.Second)
		locked, err := newSession(t, b).NewLock("left").IsLocked(t.Context())
		require.NoError(t, err)
		assert.False(t, locked, "nothing renews it")
	})
}

// Resume comes before the owners of this session that wait for the end of the hold that it resumes.
func TestResumeDoesNotWaitBehindWaitersForItsHold(t *testing.T) {
	for _, fair := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New()
			one, two := newSession(t, b), newSession(t, b)
			ctx := reentrant.WithPortableOwner(t.Context(), "order 7")
			require.NoError(t, one.NewLock("x").Lock(ctx))
			l := two.NewLock("x", reentrant.WithFairness(fair))
			var order []string
			var wg sync.WaitGroup
			for _, name := range []string{"a", "b"} {
				wg.Go(func() {
					c := reentrant.WithOwner(t.Context(), name)
					assert.NoError(t, l.Lock(c))
					order = append(order, name)
					assert.NoError(t, l.Unlock(c))
				})
				synctest.Wait()
			}
			require.NoError(t, l.Resume(ctx))
			synctest.Wait()
			assert.Empty(t, order, "the lock is held")
			assert.Equal(t, 2, l.QueueLength())
			require.NoError(t, l.Unlock(ctx))
			wg.Wait()
			assert.Equal(t, []string{"a", "b"}, order)
			assert.Zero(t, reentrant.Entries(two))
		})
	}
}

func TestAHeadThatGaveWayToResumeCanBeCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		one, two := newSession(t, b), newSession(t, b)
		ctx := reentrant.WithPortableOwner(t.Context(), "order 7")
		require.NoError(t, one.NewLock("x").Lock(ctx))
		l := two.NewLock("x")
		waiting, cancel := context.WithCancel(reentrant.WithOwner(t.Context(), "a"))
		ended := make(chan error, 1)
		go func() { ended <- l.Lock(waiting) }()
		synctest.Wait()
		require.NoError(t, l.Resume(ctx))
		cancel()
		assert.ErrorIs(t, <-ended, context.Canceled)
		require.NoError(t, l.Unlock(ctx))
		assert.Zero(t, reentrant.Entries(two))
	})
}

// A resumed hold with a fixed lease keeps what is left of that lease, or is renewed from then on. The Lock that resumes the
// hold decides which.
func TestResumeGoesOnWithTheLeaseOfTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		ctx := reentrant.WithPortableOwner(t.Context(), "order 7")
		fixed, renewed := s.NewLock("x", reentrant.WithFixedLease(time.Minute)), s.NewLock("x")
		require.NoError(t, fixed.Lock(ctx))
		time.Sleep(30 * time.Second)
		lost := renewed.Lost(ctx)
		require.NoError(t, fixed.Resume(ctx))
		st, err := fixed.Inspect(ctx)
		require.NoError(t, err)
		assert.Equal(t, 30*time.Second, st.TTL)
		time.Sleep(25 * time.Second)
		require.NoError(t, renewed.Resume(ctx))
		time.Sleep(time.Hour)
		require.NoError(t, renewed.Verify(ctx))
		select {
		case <-lost:
			t.Error("the hold was never lost")
		default:
		}
		require.NoError(t, renewed.Unlock(ctx))
	})
}

func TestResumeOfAMissingHoldIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		one, two := newSession(t, b), newSession(t, b)
		ctx := reentrant.WithPortableOwner(t.Context(), "order 7")
		l := two.NewLock("x")
		assert.ErrorIs(t, l.Resume(ctx), reentrant.ErrNotHeld, "free")
		named := reentrant.WithOwner(t.Context(), "order 7")
		assert.ErrorContains(t, l.Resume(named), "WithPortableOwner")
		require.NoError(t, one.NewLock("x").Lock(named))
		assert.ErrorIs(t, l.Resume(ctx), reentrant.ErrNotHeld, "another owner of another session")
		require.NoError(t, one.NewLock("x").Unlock(named))
		require.NoError(t, l.Lock(named))
		assert.ErrorIs(t, l.Resume(ctx), reentrant.ErrNotHeld, "another owner of this session")
		require.NoError(t, l.Unlock(named))
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		assert.ErrorIs(t, l.Resume(cancelled), context.Canceled)
		assert.Zero(t, reentrant.Entries(two))
	})
}

func TestResumeIsTriedUntilThereIsAReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		one, two := newSession(t, b), newSession(t, b)
		ctx := reentrant.WithPortableOwner(t.Context(), "order 7")
		require.NoError(t, one.NewLock("x").Lock(ctx))
		b.SetFault(memory.Script(memory.Resume, memory.Lose, memory.LoseReply, memory.Lose))
		l := two.NewLock("x")
		require.NoError(t, l.Resume(ctx))
		require.NoError(t, l.Unlock(ctx))
	})
}

func TestAResumeWithoutAReplyCanBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		one, two := newSession(t, b), newSession(t, b)
		ctx := reentrant.WithPortableOwner(t.Context(), "order 7")
		require.NoError(t, one.NewLock("x").Lock(ctx))
		l := two.NewLock("x")
		b.SetFault(memory.Script(memory.Resume, memory.LoseReply, memory.LoseReply, memory.LoseReply, memory.LoseReply, memory.LoseReply))
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		err := l.Resume(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.True(t, backend.OutcomeUnknown(err), "%v", err)
		b.SetFault(nil)
		require.NoError(t, l.Resume(ctx))
		require.NoError(t, l.Unlock(ctx))
	})
}

// Sessions resume a hold from each other again and again: no call hangs, and at the end one session has the hold.
func TestAStormOfResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		ctx := reentrant.WithPortableOwner(t.Context(), "order 7")
		first := newSession(t, b)
		require.NoError(t, first.NewLock("x").Lock(ctx))
		var wg sync.WaitGroup
		for range 4 {
			s := newSession(t, b)
			wg.Go(func() {
				l := s.NewLock("x")
				for range 20 {
					if err := l.Resume(ctx); err != nil {
						assert.ErrorIs(t, err, reentrant.ErrLost, "another session was as fast")
					}
					time.Sleep(3 * time.Millisecond)
				}
			})
			wg.Go(func() {
				c := reentrant.WithOwner(t.Context(), "neighbour")
				for range 5 {
					got, err := s.NewLock("x").TryLockFor(c, 10*time.Millisecond)
					assert.NoError(t, err)
					assert.False(t, got)
				}
			})
		}
		wg.Wait()
		last := newSession(t, b)
		require.NoError(t, last.NewLock("x").Resume(ctx))
		require.NoError(t, last.NewLock("x").Unlock(ctx))
		held, err := last.NewLock("x").IsLocked(ctx)
		require.NoError(t, err)
		assert.False(t, held)
		assert.False(t, errors.Is(err, reentrant.ErrLost))
	})
}
