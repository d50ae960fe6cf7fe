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
	"github.com/relock-go/relock/reentrant/internal/lease"
)

// A Lock is a name that at most one owner in the whole deployment holds at a time, as often as it likes. It behaves
// like java.util.concurrent.locks.ReentrantLock with one difference in form: what Java takes from the current
// thread, owner and interrupt, is taken from the context.
//
// A Lock is a handle. Equal names of one session share one queue and one hold, whichever Lock they are reached by.
// It is safe for concurrent use and must not be copied.
//
// Within this process the n'th Unlock synchronizes before the return of the m'th Lock for n < m. Between processes
// there is no such edge: there is exclusion for as long as leases are trusted, and the [Token] beyond that.
type Lock struct {
	_         noCopy
	session   *Session
	name      string
	remote    backend.Remote
	invalid   error // what is wrong with the name or the options; every call returns it
	fixed     time.Duration
	unfair    bool
	lazyID    atomic.Uint32             // see id
	lastState atomic.Pointer[lockState] // by which a cohort's owner last got it: a hint for reenterFast
}

// noCopy lets go vet's copylocks check find copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// NewLock returns the lock with a name. It sends nothing; a name that the backend refuses (an empty one, for
// instance) or an impossible option is the error of every call on the Lock.
func (s *Session) NewLock(name string, opts ...LockOption) *Lock {
	l := &Lock{session: s, name: name}
	for _, opt := range opts {
		opt(l)
	}
	switch {
	case name == "":
		l.invalid = errors.New("the name of a lock must not be empty")
	case l.fixed < 0 || l.fixed > 0 && l.fixed < lease.Min:
		l.invalid = fmt.Errorf("WithFixedLease(%v): at least %v", l.fixed, lease.Min)
	case l.fixed > maxLease:
		l.invalid = fmt.Errorf("WithFixedLease(%v): at most %v", l.fixed, maxLease)
	case strings.HasPrefix(name, backend.ConditionsPrefix):
		l.invalid = errReserved
	default:
		l.remote, l.invalid = s.conn.Bind(name)
	}
	return l
}

// errReserved is what is wrong with a name that a read-write lock's conditions have.
var errReserved = fmt.Errorf("names that begin with %q are reserved", backend.ConditionsPrefix)

// Name is the lock's name.
func (l *Lock) Name() string { return l.name }

// Lock takes the lock, waiting in turn for as long as ctx lasts: behind those of this process who came before, and
// as their head behind the heads of other processes. It is Java's lockInterruptibly, with ctx as the interrupt.
//
// An owner that holds the lock takes it again at once. A ctx that has ended wins over everything, also over
// re-entry, and leaves the holds as they were.
//
// It returns nil when the caller holds the lock; an error for which errors.Is(err, ctx.Err()) holds when ctx ended
// it, joined with the backend's last error if it could not be reached; the server's own words at once when it
// refused ([Refused]); [ErrClosed]; [ErrTooManyHolds]; [ErrLost] if the owner's hold is lost while it re-enters.
// While the backend cannot be reached, Lock keeps trying. After an error nothing is held that was not held before;
// what the server may still have is given back in the background, and expires with the lease at the latest.
func (l *Lock) Lock(ctx context.Context) error {
	if l.session.config.cohort && l.reenterFast(ctx) {
		return nil
	}
	_, err := l.acquire(ctx, &try{op: "lock", waits: true, barges: l.unfair})
	return err
}

// TryLock takes the lock if it is free (or the caller's own), with one attempt that does not wait and does not
// care who else waits: like Java's, it barges even past a fair queue. It returns false without a command while
// another owner of this process holds the lock or waits for it in Redis.
//
// Errors are those of Lock. A backend that cannot be reached is an error, never "somebody else has it"; re-entry, too, is
// asked for once.
func (l *Lock) TryLock(ctx context.Context) (bool, error) {
	return l.acquire(ctx, &try{op: "try lock", barges: true})
}

// TryLockFor takes the lock if its turn comes within wait. It honours the queue (as far as [WithFairness] asks for
// it), and tries once at least: with a wait of zero or less it makes one attempt that neither waits nor barges. It answers (false, nil) when the time is
// up, and an error when ctx ended first; other errors are those of Lock.
func (l *Lock) TryLockFor(ctx context.Context, wait time.Duration) (bool, error) {
	t := try{op: "try lock", waits: wait > 0, barges: l.unfair}
	if t.waits {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		t.timeout, t.deadline = timer.C, time.Now().Add(wait)
	}
	return l.acquire(ctx, &t)
}

