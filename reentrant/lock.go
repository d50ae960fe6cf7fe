package reentrant

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive"
	"github.com/relock-go/relock/reentrant/internal/lease"
)

// A Lock is a named lock that at most one owner in the whole deployment holds at a time, and that its owner can take
// again. It behaves like java.util.concurrent.locks.ReentrantLock, with one difference in form: in place of Java's current
// thread the owner is [CurrentOwner] of the context, and in place of an interrupt the end of the context ends a wait.
//
// A Lock is a handle. The Locks of one session that have equal names share one queue and one hold.
// It is safe for concurrent use and must not be copied.
//
// Within this process the n'th Unlock synchronizes before the return of the m'th Lock for n < m. Between processes
// there is no such edge: there is exclusion for as long as leases are trusted, and the [Token] beyond that.
type Lock struct {
	_       noCopy
	session *Session
	handle  exclusive.Handle
	invalid error // what is wrong with the name or an option, nil if nothing is; every call returns this error
}

// noCopy lets go vet's copylocks check find copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// NewLock returns the lock with the given name. It sends nothing. If the name is empty or refused by the backend, or an
// option is nil or invalid, every call on the Lock returns the error.
func (s *Session) NewLock(name string, opts ...LockOption) *Lock {
	l := &Lock{session: s, handle: exclusive.Handle{Room: s.locks, Name: name}}
	l.invalid = l.apply(opts)
	switch {
	case l.invalid != nil:
	case name == "":
		l.invalid = errors.New("the name of a lock must not be empty")
	case l.handle.Fixed < 0 || l.handle.Fixed > 0 && l.handle.Fixed < lease.Min:
		l.invalid = fmt.Errorf("WithFixedLease(%v): at least %v", l.handle.Fixed, lease.Min)
	case l.handle.Fixed > maxLease:
		l.invalid = fmt.Errorf("WithFixedLease(%v): at most %v", l.handle.Fixed, maxLease)
	case l.handle.AtLeast < 0:
		l.invalid = fmt.Errorf("WithAtLeast(%v): must not be negative", l.handle.AtLeast)
	case l.handle.AtLeast > maxLease:
		l.invalid = fmt.Errorf("WithAtLeast(%v): at most %v", l.handle.AtLeast, maxLease)
	case l.handle.Fixed > 0 && l.handle.AtLeast > l.handle.Fixed:
		l.invalid = fmt.Errorf("WithAtLeast(%v): at most the lease of WithFixedLease(%v)", l.handle.AtLeast, l.handle.Fixed)
	case strings.HasPrefix(name, backend.ConditionsPrefix):
		l.invalid = errReserved
	default:
		l.handle.Remote, l.invalid = s.core.Conn.Bind(name)
	}
	return l
}

// apply applies the options.
func (l *Lock) apply(opts []LockOption) error {
	for i, opt := range opts {
		if opt == nil {
			return fmt.Errorf("option %d is nil", i+1)
		}
		opt(l)
	}
	if n := l.handle.MaxWaiting; n < 0 {
		return fmt.Errorf("WithMaxWaiting(%d): must not be negative", n)
	}
	return nil
}

// errReserved is the error of a name that is kept for the conditions of read-write locks.
var errReserved = fmt.Errorf("names that begin with %q are reserved", backend.ConditionsPrefix)

// Name returns the lock's name.
func (l *Lock) Name() string { return l.handle.Name }

// Lock takes the lock. It waits for its turn until ctx ends: behind earlier callers of this process and then, as their head,
// behind the heads of other processes. It is Java's lockInterruptibly, with ctx as the interrupt.
//
// An owner that holds the lock takes it again at once. With a ctx that has ended Lock always returns an error, also for
// re-entry, and changes nothing.
//
// Lock returns nil when the caller's owner holds the lock. While the backend cannot be reached, Lock keeps trying. When
// ctx ends, errors.Is(err, ctx.Err()) is true, and the error includes the backend's last error, if any. If the deadline of
// ctx passed while another owner had the lock, the error names that owner ([Error.Holders]): Lock takes up to 20 ms more to
// ask. When the server refuses, Lock returns the server's error at once ([Refused]). Other errors include [ErrClosed],
// [ErrTooManyHolds], [ErrWrongKind], [ErrNoOwner], [ErrQueueFull] with [WithMaxWaiting], and [ErrLost] if the owner's hold is
// lost during re-entry. After an error the owner holds nothing that it did not hold before. What the server may still have is
// released in the background, and expires with the lease at the latest.
func (l *Lock) Lock(ctx context.Context) error {
	if l.session.core.Config.Cohort && l.handle.ReenterFast(ctx) {
		return nil
	}
	_, err := l.acquire(ctx, &exclusive.Try{Op: "lock", Head: exclusive.Head{Waits: true, Barges: l.handle.Unfair}})
	return err
}

