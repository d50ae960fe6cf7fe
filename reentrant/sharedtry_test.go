package reentrant_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// slowly makes every command from now on take the given time.
func slowly(b *memory.Backend, took time.Duration) {
	b.SetFault(func(memory.Op) memory.Verdict { return memory.Delay(took) })
}

func TestATimedTryAsksTheServerOnceHoweverShortItIs(t *testing.T) {
	const trip = 20 * time.Millisecond
	ways := map[string]func(ctx context.Context, s *reentrant.Session) (bool, error){
		"write": func(ctx context.Context, s *reentrant.Session) (bool, error) {
			return s.NewRWLock("x").TryLockFor(ctx, time.Nanosecond)
		},
		"read": func(ctx context.Context, s *reentrant.Session) (bool, error) {
			return s.NewRWLock("x").TryRLockFor(ctx, time.Millisecond)
		},
		"permit": func(ctx context.Context, s *reentrant.Session) (bool, error) {
			return s.NewSemaphore("y", 1).TryAcquireFor(ctx, 1, time.Millisecond)
		},
		"lock": func(ctx context.Context, s *reentrant.Session) (bool, error) {
			return s.NewLock("z").TryLockFor(ctx, time.Millisecond)
		},
	}
	for name, try := range ways {
		t.Run(name+", free", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				s := newSession(t, b)
				slowly(b, trip)
				start := time.Now()
				ok, err := try(t.Context(), s)
				require.NoError(t, err)
				assert.True(t, ok)
				assert.Equal(t, trip, time.Since(start))
			})
		})
		t.Run(name+", taken", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				s, other := newSession(t, b), newSession(t, b)
				require.NoError(t, other.NewRWLock("x").Lock(t.Context()))
				require.NoError(t, other.NewSemaphore("y", 1).Acquire(t.Context(), 1))
				require.NoError(t, other.NewLock("z").Lock(t.Context()))
				slowly(b, trip)
				start := time.Now()
				ok, err := try(t.Context(), s)
				require.NoError(t, err)
				assert.False(t, ok)
				assert.Equal(t, trip, time.Since(start))
			})
		})
		t.Run(name+", silent", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				s := newSession(t, b)
				slowly(b, time.Hour)
				start := time.Now()
				ok, err := try(t.Context(), s)
				require.ErrorIs(t, err, reentrant.ErrUnavailable)
				assert.True(t, reentrant.OutcomeUnknown(err))
				assert.False(t, ok)
				assert.Less(t, time.Since(start), time.Second)
			})
		})
	}
}

// A session that waits in line asks again after a heartbeat. A call that ends before that has no reply of its own, though the
// server was never silent.
func TestATimedTryBehindAnotherOfItsSessionIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		holder, s := newSession(t, b), newSession(t, b)
		require.NoError(t, holder.NewRWLock("x").Lock(t.Context()))
		require.NoError(t, holder.NewSemaphore("y", 1).Acquire(t.Context(), 1))
		book, permits := s.NewRWLock("x"), s.NewSemaphore("y", 1)
		waits, leave := context.WithCancel(owner(t, "first"))
		done := make(chan error)
		go func() { done <- book.Lock(waits) }()
		go func() { done <- permits.Acquire(waits, 1) }()
		synctest.Wait()
		slowly(b, 20*time.Millisecond)
		second := owner(t, "second")
		for what, try := range map[string]func() (bool, error){
			"write":  func() (bool, error) { return book.TryLockFor(second, 400*time.Millisecond) },
			"read":   func() (bool, error) { return book.TryRLockFor(second, 400*time.Millisecond) },
			"permit": func() (bool, error) { return permits.TryAcquireFor(second, 1, 400*time.Millisecond) },
		} {
			time.Sleep(time.Millisecond) // the last reply came before
			ok, err := try()
			assert.NoError(t, err, what)
			assert.False(t, ok, what)
		}
		leave()
		require.ErrorIs(t, <-done, context.Canceled)
		require.ErrorIs(t, <-done, context.Canceled)
	})
}

