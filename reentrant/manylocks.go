package reentrant

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive"
)

// A MultiLock takes the locks that are free together, in sweeps:
//
//	a b c d e f g h      one sweep: the attempts for all locks travel together
//	✓ ✓ ✗ ✓ ✓ ✗ ✓ ✓      c is taken
//	✓ ✓ …                d, e, g and h are given back, and c is waited for
//	✓ ✓ ✓ ✓ ✓            then sweeps of two, four, eight, …
//
// So a call waits for a lock only while it has no lock that comes later in the order of names, and two MultiLocks never wait
// for each other. Before a call waits for a lock, it gives back the locks that it took later in that order.

// minSweep is the least number of locks for which there are sweeps. A sweep keeps the locks that it gives back from others for
// two round trips, and gives them back with a command each. If the locks are few and contended, that costs more than the sweep
// saves in round trips. So attempts for fewer locks, and the releases of fewer locks, are made one after the other.
const minSweep = 16

// A sweep is one call's attempts for the locks that are free, without waiting for any.
type sweep struct {
	ctx context.Context // with the caller's owner: the attempts are made by other goroutines
	try exclusive.Try
}

// newSweep returns the sweep of a call by ctx's owner, nil if ctx is nil or has ended.
func newSweep(ctx context.Context, t exclusive.Try) *sweep {
	if ctx == nil || ctx.Err() != nil {
		return nil // the call for the first lock returns the error
	}
	return &sweep{ctx: asOwner(ctx), try: t}
}

// asOwner returns ctx for goroutines that act for its owner.
func asOwner(ctx context.Context) context.Context {
	return core.WithOwner(ctx, core.CurrentOwner(ctx))
}

// takeFree attempts to take all locks together. It returns how many it took before the first lock that it did not get, and
// the error of the attempt for that one. Locks that it took after that one it has given back.
func (s *sweep) takeFree(locks []*Lock) (int, error) {
	got, errs := make([]bool, len(locks)), make([]error, len(locks))
	atOnce(locks, func(i int, l *Lock) {
		t := s.try
		t.Begun, t.Barges = l.session.core.Now(), l.handle.Unfair
		owner, err := l.session.core.Admit(s.ctx, l.invalid)
		if err == nil {
			got[i], err = l.handle.TakeAs(s.ctx, owner, &t)
		}
		errs[i] = err
	})
	n := slices.Index(got, false)
	if n < 0 {
		return len(locks), nil
	}
	var after []*Lock
	for i, l := range locks[n:] {
		if got[n+i] {
			after = append(after, l)
		}
	}
	_ = giveBackAll(s.ctx, after) // a lock that it cannot give back expires, and does not count as taken
	l := locks[n]
	return n, l.error(s.try.Op, l.session.core.ExplainKind(s.ctx, l.handle.Remote, core.ALock, errs[n]))
}

// waitable reports whether a call can wait for a lock that an attempt did not get: another owner has it, or the server
// was not reached.
func waitable(err error) bool {
	return err == nil || errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrLost)
}

// atOnce calls f for each lock, concurrently if there are minSweep locks or more, and returns when all calls have returned.
func atOnce(locks []*Lock, f func(i int, l *Lock)) {
	if len(locks) < minSweep {
		for i, l := range locks {
			f(i, l)
		}
		return
	}
	var calls sync.WaitGroup
	for i, l := range locks {
		calls.Go(func() { f(i, l) })
	}
	calls.Wait()
}

// takeInOrder takes all locks, by sweeps and, where a lock is not free, by calls of wait. It returns how many locks it has
// taken, also if it fails.
func (m *MultiLock) takeInOrder(free *sweep, wait func(*Lock) (bool, error)) (taken int, ok bool, err error) {
	width := len(m.locks)
	for taken < len(m.locks) {
		var last error
		if free != nil && width > 1 && len(m.locks) >= minSweep {
			var n int
			window := m.locks[taken:min(taken+width, len(m.locks))]
			n, last = free.takeFree(window)
			taken += n
			if n == len(window) {
				width *= 2
				continue
			}
			if !waitable(last) || free.try.Expired() {
				return taken, false, last
			}
		}
		if ok, err := wait(m.locks[taken]); !ok || err != nil {
			if err != nil {
				err = core.MergeOutcome(last, err)
			}
			return taken, false, err
		}
		taken++
		width = 2
	}
	return taken, true, nil
}
