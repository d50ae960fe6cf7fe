package reentrant

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/localqueue"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/lease"
)

// A Lock is a named lock that at most one owner in the whole deployment holds at a time, and that its owner can take
// again. It behaves like java.util.concurrent.locks.ReentrantLock, with one difference in form: where Java uses the
// current thread, as the owner and for interrupts, a Lock uses the context.
//
// A Lock is a handle. The Locks of one session that have equal names share one queue and one hold.
// It is safe for concurrent use and must not be copied.
//
// Within this process the n'th Unlock synchronizes before the return of the m'th Lock for n < m. Between processes
// there is no such edge: there is exclusion for as long as leases are trusted, and the [Token] beyond that.
type Lock struct {
	_         noCopy
	session   *Session
	name      string
	remote    backend.Remote
	invalid   error // of an invalid name or option; every call returns it
	fixed     time.Duration
	unfair    bool
	lazyID    atomic.Uint32             // see id
	lastState atomic.Pointer[lockState] // with which a cohort's owner last got it: a hint for reenterFast
}

// noCopy lets go vet's copylocks check find copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// NewLock returns the lock with the given name. It sends nothing. If the name is empty or refused by the backend, or an
// option is nil or invalid, every call on the Lock returns the error.
func (s *Session) NewLock(name string, opts ...LockOption) *Lock {
	l := &Lock{session: s, name: name}
	l.invalid = l.apply(opts)
	switch {
	case l.invalid != nil:
	case name == "":
		l.invalid = errors.New("the name of a lock must not be empty")
	case l.fixed < 0 || l.fixed > 0 && l.fixed < lease.Min:
		l.invalid = fmt.Errorf("WithFixedLease(%v): at least %v", l.fixed, lease.Min)
	case l.fixed > maxLease:
		l.invalid = fmt.Errorf("WithFixedLease(%v): at most %v", l.fixed, maxLease)
	case strings.HasPrefix(name, backend.ConditionsPrefix):
		l.invalid = errReserved
	default:
		l.remote, l.invalid = s.core.Conn.Bind(name)
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
	return nil
}

// errReserved is the error of a name that is kept for the conditions of read-write locks.
var errReserved = fmt.Errorf("names that begin with %q are reserved", backend.ConditionsPrefix)

// Name returns the lock's name.
func (l *Lock) Name() string { return l.name }

// Lock takes the lock. It waits for its turn until ctx ends: behind earlier callers of this process and, at their head,
// behind the heads of other processes. It is Java's lockInterruptibly, with ctx as the interrupt.
//
// An owner that holds the lock takes it again at once. With a ctx that has ended Lock always returns an error, also for
// re-entry, and changes nothing.
//
// Lock returns nil when the caller's owner holds the lock. While the backend cannot be reached, Lock keeps trying. When
// ctx ends, errors.Is(err, ctx.Err()) is true, and the error includes the backend's last one, if any. When the server
// refuses, Lock returns the server's error at once ([Refused]). Other errors include [ErrClosed], [ErrTooManyHolds],
// [ErrWrongKind], [ErrNoOwner], and [ErrLost] if the owner's hold is lost during re-entry. After an error the owner
// holds nothing that it did not hold before. What the server may still have is released in the background, and expires
// with the lease at the latest.
func (l *Lock) Lock(ctx context.Context) error {
	if l.session.core.Config.Cohort && l.reenterFast(ctx) {
		return nil
	}
	_, err := l.acquire(ctx, &try{op: "lock", waits: true, barges: l.unfair})
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
	return l.acquire(ctx, &try{op: "try lock", barges: true})
}

// TryLockFor takes the lock if its turn comes within wait. It waits in the queue as Lock does, and asks at least once:
// with a wait of zero or less it makes one attempt that does not wait, and that passes no waiter of a fair queue. When
// the time is up, TryLockFor returns false, with a nil error if another owner has the lock, and with the backend's last
// error if that could not be reached. Other errors are those of Lock.
func (l *Lock) TryLockFor(ctx context.Context, wait time.Duration) (bool, error) {
	t := try{op: "try lock", waits: wait > 0, barges: l.unfair}
	if t.waits {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		t.timeout, t.deadline = timer.C, time.Now().Add(wait)
	}
	return l.acquire(ctx, &t)
}

// A try describes a call that takes the lock, and how long it may wait. It is passed by reference: the stack of a
// goroutine that has waited long is no longer in the processor's caches, and each copy would touch three cache lines of
// it.
type try struct {
	op       string
	waits    bool
	barges   bool      // takes a free lock even if others wait for it
	deadline time.Time // zero: none
	timeout  <-chan time.Time
	fixed    time.Duration // the lease of the hold, if it is a fixed one
	fresh    bool          // fails if the owner has the lock already
	begun    time.Time     // zero if the session reports no events
	note     string        // for a new hold

	waitBegun    time.Time // when it began to wait in the local queue, if that is watched
	reportedWait bool      // the long wait has been reported

	// An owner that comes back from a condition: the holds it had, and its ticket if Redis has already queued the
	// session for it.
	holds    int
	ticket   uint64
	ahead    time.Duration      // how far the wall clock was ahead when it got the ticket
	notifier *core.LossNotifier // of the hold it had
}

// acquire takes the lock for every exported method. It looks for deadlocks if the session has a detector and the wait
// has no time limit. When it returns true, the holder has the baton. When it returns false, the function that gave up
// has passed the baton on.
func (l *Lock) acquire(ctx context.Context, t *try) (ok bool, err error) {
	t.begun, t.fixed = l.session.core.Now(), l.fixed
	if d := l.session.detector; d != nil && t.waits && t.deadline.IsZero() {
		ok, err = l.takeWatched(ctx, d, t)
	} else {
		ok, err = l.take(ctx, t)
	}
	if ok {
		return true, nil
	}
	err = l.error(t.op, l.session.explainKind(ctx, l.remote, aLock, err))
	l.reportFailed(ctx, t.begun, err)
	return false, err
}

// take goes through the local queue, and then asks Redis or re-enters. In a session that is being closed only an owner
// that has the lock can take it again.
func (l *Lock) take(ctx context.Context, t *try) (bool, error) {
	owner, err := l.session.core.Admit(ctx, l.invalid)
	if err != nil {
		return false, err
	}
	e, err := l.session.getState(l)
	if err != nil {
		return l.reenterClosed(ctx, owner, t)
	}
	if !l.session.core.Cohort(owner, t.fixed) { // the owners of a cohort's hold change
		t.note = noteOf(ctx)
	}
	got := e.enter(ctx, owner, t)
	if got == localqueue.Claimed {
		return e.acquireRemote(ctx, l, owner, t) // keeps this reference for the hold, or passes it to a clean-up
	}
	defer l.session.putState(e)
	switch {
	case got == localqueue.Reentered:
		return e.reenter(ctx, owner, t)
	case got != localqueue.Cancelled:
		return false, e.checkCleanUp()
	case ctx.Err() != nil:
		return false, core.InterruptedBy(ctx, "in this process's queue", nil)
	}
	return l.reenterClosed(ctx, owner, t) // Close has shut the queue
}

// checkCleanUp returns an error if the baton is with a clean-up to which Redis does not reply: then no owner of this
// process has the lock, and it is not known whether another process has it. A clean-up that has only begun is no error.
func (e *lockState) checkCleanUp() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cleaning == nil || e.s.core.Age()-e.cleaningSince < e.s.core.Config.Stall() {
		return nil
	}
	return fmt.Errorf("what an earlier caller left behind is not given back yet: %w", ErrUnavailable)
}

