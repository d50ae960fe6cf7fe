package reentrant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive"
)

// ErrNotAcquired is returned by TryAny and TryAnyFor when none of the locks was free.
var ErrNotAcquired = errors.New("no lock was free")

// TryAny tries each lock once, in the order given, as [Lock.TryLock] does, and returns the first that it gets. When a server
// does not reply, the remaining locks are tried together. A lock that the caller's owner already holds is passed over.
//
// TryAny returns ErrNotAcquired if no lock is free. If the state of some locks is unknown, it returns their errors instead,
// since those locks may be free. If ctx has ended or a lock is nil, TryAny fails immediately.
func TryAny(ctx context.Context, locks ...*Lock) (*Lock, error) {
	return onceEach(ctx, locks, exclusive.Try{Head: exclusive.Head{Barges: true}})
}

// TryAnyFor takes the first of the locks that becomes free within wait, and returns it. It tries each lock once, in the order
// given, and then waits for all of them together, with a place in the queue of each, as [Lock.TryLockFor] does. When a server
// does not reply, the wait begins before each lock has been tried. When the time is up before that, the remaining locks are
// tried together; an eighth of a command's time limit is kept for them. If TryAnyFor gets several locks, it keeps one and
// gives the others back. A lock that the caller's owner already holds is passed over. With a wait of zero or less TryAnyFor
// only tries, as TryAny does, but passes no waiter of a fair queue.
//
// TryAnyFor returns ErrNotAcquired when the time is up, or immediately if there is no lock that it could wait for; ctx's
// error when ctx ends first; and if some locks could not be reached and no other was free in time, the errors of those locks
// instead of ErrNotAcquired. If a lock is nil, TryAnyFor fails immediately.
func TryAnyFor(ctx context.Context, wait time.Duration, locks ...*Lock) (*Lock, error) {
	deadline := time.Now().Add(wait)
	if wait <= 0 {
		return onceEach(ctx, locks, exclusive.Try{Head: exclusive.Head{Deadline: deadline}})
	}
	got, left, err := firstInOrder(ctx, locks, exclusive.Try{}, deadline)
	if got != nil || left == nil {
		return got, err
	}
	waits := func(ctx context.Context, l *Lock) (bool, error) { return l.waitFresh(ctx, deadline) }
	if time.Now().Before(deadline) {
		got, last := anyOf(ctx, distinct(locks), waits)
		if last != nil {
			last = core.MergeOutcome(err, last)
		}
		return got, last
	}
	return restOf(ctx, left, err, waits)
}

// onceEach tries each lock once.
func onceEach(ctx context.Context, locks []*Lock, t exclusive.Try) (*Lock, error) {
	got, left, err := firstInOrder(ctx, locks, t, time.Time{})
	if got != nil || left == nil {
		return got, err
	}
	return restOf(ctx, left, err, func(ctx context.Context, l *Lock) (bool, error) { return l.acquireFresh(ctx, t) })
}

// firstInOrder tries one lock after the other, until it gets one, a server does not reply, or the deadline is near, unless
// the deadline is zero. left are the locks that it has not tried; left is nil if there is nothing more to do, because it got
// a lock, ctx has ended, or a lock is nil.
func firstInOrder(ctx context.Context, locks []*Lock, t exclusive.Try, deadline time.Time) (got *Lock, left []*Lock, err error) {
	if i := slices.Index(locks, nil); i >= 0 {
		return nil, nil, fmt.Errorf("reentrant: try any: lock %d is nil", i+1)
	}
	var errs []error
	for i, l := range locks {
		if left = locks[i+1:]; !deadline.IsZero() {
			t.Deadline = deadline
			if len(left) > 0 {
				t.Deadline = deadline.Add(-l.session.core.Config.CommandTimeout / 8) // the rest is for the remaining locks
			}
		}
		ok, err := l.acquireFresh(ctx, t)
		if ok {
			return l, nil, nil
		}
		if err != nil {
			errs = append(errs, err)
			if ctx == nil || ctx.Err() != nil {
				return nil, nil, noneOf(errs)
			}
		}
		if errors.Is(err, ErrUnavailable) || !deadline.IsZero() && t.Expired() {
			break
		}
	}
	return nil, left, noneOf(errs)
}

// restOf calls take for the remaining locks, all together. err is the error of the locks that were tried before.
func restOf(ctx context.Context, left []*Lock, err error, take func(context.Context, *Lock) (bool, error)) (*Lock, error) {
	if len(left) == 0 {
		return nil, err
	}
	got, last := anyOf(ctx, distinct(left), take)
	switch {
	case got != nil || errors.Is(err, ErrNotAcquired):
		return got, last
	case errors.Is(last, ErrNotAcquired):
		return nil, err
	}
	return nil, errors.Join(err, last)
}

// acquireFresh takes the lock if the caller's owner does not hold it already.
func (l *Lock) acquireFresh(ctx context.Context, t exclusive.Try) (bool, error) {
	t.Op, t.Fresh, t.Barges = "try any", true, t.Barges || l.handle.Unfair
	return l.acquire(ctx, &t)
}

// anyOf calls take for all locks, each in a goroutine that acts for the caller's owner, until one succeeds. Then the others
// give up; a lock that one of them got all the same is given back before anyOf returns.
func anyOf(ctx context.Context, locks []*Lock, take func(context.Context, *Lock) (bool, error)) (*Lock, error) {
	inside, stop := context.WithCancel(core.WithOwner(ctx, core.CurrentOwner(ctx)))
	defer stop()
	ends := make(chan oneOfMany)
	for _, l := range locks {
		go func() {
			got, err := take(inside, l)
			ends <- oneOfMany{l, got, err}
		}()
	}
	var got *Lock
	var errs []error
	for range locks {
		switch w := <-ends; {
		case w.got && got == nil:
			got = w.lock
			stop()
		case w.got:
			w.lock.forgo(inside)
			_ = w.lock.Unlock(inside) // a lock that it cannot give back expires
		case w.err != nil:
			errs = append(errs, w.err)
		}
	}
	if got != nil {
		return got, nil
	}
	return nil, noneOf(errs)
}

// oneOfMany is how the attempt for one of several locks ended.
type oneOfMany struct {
	lock *Lock
	got  bool
	err  error
}

// waitFresh waits for the lock until the deadline.
func (l *Lock) waitFresh(ctx context.Context, deadline time.Time) (bool, error) {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	return l.acquireFresh(ctx, exclusive.Try{Timeout: timer.C, Head: exclusive.Head{Waits: true, Deadline: deadline}})
}

// distinct returns the locks in the order given, each once.
func distinct(locks []*Lock) (each []*Lock) {
	for _, l := range locks {
		if !slices.ContainsFunc(each, func(m *Lock) bool { return compareLocks(l, m) == 0 }) {
			each = append(each, l)
		}
	}
	return each
}

// noneOf returns why none of the locks was acquired.
func noneOf(errs []error) error {
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return fmt.Errorf("reentrant: try any: %w", ErrNotAcquired)
}
