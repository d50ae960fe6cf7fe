package reentrant_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// In the session in which a lock lingers, Resume finds no hold to take. It makes the session release the lock.
func TestResumeOfALockThatLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b, reentrant.WithCohort(), reentrant.WithLinger(time.Minute))
		l, other := s.NewLock("x"), newSession(t, b).NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		require.NoError(t, l.Unlock(t.Context()))
		assert.ErrorIs(t, l.Resume(reentrant.WithPortableOwner(t.Context(), "order 7")), reentrant.ErrNotHeld)
		synctest.Wait()
		got, err := other.TryLock(t.Context())
		require.NoError(t, err)
		require.True(t, got)
		got, err = l.TryLock(t.Context())
		require.NoError(t, err)
		assert.False(t, got, "another session has the lock")
		require.NoError(t, other.Unlock(t.Context()))
	})
}

// The next lock of the session finds nothing that a Resume, or the owner before it, has left.
func TestNothingIsLeftBehindAResumeThatFindsNothing(t *testing.T) {
	for name, m := range modes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				s, other := newSession(t, b, m.session...), newSession(t, b)
				l, ctx := s.NewLock("x", m.lock...), reentrant.WithPortableOwner(t.Context(), "order 7")
				require.NoError(t, other.NewLock("y").Lock(t.Context()))
				require.NoError(t, other.NewLock("z").Lock(ctx))

				b.SetFault(memory.Script(memory.Acquire, memory.DelayReply(time.Millisecond)))
				locked, unlock := make(chan struct{}), make(chan struct{})
				go func() {
					assert.NoError(t, l.Lock(t.Context()))
					close(locked)
					<-unlock
					assert.NoError(t, l.Unlock(t.Context()))
				}()
				synctest.Wait() // the head of x is asking Redis, so Resume does not see it yet
				resumed := make(chan error)
				go func() { resumed <- l.Resume(ctx) }()
				<-locked
				synctest.Wait()
				close(unlock)
				require.ErrorIs(t, <-resumed, reentrant.ErrNotHeld)
				synctest.Wait()
				for i := range 63 { // so that the state of x is the next one to be reused
					other := s.NewLock(fmt.Sprint("spare", i), m.lock...)
					require.NoError(t, other.Lock(t.Context()))
					require.NoError(t, other.Unlock(t.Context()))
				}

				got, err := s.NewLock("y", m.lock...).TryLock(t.Context())
				require.NoError(t, err)
				assert.False(t, got, "another session has the lock")
				require.NoError(t, s.NewLock("z").Resume(ctx), "that owner has the lock")
				require.NoError(t, s.NewLock("z").Unlock(ctx))
			})
		})
	}
}

func TestAHeadThatGaveWayToResumeIsTheHeadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		require.NoError(t, newSession(t, b).NewLock("x").Lock(t.Context()))
		l := newSession(t, b).NewLock("x")
		a := reentrant.WithOwner(t.Context(), "a")
		waiting, cancel := context.WithCancel(a)
		ended := make(chan error)
		go func() { ended <- l.Lock(waiting) }()
		synctest.Wait()
		assert.ErrorIs(t, l.Resume(reentrant.WithPortableOwner(t.Context(), "order 7")), reentrant.ErrNotHeld)
		synctest.Wait()
		assert.Equal(t, []reentrant.Owner{reentrant.CurrentOwner(a)}, l.QueuedOwners())
		cancel()
		assert.ErrorIs(t, <-ended, context.Canceled)
	})
}

// If the time of a Lock ends while it gives way to a Resume, the Lock returns the error of its own tries: that Redis did not
// reply, and not that another owner has the lock.
func TestAHeadThatGaveWayToResumeReturnsTheErrorOfItsTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		ctx := reentrant.WithPortableOwner(t.Context(), "order 7")
		require.NoError(t, newSession(t, b).NewLock("x").Lock(ctx))
		l := newSession(t, b).NewLock("x")
		b.SetFault(func(op memory.Op) memory.Verdict {
			if op.Verb == memory.Acquire {
				return memory.Lose
			}
			return memory.Pass
		})
		answered := make(chan error)
		go func() {
			got, err := l.TryLockFor(reentrant.WithOwner(t.Context(), "a"), time.Second)
			assert.False(t, got)
			answered <- err
		}()
		synctest.Wait()
		require.NoError(t, l.Resume(ctx))
		assert.ErrorContains(t, <-answered, "connection refused")
		require.NoError(t, l.Unlock(ctx))
	})
}

