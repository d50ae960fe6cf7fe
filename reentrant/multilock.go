package reentrant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive"
)

// A MultiLock is several locks of which a call takes all or none. It takes them in the order of their names, in
// whatever order they were given, so two callers with the same locks in opposite orders never wait for each other. Of 16
// locks or more it takes all free ones together, with commands that share one round trip. It is safe for concurrent use, and
// re-entrant like its locks.
//
// Such a call is not atomic: while it waits for one lock, it holds the locks before that one. It gives back what it holds when
// it fails, when its context ends before it has all locks, and when a panic passes through Do.
type MultiLock struct {
	locks   []*Lock // in the order of compareLocks, each once
	invalid error   // why NewMultiLock refused the locks; every call that returns an error returns it
}

// NewMultiLock makes one lock of several, of one session or of several. The same lock given twice counts once. A
// MultiLock without locks is always free, but cannot be taken with a ctx that has ended. With a nil lock, or locks of
// one name with different options or of different sessions, every call returns an error.
func NewMultiLock(locks ...*Lock) *MultiLock {
	if slices.Contains(locks, nil) {
		return &MultiLock{invalid: errors.New("reentrant: a MultiLock was given a nil lock")}
	}
	order := slices.Clone(locks)
	slices.SortStableFunc(order, compareLocks)
	for i, l := range order[min(1, len(order)):] {
		if err := order[i].mismatch(l); err != nil {
			return &MultiLock{invalid: fmt.Errorf("reentrant: a MultiLock was given two locks named %q %w", l.handle.Name, err)}
		}
	}
	return &MultiLock{locks: slices.CompactFunc(order, func(a, b *Lock) bool { return compareLocks(a, b) == 0 })}
}

// mismatch returns why two Locks of one name cannot be one lock of a MultiLock.
func (l *Lock) mismatch(m *Lock) error {
	switch {
	case l.handle.Name != m.handle.Name:
	case l.session != m.session:
		return errors.New("of different sessions: they have no order")
	case l.handle.Fixed != m.handle.Fixed || l.handle.AtLeast != m.handle.AtLeast || l.handle.Unfair != m.handle.Unfair || l.handle.MaxWaiting != m.handle.MaxWaiting:
		return errors.New("with different options: only one of them can decide")
	}
	return nil
}

// compareLocks is the order in which every MultiLock takes its locks.
func compareLocks(a, b *Lock) int {
	return cmp.Or(cmp.Compare(a.handle.Name, b.handle.Name), cmp.Compare(a.session.core.ID, b.session.core.ID))
}

// Lock takes all locks, waiting for those that are not free one after the other. Errors are those of [Lock.Lock], and name
// the lock.
func (m *MultiLock) Lock(ctx context.Context) error {
	_, err := m.take(ctx, "lock", newSweep(ctx, exclusive.Try{Op: "lock"}), func(l *Lock) (bool, error) { return true, l.Lock(ctx) })
	return err
}

// TryLock takes all locks if all are free. It calls [Lock.TryLock] for one lock after the other, in the order of their names,
// so of several simultaneous calls for the same locks one succeeds.
func (m *MultiLock) TryLock(ctx context.Context) (bool, error) {
	return m.take(ctx, "try lock", nil, func(l *Lock) (bool, error) { return l.TryLock(ctx) })
}

// TryLockFor takes all locks if that is possible within wait, which counts for all of them together. Errors are
// those of [Lock.TryLockFor].
func (m *MultiLock) TryLockFor(ctx context.Context, wait time.Duration) (bool, error) {
	end := time.Now().Add(wait)
	var free *sweep
	if wait > 0 {
		free = newSweep(ctx, exclusive.Try{Op: "try lock", Head: exclusive.Head{Deadline: end}})
	}
	return m.take(ctx, "try lock", free, func(l *Lock) (bool, error) { return l.TryLockFor(ctx, time.Until(end)) })
}

// take takes all locks, and gives back what it has when one fails.
func (m *MultiLock) take(ctx context.Context, op string, free *sweep, one func(*Lock) (bool, error)) (bool, error) {
	if err := m.admit(ctx, op); err != nil {
		return false, err
	}
	if taken, ok, err := m.takeInOrder(free, one); !ok {
		return false, errors.Join(err, giveBackAll(ctx, m.locks[:taken]))
	}
	for _, l := range m.locks { // a lock may have been lost while the call waited for another
		if !l.IsHeldByCurrentOwner(ctx) {
			return false, errors.Join(l.error(op, ErrLost), giveBackAll(ctx, m.locks))
		}
	}
	return true, nil
}

// admit returns what is wrong with a call before it asks for any lock. The locks check the rest.
func (m *MultiLock) admit(ctx context.Context, op string) error {
	switch {
	case m.invalid != nil:
		return m.invalid
	case len(m.locks) > 0:
		return nil
	case ctx == nil:
		return fmt.Errorf("reentrant: %s: nil context", op)
	case ctx.Err() != nil:
		return fmt.Errorf("reentrant: %s: %w", op, core.InterruptedBy(ctx, "before the call", nil))
	}
	return nil
}

