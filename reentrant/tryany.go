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
// and returns it. A lock that the caller's owner holds already is not free: it is passed over, and not re-entered.
//
// TryAny returns ErrNotAcquired if none is free; if the state of some is unknown, their errors and not ErrNotAcquired:
// they may be free. An ended ctx and a nil lock are errors at once.
func TryAny(ctx context.Context, locks ...*Lock) (*Lock, error) {
	return firstOf(ctx, locks, func(*Lock) exclusive.Try { return exclusive.Try{Barges: true} })
}

// TryAnyFor takes the first of the locks that becomes free within wait, and returns it. It tries each once in the order
// given, and then waits for all of them at once, with a place in the queue of each, as [Lock.TryLockFor] does. If it
// gets several it keeps one and gives the others back at once. A lock that the caller's owner holds already is not
// waited for. With a wait of zero or less each is tried once.
//
// TryAnyFor returns ErrNotAcquired when the time is up, or at once if there is nothing to wait for; ctx's error when ctx
// ends first; if some locks could not be reached and none was free in time, their errors and not ErrNotAcquired. A nil
// lock is an error at once.
func TryAnyFor(ctx context.Context, wait time.Duration, locks ...*Lock) (*Lock, error) {
	deadline := time.Now().Add(wait)
	got, err := firstOf(ctx, locks, func(l *Lock) exclusive.Try { return exclusive.Try{Barges: l.handle.Unfair, Deadline: deadline} })
	if got != nil || wait <= 0 || ctx == nil || ctx.Err() != nil || slices.Contains(locks, nil) {
		return got, err
	}
	got, last := anyOf(ctx, distinct(locks), deadline)
	if last != nil {
		last = core.MergeOutcome(err, last)
	}
	return got, last
}

// firstOf tries each lock once, until it gets one or ctx ends.
func firstOf(ctx context.Context, locks []*Lock, how func(*Lock) exclusive.Try) (*Lock, error) {
	if i := slices.Index(locks, nil); i >= 0 {
		return nil, fmt.Errorf("reentrant: try any: lock %d is nil", i+1)
	}
	var errs []error
	for _, l := range locks {
		ok, err := l.acquireFresh(ctx, how(l))
		if ok {
			return l, nil
		}
		if err != nil {
			errs = append(errs, err)
			if ctx == nil || ctx.Err() != nil {
				break
			}
		}
	}
	return nil, noneOf(errs)
}

// acquireFresh takes the lock if the caller's owner does not hold it already.
func (l *Lock) acquireFresh(ctx context.Context, t exclusive.Try) (bool, error) {
	t.Op, t.Fresh = "try any", true
	return l.acquire(ctx, &t)
}

// anyOf waits for all locks, each in a goroutine that acts for the caller's owner, until one succeeds. The others give
// up then; a lock that one of them still got is given back before anyOf returns.
func anyOf(ctx context.Context, locks []*Lock, deadline time.Time) (*Lock, error) {
	inside, stop := context.WithCancel(core.WithOwner(ctx, core.CurrentOwner(ctx)))
	defer stop()
	waits := make(chan oneOfMany)
	for _, l := range locks {
		go func() { waits <- l.waitFresh(inside, deadline) }()
	}
	var got *Lock
	var errs []error
	for range locks {
		switch w := <-waits; {
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

// oneOfMany is how the wait for one of several locks ended.
type oneOfMany struct {
	lock *Lock
	got  bool
	err  error
}

// waitFresh waits for the lock until the deadline.
func (l *Lock) waitFresh(ctx context.Context, deadline time.Time) oneOfMany {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	got, err := l.acquireFresh(ctx, exclusive.Try{Waits: true, Barges: l.handle.Unfair, Timeout: timer.C, Deadline: deadline})
	return oneOfMany{l, got, err}
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