// A re-entry that returned an error does not count, whatever Redis has counted: Resume restores the holds that calls
// have returned.
func TestResumeOfAHoldOfTheSameSessionKeepsItsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		ctx := reentrant.WithPortableOwner(t.Context(), "order 7")
		l := newSession(t, b).NewLock("x")
		require.NoError(t, l.Lock(ctx))
		b.SetFault(memory.Script(memory.Reenter, memory.DelayReply(2*time.Millisecond)))
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		require.ErrorIs(t, l.Lock(short), context.DeadlineExceeded)
		require.NoError(t, l.Resume(ctx))
		assert.Equal(t, 1, l.HoldCount(ctx))
		require.NoError(t, l.Unlock(ctx))
		held, err := l.IsLocked(ctx)
		require.NoError(t, err)
		assert.False(t, held)
	})
}

// While the hold gets its new epoch, a renewal with the old one finds nothing. That is no loss.
func TestARenewalThatCrossesResumeFindsNothingLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		ctx := reentrant.WithPortableOwner(t.Context(), "order 7")
		l := s.NewLock("x")
		require.NoError(t, l.Lock(ctx))
		lost := l.Lost(ctx)
		renewals := b.Count(memory.Renew)
		time.Sleep(2500 * time.Millisecond)
		b.SetFault(memory.Script(memory.Resume, memory.DelayReply(1500*time.Millisecond)))
		require.NoError(t, l.Resume(ctx))
		require.Greater(t, b.Count(memory.Renew), renewals)
		synctest.Wait()
		select {
		case <-lost:
			assert.Fail(t, "the hold is not lost")
		default:
		}
		assert.Zero(t, s.Stats().Lost)
		require.NoError(t, l.Verify(ctx))
		require.NoError(t, l.Unlock(ctx))
	})
}

// Owners of three sessions lock, re-enter, wait for signals, resume holds of their own and of others, and stop waiting
// early, while commands are late and, in every other storm, lost. Two owners are never inside at once, all owners
// finish, and nothing is left.
func TestResumeInAStorm(t *testing.T) {
	for seed := range uint64(rounds(150)) {
		synctest.Test(t, func(t *testing.T) { newResumes(t, seed).storm() })
		require.False(t, t.Failed(), "seed %d", seed)
	}
}

// resumes has the owners, which all sessions know, and the data that two locks guard.
type resumes struct {
	*testing.T
	lossy bool

	mu     sync.Mutex
	random *rand.Rand
	inside map[string]string // lock to owner
}

func newResumes(t *testing.T, seed uint64) *resumes {
	return &resumes{T: t, lossy: seed%2 == 1, random: rand.New(rand.NewPCG(seed, 7)), inside: make(map[string]string)}
}

func (r *resumes) roll(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.random.IntN(n)
}

func (r *resumes) moment(most time.Duration) time.Duration {
	return time.Duration(r.roll(int(most/time.Microsecond))) * time.Microsecond
}

func (r *resumes) fault(op memory.Op) memory.Verdict {
	d := r.moment(3 * time.Millisecond)
	switch r.roll(40) {
	case 0:
		if r.lossy && op.Verb != memory.Connect {
			return memory.LoseReply
		}
	case 1:
		if r.lossy && op.Verb != memory.Connect {
			return memory.Lose
		}
	case 2, 3, 4, 5, 6, 7, 8, 9, 10, 11:
		return memory.Delay(d)
	case 12, 13, 14, 15, 16, 17, 18, 19, 20, 21:
		return memory.DelayReply(d)
	}
	return memory.Pass
}

func (r *resumes) enter(lock, owner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	assert.Empty(r, r.inside[lock], "%s is inside, and %s enters", lock, owner)
	r.inside[lock] = owner
}

func (r *resumes) leave(lock string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inside[lock] = ""
}

func (r *resumes) storm() {
	b := memory.New(memory.WithFault(r.fault))
	sessions := []*reentrant.Session{
		newSession(r.T, b, reentrant.WithLinger(20*time.Millisecond)), newSession(r.T, b, reentrant.WithCohort()),
		newSession(r.T, b, reentrant.WithCohort(), reentrant.WithLinger(20*time.Millisecond)),
	}
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			for range 15 {
				time.Sleep(r.moment(4 * time.Millisecond))
				r.turn(sessions[i%len(sessions)], fmt.Sprint("owner ", i))
			}
		})
	}
	all.Wait()
	b.SetFault(nil)
	time.Sleep(time.Minute)
	for _, s := range sessions {
		for _, name := range []string{"x", "y"} {
			require.NoError(r, s.NewLock(name).Lock(r.Context()))
			require.NoError(r, s.NewLock(name).Unlock(r.Context()))
		}
	}
	time.Sleep(time.Minute)
	for _, s := range sessions {
		assert.Zero(r, reentrant.Entries(s))
	}
}