// TryLock takes the lock if it is free, or if the caller's owner holds it already. It makes one attempt that does not
// wait. Like Java's tryLock it takes a free lock even if other owners wait for it. It returns false without sending a
// command while another owner of this process holds the lock or waits for it in Redis. If the holder's session may keep
// the lock idle ([WithLinger]), TryLock makes a second attempt a round trip later.
//
// Errors are those of Lock. If the backend cannot be reached, TryLock returns an error after its one attempt, also for
// re-entry; false with a nil error means that another owner has the lock or waits for it.
func (l *Lock) TryLock(ctx context.Context) (bool, error) {
	return l.acquire(ctx, &exclusive.Try{Op: "try lock", Head: exclusive.Head{Barges: true}})
}

// TryLockFor takes the lock if its turn comes within wait. It waits in the queue as Lock does, and asks at least once:
// with a wait of zero or less it makes one attempt that does not wait, and that passes no waiter of a fair queue. When
// the time is up, TryLockFor returns false, with a nil error if another owner has the lock, and with the backend's last error
// if the backend could not be reached. A caller that waits for the server when the time is up asks it once more, and gives it
// an eighth of a command's time limit for its reply, since the message with the grant may be lost. Other errors are those of
// Lock.
func (l *Lock) TryLockFor(ctx context.Context, wait time.Duration) (bool, error) {
	t := exclusive.Try{Op: "try lock", Head: exclusive.Head{Waits: wait > 0, Barges: l.handle.Unfair}}
	if t.Waits {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		t.Timeout, t.Deadline = timer.C, time.Now().Add(wait)
	}
	return l.acquire(ctx, &t)
}

// acquire takes the lock, and is the common part of the exported methods that do so. It looks for deadlocks if the session has
// a detector and the wait has no time limit. When it returns true, the holder has the baton. When it returns false, the
// function that gave up has passed the baton on.
func (l *Lock) acquire(ctx context.Context, t *exclusive.Try) (ok bool, err error) {
	t.Begun = l.session.core.Now()
	owner, err := l.session.core.Admit(ctx, l.invalid)
	switch d := l.session.detector; {
	case err != nil:
	case d != nil && t.Waits && t.Deadline.IsZero():
		ok, err = l.takeWithDetector(ctx, owner, d, t)
	default:
		ok, err = l.handle.TakeAs(ctx, owner, t)
	}
	if ok {
		return true, nil
	}
	err = l.explainWait(t.Op, l.session.core.ExplainKind(ctx, l.handle.Remote, core.ALock, err))
	l.reportFailed(ctx, t.Begun, err)
	return false, err
}

// explainWait does what [Lock.error] does, for a call that may have waited: its result also says who had the lock.
func (l *Lock) explainWait(op string, err error) error {
	if err == nil {
		return nil
	}
	holders, why := l.session.core.BehindWhom(err, l.handle.Name, false, l.handle.LocalHolder, l.handle.Holder)
	return &Error{Op: op, Lock: l.handle.Name, Holders: holders, Err: why}
}

// error adds the operation and the lock's name to err. It returns nil if err is nil.
func (l *Lock) error(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Lock: l.handle.Name, Err: err}
}

// Unlock gives up one hold of the caller's owner. Giving up the last one frees the lock for the next owner in the
// queue, at once or when the time of [WithAtLeast] is over. Unlock works under a ctx that has ended: it has a time limit of
// its own, and ctx provides only the owner.
//
// It returns [ErrNotHeld] if the owner does not hold the lock, and changes nothing. It returns [ErrLost] if the owner
// held the lock and its lease could not be trusted to the end: another owner may have held the lock meanwhile. After
// any other error the hold has ended in this process, and Redis has not confirmed it. Redis refused ([Refused]), may
// have released the hold ([OutcomeUnknown]), could not be reached, or did not serve the lock (a failover, a slot that
// moves). If Redis did not refuse, Unlock has tried for the length of the lease, at most 6 seconds. If it was the last
// hold, the session goes on trying in the background, for a minute. The lock is free for others when Redis has replied,
// and when its lease ends at the latest. If it was an inner hold, the next call on the lock corrects the count in
// Redis. With [WithAsyncUnlock] the last hold's Unlock does not wait for Redis, and returns no such errors.
func (l *Lock) Unlock(ctx context.Context) error {
	owner, err := l.session.core.Caller(ctx, l.invalid)
	if err != nil {
		return l.error("unlock", err)
	}
	return l.error("unlock", l.handle.UnlockAs(ctx, owner))
}

// forgo makes Unlock free the lock at once in spite of [WithAtLeast], if the caller's owner holds it only once.
func (l *Lock) forgo(ctx context.Context) {
	if owner, err := l.session.core.Caller(ctx, l.invalid); err == nil {
		l.handle.ForgoAs(owner)
	}
}