// A try says how much an acquire is ready to wait. Callers of Lock pass it by reference: the stack of a goroutine that has
// waited long is no longer in the processor's caches, and each copy would be three cache lines of it.
type try struct {
	op       string
	waits    bool
	barges   bool      // takes a free lock whoever else waits for it
	deadline time.Time // zero: none
	timeout  <-chan time.Time
	fixed    time.Duration // the lease of the hold, if it is a fixed one
	fresh    bool          // a lock that the owner has already is not wanted
	begun    time.Time     // if anybody wants to know
	note     string        // of the hold, if it is a new one

	// An owner that comes back from a condition: the holds it had, and its ticket if Redis has already queued the
	// session for it.
	holds    int
	ticket   uint64
	ahead    time.Duration // how far the wall clock was ahead when it got the ticket
	notifier *lossNotifier // of the hold it had
}

// acquire is every way to take the lock, with a look out for deadlocks if the session is to have one and the wait does not
// end by itself. On return the baton is with the holder if it returns true, and otherwise where the function that gave up
// sent it.
func (l *Lock) acquire(ctx context.Context, t *try) (ok bool, err error) {
	t.begun, t.fixed = l.session.now(), l.fixed
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

// take goes through the local queue, and then does what is left to do. In a session that is being closed only an owner
// that has the lock gets it.
func (l *Lock) take(ctx context.Context, t *try) (bool, error) {
	owner, err := l.admit(ctx)
	if err != nil {
		return false, err
	}
	e, err := l.session.getState(l)
	if err != nil {
		return l.reenterClosed(ctx, owner, t)
	}
	t.note = noteOf(ctx)
	got := e.enter(ctx, owner, t)
	if got == localqueue.Claimed {
		return e.acquireRemote(ctx, l, owner, t) // keeps this reference for the hold, or passes it to a clean-up
	}
	defer l.session.putState(e, 1)
	switch {
	case got == localqueue.Reentered:
		return e.reenter(ctx, owner, t)
	case got != localqueue.Cancelled:
		return false, e.cleanedUp()
	case ctx.Err() != nil:
		return false, interruptedBy(ctx, "in this process's queue", nil)
	}
	return l.reenterClosed(ctx, owner, t) // expelled
}

// cleanedUp returns an error if the baton is with a clean-up that Redis does not answer: no owner of this process has the
// lock, and Redis has not been asked who has. One that has only begun is no error: the caller's time is up.
func (e *lockState) cleanedUp() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cleaning == nil || time.Since(e.s.opened)-e.cleaningSince < e.s.config.stall() {
		return nil
	}
	return fmt.Errorf("what an earlier caller left behind is not given back yet: %w", ErrUnavailable)
}

// reenterClosed takes the lock once more in a session that is being closed.
func (l *Lock) reenterClosed(ctx context.Context, owner Owner, t *try) (bool, error) {
	e := l.session.findState(l.name)
	if e == nil {
		return false, ErrClosed
	}
	defer l.session.putState(e, 1)
	if _, holds := e.queue.Begin(owner); !holds {
		return false, ErrClosed
	}
	return e.reenter(ctx, owner, t)
}

// enter goes through the local queue.
func (e *lockState) enter(ctx context.Context, owner Owner, t *try) localqueue.Outcome {
	mode := owner.queueMode()
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
	return e.queue.Wait(place, ctx.Done(), t.timeout)
}

// queueMode is how the owner waits in the local queue.
func (o Owner) queueMode() localqueue.Mode {
	if o.shared() {
		return localqueue.Shared
	}
	return localqueue.Fair
}

// tryEnter goes through the local queue without waiting behind anybody. A clean-up after somebody who has left is
// nobody: it is waited for, for as long as one command may take, since what it gives back may be the lock that is asked for.
func (e *lockState) tryEnter(ctx context.Context, owner Owner, mode localqueue.Mode) localqueue.Outcome {
	var limit <-chan time.Time
	for {
		e.mu.Lock() // under which a clean-up gets the baton, and gives it on
		got, cleaning := e.queue.TryClaim(owner, mode), e.cleaning
		e.mu.Unlock()
		if got != localqueue.Busy || cleaning == nil {
			return got
		}
		if limit == nil {
			timer := time.NewTimer(e.s.config.commandTimeout())
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

// admit checks what every call that takes the lock needs, and tells who calls.
func (l *Lock) admit(ctx context.Context) (Owner, error) {
	owner, err := l.caller(ctx)
	if err == nil && ctx.Err() != nil {
		err = interruptedBy(ctx, "before the call", nil)
	}
	return owner, err
}

// caller tells who calls.
func (l *Lock) caller(ctx context.Context) (Owner, error) {
	if ctx == nil {
		return Owner{}, errors.New("nil context")
	}
	if l.invalid != nil {
		return Owner{}, l.invalid
	}
	owner := CurrentOwner(ctx)
	switch {
	case owner.shared():
		return owner, owner.check()
	case l.session.config.explicit:
		return Owner{}, ErrNoOwner
	}
	return owner, nil
}

// error says which call of which lock failed.
func (l *Lock) error(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Lock: l.name, Err: err}
}

// maxHolds is where Java stops counting too.
const maxHolds = math.MaxInt32