// turn is one owner's use of one of the locks.
func (r *resumes) turn(s *reentrant.Session, owner string) {
	name := []string{"x", "y"}[r.roll(2)]
	l := s.NewLock(name, reentrant.WithFairness(r.roll(3) > 0))
	portable := r.roll(3) == 0
	stay := r.Context()
	if portable {
		stay = reentrant.WithPortableOwner(stay, owner)
	}
	ctx, cancel := stay, context.CancelFunc(func() {})
	if r.roll(2) == 0 {
		ctx, cancel = context.WithTimeout(stay, r.moment(8*time.Millisecond))
	}
	defer cancel()
	if portable && r.roll(2) == 0 && l.Resume(ctx) == nil { // what an earlier turn could not release
		for l.Unlock(ctx) == nil {
		}
	}
	if l.Lock(ctx) != nil {
		return
	}
	r.enter(name, owner)
	time.Sleep(r.moment(time.Millisecond))
	if l.Lock(ctx) == nil {
		_ = l.Unlock(ctx)
	}
	if portable && r.roll(2) == 0 {
		if err := l.Resume(stay); !r.lossy {
			assert.NoError(r, err)
		}
	}
	r.leave(name)
	c := l.NewCondition("c")
	switch r.roll(4) {
	case 0:
		_ = c.SignalAll(ctx)
	case 1:
		_, _ = c.AwaitFor(ctx, r.moment(6*time.Millisecond))
	}
	_ = l.Unlock(ctx) // the hold may be lost because replies were lost
}

// The owner of a waiting head resumes the lock before the head gets it. The head's Lock then adds a hold to the resumed one.
func TestResumeOfAnOwnerThatWaitsAsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		ctx := reentrant.WithPortableOwner(t.Context(), "order 7")
		require.NoError(t, newSession(t, b).NewLock("x").Lock(ctx))
		s := newSession(t, b)
		l := s.NewLock("x")
		waited := make(chan error)
		go func() { waited <- l.Lock(ctx) }()
		synctest.Wait()
		require.NoError(t, l.Resume(ctx))
		require.NoError(t, <-waited)
		assert.Equal(t, 2, l.HoldCount(ctx))
		require.NoError(t, l.Unlock(ctx))
		require.NoError(t, l.Unlock(ctx))
		require.ErrorIs(t, l.Unlock(ctx), reentrant.ErrNotHeld)
		assert.Zero(t, reentrant.Entries(s))
	})
}

// The owner of a head that returns from a condition resumes the lock before the head gets it: the owner then also has the holds
// that it gave up for the wait.
func TestResumeOfAnOwnerThatComesBackAsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		ctx := reentrant.WithPortableOwner(t.Context(), "order 7")
		l, other := newSession(t, b).NewLock("x"), newSession(t, b).NewLock("x")
		require.NoError(t, l.Lock(ctx))
		require.NoError(t, l.Lock(ctx))
		waited := make(chan error)
		go func() {
			_, err := l.NewCondition("c").AwaitFor(ctx, time.Second)
			waited <- err
		}()
		synctest.Wait()
		require.NoError(t, other.Lock(ctx))
		time.Sleep(2 * time.Second) // the head wants the lock again
		require.NoError(t, l.Resume(ctx))
		require.NoError(t, <-waited)
		assert.Equal(t, 3, l.HoldCount(ctx))
		for range 3 {
			require.NoError(t, l.Unlock(ctx))
		}
		require.ErrorIs(t, other.Unlock(ctx), reentrant.ErrLost)
	})
}

// Resume finds a hold that was acquired anew elsewhere, and not the hold that this session had. This session's hold is lost,
// and its Unlocks are owed.
func TestResumeOfAHoldThatWasAcquiredAnewElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		ctx := reentrant.WithPortableOwner(t.Context(), "order 7")
		l, other := newSession(t, b).NewLock("x"), newSession(t, b).NewLock("x")
		for range 3 {
			require.NoError(t, l.Lock(ctx))
		}
		lost := l.Lost(ctx)
		_, err := other.ForceUnlock(t.Context())
		require.NoError(t, err)
		require.NoError(t, other.Lock(ctx))
		require.NoError(t, l.Resume(ctx))
		select {
		case <-lost:
		default:
			assert.Fail(t, "the first hold is lost")
		}
		assert.Equal(t, 1, l.HoldCount(ctx))
		require.NoError(t, l.Unlock(ctx))
		for range 3 {
			require.ErrorIs(t, l.Unlock(ctx), reentrant.ErrLost)
		}
		require.ErrorIs(t, l.Unlock(ctx), reentrant.ErrNotHeld)
		require.ErrorIs(t, other.Unlock(ctx), reentrant.ErrLost)
	})
}

