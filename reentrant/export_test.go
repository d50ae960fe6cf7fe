package reentrant

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive"
	"github.com/relock-go/relock/reentrant/internal/tier"
)

// WithJitter makes a session's heartbeats come early by d, always, so that a scenario is the same every time.
func WithJitter(d time.Duration) Option {
	return func(c *config) { c.Jitter = func(most time.Duration) time.Duration { return min(d, most) } }
}

// WithNaps makes a session find its wall clock ahead by the number of nanoseconds in so, as if its machine had been suspended,
// or its clock had been set.
func WithNaps(so *atomic.Int64) Option {
	return func(c *config) { c.Ahead = func(time.Time) time.Duration { return time.Duration(so.Load()) } }
}

// WithLook makes a session call look each time it checks how far its wall clock is ahead. The watchdog checks that before it
// looks at its holds; re-entry and Unlock of a cohort do not check it.
func WithLook(look func()) Option {
	return func(c *config) {
		c.Ahead = func(time.Time) time.Duration {
			look()
			return 0
		}
	}
}

// DoInSteps is Semaphore.Do in two steps: it acquires permits, and returns the rest of Do.
func DoInSteps(m *Semaphore, ctx context.Context, n int) (rest func(fn func(ctx context.Context) error) error, err error) {
	c, _, err := m.acquire(ctx, n, tier.Try{Op: "acquire", Waits: true})
	return func(fn func(ctx context.Context) error) error { return m.run(ctx, n, c, fn) }, err
}

// SetHolds sets the local hold count of the caller's hold.
func SetHolds(l *Lock, ctx context.Context, holds int) {
	l.handle.WithState(func(st *exclusive.State) {
		if _, ok := st.Queue.Begin(core.CurrentOwner(ctx)); ok {
			st.Queue.Settle(holds)
		}
	})
}

// Entries returns the number of names of Locks for which a session keeps a state.
func Entries(s *Session) int {
	return s.locks.Len()
}

// HasMonitors reports whether a session has conditions of read-write locks in use.
func HasMonitors(s *Session) bool {
	select {
	case <-s.conditions.Drained():
		return false
	default:
		return true
	}
}

// AddWrites gives the caller, which has the write side, n more write holds.
func AddWrites(l *RWLock, ctx context.Context, n int) {
	l.handle.Find().Tier().(interface{ AddHolds(Owner, int, int) bool }).AddHolds(core.CurrentOwner(ctx), 0, n)
}

// TakenUp sends a session the message that a hold of a lock was resumed elsewhere, without its epoch.
func TakenUp(s *Session, name string) { sink{s.session}.Taken(name, 0) }

// Reopened makes a session act as it does when its channel is reopened.
func Reopened(s *Session) { sink{s.session}.Reconnected() }

// Lose makes a hold lost, and leaves its owner the baton.
func Lose(s *Session, name string) {
	l := exclusive.Handle{Room: s.locks, Name: name}
	l.WithState(func(st *exclusive.State) { st.Lose(s.locks.HoldOf(name).Epoch, "the test says so") })
}

// AskFor sends a session the message that another session waits for its lock.
func AskFor(s *Session, name string) { sink{s.session}.Wanted(name, s.locks.HoldOf(name).Epoch) }

// OccupyCleaners keeps clean-ups from beginning until the returned channel is closed.
func OccupyCleaners(s *Session) chan struct{} {
	over := make(chan struct{})
	s.core.Cleaner.Stall = 0
	for range core.Cleaners {
		s.core.Cleaner.Do(func() { <-over })
	}
	return over
}

// Backlog returns how many clean-ups have not begun.
func Backlog(s *Session) int { return s.core.Cleaner.Backlog() }

// SharedNames returns the number of shared names for which a session keeps a state.
func SharedNames(s *Session) int { return s.shared.Len() }

// PermitsInUse returns how many permits of a semaphore the callers of a session have, as far as the session trusts them.
func PermitsInUse(m *Semaphore) int {
	x := m.handle.Find()
	if x == nil {
		return 0
	}
	x.Check()
	return x.Tier().(interface{ InUse() int }).InUse()
}

// NudgeWatchdog wakes the session's watchdog, as a new hold does.
func NudgeWatchdog(s *Session) { s.keeper.WakeBy(s.core.Opened) }
