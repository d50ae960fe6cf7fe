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

// TryAny takes the first of the locks that is free, trying each once in the order given, as [Lock.TryLock] does,
// and returns it. The first server that does not reply ends the order: the locks that are left are tried at once. A lock
// that the caller's owner holds already is not free: it is passed over, and not re-entered.
//
// TryAny returns ErrNotAcquired if none is free; if the state of some is unknown, their errors and not ErrNotAcquired:
// they may be free. An ended ctx and a nil lock are errors at once.
func TryAny(ctx context.Context, locks ...*Lock) (*Lock, error) {
	return onceEach(ctx, locks, exclusive.Try{Head: exclusive.Head{Barges: true}})
}

// TryAnyFor takes the first of the locks that becomes free within wait, and returns it. It tries each once in the order
// given, and then waits for all of them at once, with a place in the queue of each, as [Lock.TryLockFor] does. A server
// that does not reply ends the order, as does the time: those that are left are then asked at once, and an eighth of a
// command's time limit is kept for that. If it gets several it keeps one and gives the others back at once. A lock that the
// caller's owner holds already is not waited for. With a wait of zero or less each is tried once.
//
// TryAnyFor returns ErrNotAcquired when the time is up, or at once if there is nothing to wait for; ctx's error when ctx
// ends first; if some locks could not be reached and none was free in time, their errors and not ErrNotAcquired. A nil
// lock is an error at once.
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

// firstInOrder tries one lock after the other, until it gets one, a server does not reply, or deadline is near, unless that
// is zero. left are the locks that it has not tried; nil if ctx has ended, or a lock is nil.
func firstInOrder(ctx context.Context, locks []*Lock, t exclusive.Try, deadline time.Time) (got *Lock, left []*Lock, err error) {
	if i := slices.Index(locks, nil); i >= 0 {
		return nil, nil, fmt.Errorf("reentrant: try any: lock %d is nil", i+1)
	}
	var errs []error
	for i, l := range locks {
		if left = locks[i+1:]; !deadline.IsZero() {
			t.Deadline = deadline
			if len(left) > 0 {
				t.Deadline = deadline.Add(-l.session.core.Config.CommandTimeout / 8) // the rest is for those that are left
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

// restOf tries, or waits for, the locks that are left after those that gave err, all at once.
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

// anyOf takes all locks, each in a goroutine that acts for the caller's owner, until one succeeds. The others give
// up then; a lock that one of them still got is given back before anyOf returns.
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
			_ = w.lock.Unlock(inside) // what it cannot give back expires
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