// Unlock gives up one hold of each lock, in the reverse of the order in which they were taken; 16 locks or more it gives up at
// the same time. It goes on after an error, and returns all errors.
func (m *MultiLock) Unlock(ctx context.Context) error {
	return errors.Join(m.invalid, unlockAll(ctx, m.locks))
}

// giveBackAll unlocks the locks that a failing call has taken. None of them stays taken because of [WithAtLeast].
func giveBackAll(ctx context.Context, locks []*Lock) error {
	for _, l := range locks {
		l.forgo(ctx)
	}
	return unlockAll(ctx, locks)
}

func unlockAll(ctx context.Context, locks []*Lock) error {
	if ctx != nil && len(locks) >= minSweep {
		ctx = asOwner(ctx)
	}
	errs := make([]error, len(locks))
	last := slices.Clone(locks)
	slices.Reverse(last)
	atOnce(last, func(i int, l *Lock) { errs[i] = l.Unlock(ctx) })
	return errors.Join(errs...)
}

// HoldCount returns how many times the caller's owner holds all of the locks: the least of their hold counts. It is 0
// if the owner lacks one, and for a MultiLock without locks.
func (m *MultiLock) HoldCount(ctx context.Context) int {
	least := 0
	for i, l := range m.locks {
		holds := l.HoldCount(ctx)
		if least = min(least, holds); i == 0 {
			least = holds
		}
	}
	return least
}

// IsHeldByCurrentOwner reports whether the caller's owner holds all of the locks, as far as this process can trust it. It
// sends nothing; see [MultiLock.Verify].
func (m *MultiLock) IsHeldByCurrentOwner(ctx context.Context) bool { return m.HoldCount(ctx) > 0 }

// Verify asks Redis, with a command for each lock, whether all of the caller's holds still exist, as [Lock.Verify] does
// for one. It stops at the first error and returns it. For a MultiLock without locks it returns [ErrNotHeld].
func (m *MultiLock) Verify(ctx context.Context) error {
	return m.each("verify", func(l *Lock) error { return l.Verify(ctx) })
}

// TrustedUntil returns the local time until which this process trusts all of the caller's holds: the earliest of those
// that [Lock.TrustedUntil] returns. It returns the first error of [Lock.TrustedUntil], and [ErrNotHeld] for a MultiLock
// without locks.
func (m *MultiLock) TrustedUntil(ctx context.Context) (earliest time.Time, err error) {
	err = m.each("trusted until", func(l *Lock) error {
		until, err := l.TrustedUntil(ctx)
		if earliest.IsZero() || until.Before(earliest) {
			earliest = until
		}
		return err
	})
	if err != nil {
		return time.Time{}, err
	}
	return earliest, nil
}

// each calls f for one lock after the other, up to the first error.
func (m *MultiLock) each(op string, f func(*Lock) error) error {
	if m.invalid != nil {
		return m.invalid
	}
	if len(m.locks) == 0 {
		return fmt.Errorf("reentrant: %s: %w", op, ErrNotHeld)
	}
	for _, l := range m.locks {
		if err := f(l); err != nil {
			return err
		}
	}
	return nil
}

// Do runs fn while holding all locks, as [Lock.Do] does with one: the context that fn gets ends with cause ErrLost
// when any of them is lost, and a panic in fn gives all of them back. The label of [WithProfilerLabels], if the session of
// the first lock in the order of names has that option, is the name of that lock and the number of the others.
func (m *MultiLock) Do(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	if err := m.Lock(ctx); err != nil {
		return err
	}
	carried, end := core.Inside(ctx, m.bound()...)
	within, cancel := context.WithCancelCause(carried)
	forget := m.onLoss(ctx, &cancel)
	defer func() {
		forget()
		end()
		cancel(nil)
		err = afterDo(ctx, within, err, m.Unlock(ctx))
	}()
	return m.locks[0].session.call(within, m.label(), fn)
}

// bound returns the names of the locks.
func (m *MultiLock) bound() []core.Bound {
	names := make([]core.Bound, len(m.locks))
	for i, l := range m.locks {
		names[i] = l.bound()
	}
	return names
}

// label returns the profiler label of the locks.
func (m *MultiLock) label() string {
	first, others := m.locks[0].handle.Name, len(m.locks)-1
	if others == 0 {
		return first
	}
	return fmt.Sprintf("%s and %d more", first, others)
}

// Lost returns a channel that is closed when any of the caller's holds is lost. For a caller that does not hold all of
// the locks it is already closed. Each call keeps its resources until the holds end: call it once per hold.
func (m *MultiLock) Lost(ctx context.Context) <-chan struct{} {
	if m.invalid != nil || ctx == nil {
		return core.AlreadyLost
	}
	inside, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	m.onLoss(ctx, &cancel)
	return inside.Done()
}

func (m *MultiLock) onLoss(ctx context.Context, cancel *context.CancelCauseFunc) (forget func()) {
	forgets := make([]func(), len(m.locks))
	for i, l := range m.locks {
		forgets[i] = l.onLoss(ctx, cancel)
	}
	return func() {
		for _, f := range forgets {
			f()
		}
	}
}
