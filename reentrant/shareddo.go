package reentrant

import (
	"context"
	"time"

	"github.com/relock-go/relock/reentrant/internal/tier"
)

// TryDo is [RWLock.Do] with [RWLock.TryLock] in place of Lock: it runs fn if it gets the write side at once, and reports
// whether it ran fn. Its results are those of [Lock.TryDo].
func (l *RWLock) TryDo(ctx context.Context, fn func(ctx context.Context) error) (bool, error) {
	g, ok, err := l.acquire(ctx, ModeWrite, tier.Try{Op: "try lock"})
	return l.runIf(ctx, g, ok, err, fn, l.Unlock)
}

// TryDoFor is [RWLock.TryDo] with [RWLock.TryLockFor] in place of TryLock: it runs fn if the caller's turn comes within wait.
// wait does not bound fn.
func (l *RWLock) TryDoFor(ctx context.Context, wait time.Duration, fn func(ctx context.Context) error) (bool, error) {
	g, ok, err := l.acquire(ctx, ModeWrite, tier.TryFor("try lock", wait))
	return l.runIf(ctx, g, ok, err, fn, l.Unlock)
}

// TryRDo is [RWLock.RDo] with [RWLock.TryRLock] in place of RLock: it runs fn if it gets the read side at once, and reports
// whether it ran fn. Its results are those of [Lock.TryDo].
func (l *RWLock) TryRDo(ctx context.Context, fn func(ctx context.Context) error) (bool, error) {
	g, ok, err := l.read(ctx, tier.Try{Op: "try rlock"})
	return l.runIf(ctx, g, ok, err, fn, l.RUnlock)
}

// TryRDoFor is [RWLock.TryRDo] with [RWLock.TryRLockFor] in place of TryRLock: it runs fn if the caller's turn comes within
// wait. wait does not bound fn.
func (l *RWLock) TryRDoFor(ctx context.Context, wait time.Duration, fn func(ctx context.Context) error) (bool, error) {
	g, ok, err := l.acquire(ctx, ModeRead, tier.TryFor("try rlock", wait))
	return l.runIf(ctx, g, ok, err, fn, l.RUnlock)
}

// runIf calls run if the caller got the lock.
func (l *RWLock) runIf(ctx context.Context, g tier.Grant, ok bool, err error, fn func(ctx context.Context) error, unlock func(context.Context) error) (bool, error) {
	if !ok || err != nil {
		return false, err
	}
	return true, l.run(ctx, g, fn, unlock)
}

// TryDo is [Semaphore.Do] with [Semaphore.TryAcquire] in place of Acquire: it runs fn if TryAcquire gets n permits, and
// reports whether it ran fn. Its results are those of [Lock.TryDo].
func (s *Semaphore) TryDo(ctx context.Context, n int, fn func(ctx context.Context) error) (bool, error) {
	c, ok, err := s.acquire(ctx, n, tier.Try{Op: "try acquire"})
	if !ok || err != nil {
		return false, err
	}
	return true, s.run(ctx, n, c, fn)
}

// TryDoFor is [Semaphore.TryDo] with [Semaphore.TryAcquireFor] in place of TryAcquire: it runs fn if the caller's turn comes
// within wait. wait does not bound fn.
func (s *Semaphore) TryDoFor(ctx context.Context, n int, wait time.Duration, fn func(ctx context.Context) error) (bool, error) {
	c, ok, err := s.acquire(ctx, n, tier.TryFor("try acquire", wait))
	if !ok || err != nil {
		return false, err
	}
	return true, s.run(ctx, n, c, fn)
}