// reenterClosed takes the lock once more, for an owner that has it in a session that is being closed.
func (l *Lock) reenterClosed(ctx context.Context, owner Owner, t *try) (bool, error) {
	e := l.session.findState(l.name)
	if e == nil {
		return false, ErrClosed
	}
	defer l.session.putState(e)
	if _, holds := e.queue.Begin(owner); !holds {
		return false, ErrClosed
	}
	return e.reenter(ctx, owner, t)
}

// enter enters the local queue, and waits in it if the try waits.
func (e *lockState) enter(ctx context.Context, owner Owner, t *try) localqueue.Outcome {
	mode := queueMode(owner)
	if t.barges {
		mode |= localqueue.Barging
	}
	if !t.waits {
		return e.tryEnter(ctx, owner, mode)
	}
	if ctx.Err() != nil {
		return localqueue.Cancelled
	}
	place := e.queue.Reserve(owner, mode)
	if e.watched.Load() {
		e.noteWaiter(owner)
	}
	return e.wait(ctx, owner, place, t)
}

// queueMode is how an owner waits in the local queue.
func queueMode(o Owner) localqueue.Mode {
	if core.IsShared(o) {
		return localqueue.Shared
	}
	return localqueue.Fair
}

// tryEnter enters the local queue without waiting behind another owner. It does wait for a clean-up, for as long as one
// command may take: the clean-up may be about to release the very lock that the caller asks for.
func (e *lockState) tryEnter(ctx context.Context, owner Owner, mode localqueue.Mode) localqueue.Outcome {
	var limit <-chan time.Time
	for {
		e.mu.Lock() // a clean-up gets the baton, and passes it on, under e.mu
		got, cleaning := e.queue.TryClaim(owner, mode), e.cleaning
		e.mu.Unlock()
		if got != localqueue.Busy || cleaning == nil {
			return got
		}
		if limit == nil {
			timer := time.NewTimer(e.s.core.Config.CommandTimeout)
			defer timer.Stop()
			limit = timer.C
		}
		select {
		case <-cleaning:
		case <-limit:
			return localqueue.TimedOut
		case <-ctx.Done():
			return localqueue.Cancelled
		}
	}
}

// error adds the operation and the lock's name to err. It returns nil if err is nil.
func (l *Lock) error(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Lock: l.name, Err: err}
}

// maxHolds is the largest hold count, as in Java.
const maxHolds = math.MaxInt32