// The time of a try is up while another call of its session waits behind it, and both wait only for the server's reply.
func TestATimedTryBeforeAnotherOfItsSessionIsNotRefusedByASilentServer(t *testing.T) {
	type kind struct {
		try  func(ctx context.Context, s *reentrant.Session, wait time.Duration) (bool, error)
		wait func(ctx context.Context, s *reentrant.Session) error
	}
	for name, k := range map[string]kind{
		"write": {
			func(ctx context.Context, s *reentrant.Session, wait time.Duration) (bool, error) {
				return s.NewRWLock("x").TryLockFor(ctx, wait)
			},
			func(ctx context.Context, s *reentrant.Session) error { return s.NewRWLock("x").Lock(ctx) },
		},
		"read": {
			func(ctx context.Context, s *reentrant.Session, wait time.Duration) (bool, error) {
				return s.NewRWLock("x").TryRLockFor(ctx, wait)
			},
			func(ctx context.Context, s *reentrant.Session) error { return s.NewRWLock("x").RLock(ctx) },
		},
		"permit": {
			func(ctx context.Context, s *reentrant.Session, wait time.Duration) (bool, error) {
				return s.NewSemaphore("x", 2).TryAcquireFor(ctx, 1, wait)
			},
			func(ctx context.Context, s *reentrant.Session) error { return s.NewSemaphore("x", 2).Acquire(ctx, 1) },
		},
	} {
		for _, wait := range []time.Duration{time.Millisecond, 100 * time.Millisecond} {
			t.Run(fmt.Sprint(name, " for ", wait), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := memory.New()
					s := newSession(t, b)
					slowly(b, time.Hour)
					behind, leave := context.WithCancel(owner(t, "behind"))
					done := make(chan error)
					time.AfterFunc(wait/2, func() { done <- k.wait(behind, s) })
					begun := time.Now()
					ok, err := k.try(owner(t, "first"), s, wait)
					require.ErrorIs(t, err, reentrant.ErrUnavailable)
					assert.True(t, reentrant.OutcomeUnknown(err))
					assert.False(t, ok)
					assert.Equal(t, 250*time.Millisecond, time.Since(begun), "an eighth of a command's time")
					leave()
					require.ErrorIs(t, <-done, context.Canceled)
					b.SetFault(nil)
				})
			})
		}
	}
}

// The server replies that another session has the lock. The try ends with that reply, and the call behind it waits longer.
func TestATimedTryBeforeAnotherOfItsSessionEndsWithTheReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		holder, s := newSession(t, b), newSession(t, b)
		require.NoError(t, holder.NewRWLock("x").Lock(t.Context()))
		slowly(b, 20*time.Millisecond)
		behind, leave := context.WithCancel(owner(t, "behind"))
		done := make(chan error)
		time.AfterFunc(500*time.Microsecond, func() { done <- s.NewRWLock("x").Lock(behind) })
		begun := time.Now()
		ok, err := s.NewRWLock("x").TryLockFor(owner(t, "first"), time.Millisecond)
		require.NoError(t, err)
		assert.False(t, ok)
		assert.Equal(t, 20*time.Millisecond, time.Since(begun))
		leave()
		require.ErrorIs(t, <-done, context.Canceled)
		b.SetFault(nil)
	})
}

// Another goroutine of the try's owner waits for the read side, and does not have it yet, so the try to write is no upgrade.
func TestATimedTryOfASharedOwnerIsNoUpgradeForSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		slowly(b, time.Hour)
		shared := reentrant.WithOwner(t.Context(), "shared")
		behind, leave := context.WithCancel(shared)
		done := make(chan error)
		time.AfterFunc(50*time.Millisecond, func() { done <- s.NewRWLock("x").RLock(behind) })
		ok, err := s.NewRWLock("x").TryLockFor(shared, 100*time.Millisecond)
		require.ErrorIs(t, err, reentrant.ErrUnavailable)
		assert.True(t, reentrant.OutcomeUnknown(err))
		assert.False(t, ok)
		leave()
		require.ErrorIs(t, <-done, context.Canceled)
		b.SetFault(nil)
	})
}

// The reply says that the lock is free. The try to read succeeds, and the reader behind it comes in, too.
func TestATimedTryBeforeAnotherOfItsSessionGetsWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		l := s.NewRWLock("x")
		slowly(b, 20*time.Millisecond)
		behind := owner(t, "behind")
		done := make(chan error)
		time.AfterFunc(500*time.Microsecond, func() { done <- l.RLock(behind) })
		first, begun := owner(t, "first"), time.Now()
		ok, err := l.TryRLockFor(first, time.Millisecond)
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, 20*time.Millisecond, time.Since(begun))
		require.NoError(t, <-done)
		b.SetFault(nil)
		require.NoError(t, l.RUnlock(first))
		require.NoError(t, l.RUnlock(behind))
	})
}

