//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant"
)

// sharing has the flags for the kind of a lock, the part that is taken, and the note. -s and -x are those of flock(1).
type sharing struct {
	Shared    bool `short:"s" xor:"kind" help:"Take the read side of a read-write lock: any number of -s run at the same time, and none beside an -x."`
	Exclusive bool `short:"x" xor:"kind" help:"Take the write side of a read-write lock: no other -s or -x with the same name runs at the same time. Without -s, -x and --permits the name is a plain lock, which is another kind."`
	Permits   *int `xor:"kind" placeholder:"N" help:"Take one of N permits of a semaphore: at most N run at the same time."`

	atLeast time.Duration // for how long a plain lock is kept at least

	Note string `placeholder:"TEXT" help:"A text that relock inspect, list and watch show beside the holder, and that waiting relock processes print; at most 256 bytes, the rest is cut."`
}

// check returns an error for invalid values or combinations.
func (s sharing) check() error {
	if s.Permits != nil && (*s.Permits < 1 || *s.Permits > backend.AllUnits) {
		return fmt.Errorf("--permits %d: must be from 1 to %d", *s.Permits, backend.AllUnits)
	}
	return nil
}

// keepFor sets d as the time for which the lock is kept at least. It returns an error if d is invalid, or the other flags
// do not allow it.
func (s *sharing) keepFor(d time.Duration) error {
	switch {
	case d == 0:
		return nil
	case d < 0:
		return fmt.Errorf("--at-least %v: must not be negative", d)
	case s.Shared || s.Exclusive || s.Permits != nil:
		return errors.New("--at-least is for plain locks: it cannot be given with -s, -x or --permits")
	}
	s.atLeast = d
	return nil
}

// lock returns the lock, or the part of one, that the flags name.
func (s sharing) lock(session *reentrant.Session, name string) lock {
	switch {
	case s.Permits != nil:
		m := session.NewSemaphore(name, *s.Permits)
		return permit{m, sharedPart{name, m.Inspect}}
	case s.Shared:
		l := session.NewRWLock(name)
		return readSide{l, sharedPart{name, l.Inspect}}
	case s.Exclusive:
		l := session.NewRWLock(name)
		return writeSide{l, sharedPart{name, l.Inspect}}
	}
	return plainLock{session.NewLock(name, reentrant.WithAtLeast(s.atLeast))}
}

// withFlags adds the right flags to an error that says that the name is another kind of lock. It reads the kind from
// Redis.
func withFlags(ctx context.Context, err error, s *reentrant.Session, name string) error {
	if !errors.Is(err, reentrant.ErrWrongKind) {
		return err
	}
	st, unknown := statusOf(ctx, s, name)
	if unknown != nil { // or the name is no lock
		return err
	}
	return fmt.Errorf("%w; %s", err, st.flags())
}

// flags says with which flags a lock of this kind is taken.
func (s status) flags() string {
	switch {
	case s.shared == nil:
		return "a plain lock is taken without -s, -x and --permits"
	case s.Kind == kindSemaphore:
		return "a semaphore is taken with --permits"
	}
	return "a read-write lock is taken with -s or -x"
}

// A lock is a plain lock, a side of a read-write lock, or a permit of a semaphore. A method that [reentrant.Lock] has too
// does what it does there.
type lock interface {
	Name() string
	acquire(ctx context.Context) error
	TryLockFor(ctx context.Context, wait time.Duration) (bool, error)
	Unlock(ctx context.Context) error
	Token(ctx context.Context) (reentrant.Token, error)
	Lost(ctx context.Context) <-chan struct{}
	// look reads the state of the name from Redis.
	look(ctx context.Context) (status, error)
	// renew prolongs the lease at once if the lock has a command for that.
	renew(ctx context.Context) error
	// givesBackLate reports whether Unlock returns before Redis has received the release. Closing the session waits for
	// that.
	givesBackLate() bool
}

// lookAt reads the state of a lock, and tries again if Redis does not reply.
func lookAt(ctx context.Context, l lock) (st status, err error) {
	err = patiently(func() error {
		st, err = l.look(ctx)
		return err
	})
	return st, err
}

type plainLock struct{ *reentrant.Lock }

func (l plainLock) acquire(ctx context.Context) error { return l.Lock.Lock(ctx) }

func (l plainLock) look(ctx context.Context) (status, error) {
	st, err := l.Inspect(ctx)
	return newStatus(l.Name(), st), err
}

// renew re-enters the lock, which prolongs its lease. It calls TryLock and not Lock, since a hold that has expired by now
// cannot be re-entered, and renew must not wait for the lock.
func (l plainLock) renew(ctx context.Context) error {
	ok, err := l.TryLock(ctx)
	switch {
	case err != nil:
		return err
	case !ok:
		return reentrant.ErrLost
	}
	return l.Unlock(ctx)
}

func (l plainLock) givesBackLate() bool { return false }

// A sharedPart has the methods that the sides of a read-write lock and a permit have in common.
type sharedPart struct {
	name    string
	inspect func(ctx context.Context) (reentrant.SharedState, error)
}

func (p sharedPart) look(ctx context.Context) (status, error) {
	st, err := p.inspect(ctx)
	return newSharedStatus(p.name, st), err
}

// renew does nothing: re-entry sends nothing, and the session renews by itself.
func (p sharedPart) renew(context.Context) error { return nil }

func (p sharedPart) givesBackLate() bool { return true }

type writeSide struct {
	*reentrant.RWLock
	sharedPart
}

func (s writeSide) acquire(ctx context.Context) error { return s.Lock(ctx) }

// A readSide is the read side; its token is its version.
type readSide struct {
	*reentrant.RWLock
	sharedPart
}

func (s readSide) acquire(ctx context.Context) error { return s.RLock(ctx) }

func (s readSide) TryLockFor(ctx context.Context, wait time.Duration) (bool, error) {
	return s.TryRLockFor(ctx, wait)
}

func (s readSide) Unlock(ctx context.Context) error { return s.RUnlock(ctx) }

func (s readSide) Token(ctx context.Context) (reentrant.Token, error) { return s.Version(ctx) }

type permit struct {
	*reentrant.Semaphore
	sharedPart
}

func (p permit) acquire(ctx context.Context) error { return p.Acquire(ctx, 1) }

func (p permit) TryLockFor(ctx context.Context, wait time.Duration) (bool, error) {
	return p.TryAcquireFor(ctx, 1, wait)
}

func (p permit) Unlock(ctx context.Context) error { return p.Release(ctx, 1) }

// Token is 0: permits have none.
func (p permit) Token(context.Context) (reentrant.Token, error) { return 0, nil }

func (p permit) Lost(context.Context) <-chan struct{} { return p.Semaphore.Lost() }