// A session has seen the token of the hold that Resume found. Its later tokens are above that one, even if the server has
// forgotten that token.
func TestTokensAreAboveThatOfAHoldThatResumeFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		ctx := reentrant.WithPortableOwner(t.Context(), "order 7")
		s, other := newSession(t, b), newSession(t, b).NewLock("x")
		l, next := s.NewLock("x"), s.NewLock("y")
		require.NoError(t, l.Lock(ctx))
		_, err := other.ForceUnlock(t.Context())
		require.NoError(t, err)
		b.SetSkew(time.Hour)
		require.NoError(t, other.Lock(ctx))
		require.NoError(t, l.Resume(ctx))
		found, err := l.Token(ctx)
		require.NoError(t, err)
		b.SetSkew(0)
		b.Flush()
		require.NoError(t, next.Lock(t.Context()))
		token, err := next.Token(t.Context())
		require.NoError(t, err)
		assert.Greater(t, token, found)
		require.NoError(t, next.Unlock(t.Context()))
		for range 2 { // the hold that Resume found, and the one before
			require.ErrorIs(t, l.Unlock(ctx), reentrant.ErrLost)
		}
		require.ErrorIs(t, other.Unlock(ctx), reentrant.ErrLost)
	})
}

// A head was to keep the TTL of its session's last hold, and gave way to Resume. That hold no longer exists, so the
// head asks for a full lease.
func TestAHeadThatGaveWayToResumeAsksForAFullLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b), newSession(t, b)
		l := s.NewLock("x")
		portable := reentrant.WithPortableOwner(t.Context(), "order 7")
		one, two := reentrant.WithOwner(t.Context(), "one"), reentrant.WithOwner(t.Context(), "two")
		require.NoError(t, l.Lock(one))
		done := make(chan error)
		go func() { done <- l.Lock(two) }()
		synctest.Wait()
		b.SetFault(func(op memory.Op) memory.Verdict {
			if op.Verb == memory.Acquire && op.Session == "A" { // the session that connected first
				return memory.Lose
			}
			return memory.Pass
		})
		require.NoError(t, l.Unlock(one)) // handed over twice, without commands
		synctest.Wait()
		_, err := other.NewLock("x").ForceUnlock(t.Context())
		require.NoError(t, err)
		brief := []reentrant.LockOption{reentrant.WithFixedLease(3 * time.Second)}
		require.NoError(t, other.NewLock("x", brief...).Lock(portable))
		require.NoError(t, s.NewLock("x", brief...).Resume(portable))
		b.SetFault(nil)
		require.NoError(t, l.Unlock(portable))
		require.NoError(t, <-done)
		until, err := l.TrustedUntil(two)
		require.NoError(t, err)
		st, err := l.Inspect(t.Context())
		require.NoError(t, err)
		assert.LessOrEqual(t, time.Until(until), st.TTL, "the hold is trusted for longer than Redis keeps it")
		require.NoError(t, l.Unlock(two))
	})
}

// If a session is closed while a hold gets its new epoch, it has lost the hold.
func TestResumeInASessionThatIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, err := reentrant.NewSession(b)
		require.NoError(t, err)
		ctx := reentrant.WithPortableOwner(t.Context(), "order 7")
		l := s.NewLock("x")
		require.NoError(t, l.Lock(ctx))
		b.SetFault(memory.Script(memory.Resume, memory.DelayReply(time.Second)))
		resumed := make(chan error, 1)
		go func() { resumed <- l.Resume(ctx) }()
		synctest.Wait() // its command is on its way
		short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, s.Close(short), context.DeadlineExceeded)
		require.ErrorIs(t, <-resumed, reentrant.ErrLost)
		assert.False(t, l.IsHeldByCurrentOwner(ctx))
		require.ErrorIs(t, l.Unlock(ctx), reentrant.ErrLost)
		held, err := newSession(t, b).NewLock("x").TryLock(t.Context())
		require.NoError(t, err)
		assert.True(t, held, "the hold was released")
	})
}