// The try and the call behind it wait for the same command, which fails.
func TestATimedTryBeforeAnotherOfItsSessionIsToldOfTheFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		b.SetFault(func(memory.Op) memory.Verdict {
			return memory.Verdict{Delay: 20 * time.Millisecond, Refused: "OOM"}
		})
		done := make(chan error)
		time.AfterFunc(500*time.Microsecond, func() { done <- s.NewRWLock("x").Lock(owner(t, "behind")) })
		ok, err := s.NewRWLock("x").TryLockFor(owner(t, "first"), time.Millisecond)
		require.True(t, reentrant.Refused(err), err)
		assert.False(t, ok)
		require.True(t, reentrant.Refused(<-done))
		b.SetFault(nil)
	})
}

// A session whose units are all in use, and that was asked for units by another session, has nothing new to send to the server.
func TestATryInASessionThatIsAskedDoesNotWaitForItsUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b), newSession(t, b)
		ctx, cancel := context.WithCancel(t.Context())
		l, m := s.NewRWLock("x"), s.NewSemaphore("y", 2)
		require.NoError(t, l.RLock(t.Context()))
		require.NoError(t, m.Acquire(t.Context(), 2))
		done := make(chan error, 2)
		go func() { done <- other.NewRWLock("x").Lock(ctx) }()
		go func() { done <- other.NewSemaphore("y", 2).Acquire(ctx, 1) }()
		synctest.Wait()

		start := time.Now()
		patient, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		newcomer := reentrant.WithOwner(patient, "newcomer")
		for range 2 {
			ok, err := l.TryRLock(newcomer)
			require.NoError(t, err)
			assert.False(t, ok)
			ok, err = m.TryAcquire(newcomer, 1)
			require.NoError(t, err)
			assert.False(t, ok)
		}
		assert.Zero(t, time.Since(start))
		ok, err := l.TryRLockFor(newcomer, time.Millisecond)
		require.NoError(t, err)
		assert.False(t, ok)
		ok, err = m.TryAcquireFor(newcomer, 1, time.Millisecond)
		require.NoError(t, err)
		assert.False(t, ok)
		assert.Equal(t, 2*time.Millisecond, time.Since(start))

		cancel()
		for range 2 {
			require.ErrorIs(t, <-done, context.Canceled)
		}
		require.NoError(t, l.RUnlock(t.Context()))
		require.NoError(t, m.Release(t.Context(), 2))
	})
}

func TestATryInASessionThatHasAllPermitsEndsWithoutACommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t, memory.New())
		m := s.NewSemaphore("y", 2)
		require.NoError(t, m.Acquire(t.Context(), 2))
		time.Sleep(time.Millisecond) // the tries must come after the server's latest reply

		start, commands := time.Now(), s.Stats().Commands
		patient, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		ok, err := m.TryAcquire(patient, 1)
		require.NoError(t, err)
		assert.False(t, ok)
		assert.Zero(t, time.Since(start))
		ok, err = m.TryAcquireFor(patient, 1, time.Millisecond)
		require.NoError(t, err)
		assert.False(t, ok)
		assert.Equal(t, time.Millisecond, time.Since(start))
		assert.Equal(t, commands, s.Stats().Commands)
		require.NoError(t, m.Release(t.Context(), 2))
	})
}

func TestAWaitForUnitsSaysThatItsOutcomeIsUnknown(t *testing.T) {
	faults := map[string]memory.Fault{
		"no answer yet": func(memory.Op) memory.Verdict { return memory.DelayReply(time.Hour) },
		"an answer was lost before the server was gone": func(op memory.Op) memory.Verdict {
			if op.Try == 1 {
				return memory.LoseReply
			}
			return memory.Lose
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				s := newSession(t, b)
				b.SetFault(fault)
				for _, wait := range []func(context.Context) error{s.NewRWLock("x").Lock, s.NewRWLock("y").RLock} {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
					err := wait(ctx)
					cancel()
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.ErrorIs(t, err, reentrant.ErrUnavailable)
					assert.True(t, reentrant.OutcomeUnknown(err), "%v", err)
				}
			})
		})
	}
}

// If a name is in use as another kind, the session has nothing there that must be released.
func TestCloseAfterARefusalOfTheKindIsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		holder, s := newSession(t, b), newSession(t, b)
		require.NoError(t, holder.NewLock("x").Lock(t.Context()))
		_, err := s.NewRWLock("x").TryLock(t.Context())
		require.ErrorIs(t, err, reentrant.ErrWrongKind)
		_, err = s.NewSemaphore("x", 2).TryAcquire(t.Context(), 1)
		require.ErrorIs(t, err, reentrant.ErrWrongKind)
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, s.Close(ctx))
		assert.Zero(t, time.Since(begun))
	})
}
