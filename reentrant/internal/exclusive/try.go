package exclusive

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/localqueue"
	"github.com/relock-go/relock/reentrant/internal/core"
)

// A Try describes a call that takes the lock, and how long it may wait. It is passed by reference: the stack of a
// goroutine that has waited long is no longer in the processor's caches, and each copy would touch three cache lines of
// it.
type Try struct {
	Op       string
	Waits    bool
	Barges   bool      // takes a free lock even if others wait for it
	Deadline time.Time // zero: none
	Timeout  <-chan time.Time
	Fixed    time.Duration // the lease of the hold, if it is a fixed one
	Fresh    bool          // fails if the owner has the lock already
	Begun    time.Time     // zero if the session reports no events
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

// TakeAs goes through the local queue, and then asks Redis or re-enters. In a session that is being closed only an owner
// that has the lock can take it again.
func (l *Handle) TakeAs(ctx context.Context, owner core.Owner, t *Try) (bool, error) {
	e, err := l.Room.getState(l)
	if err != nil {
		return l.reenterClosed(ctx, owner, t)
	}
	if !l.Room.core.Cohort(owner, t.Fixed) { // the owners of a cohort's hold change
		t.note = noteOf(ctx)
	}
	got := e.enter(ctx, owner, t)
	if got == localqueue.Claimed {
		return e.acquireRemote(ctx, l, owner, t) // keeps this reference for the hold, or passes it to a clean-up
	}
	defer l.Room.PutState(e)
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
func (e *State) checkCleanUp() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cleaning == nil || e.s.core.Age()-e.cleaningSince < e.s.core.Config.Stall() {
		return nil
	}
	return fmt.Errorf("what an earlier caller left behind is not given back yet: %w", backend.ErrUnavailable)
}

// reenterClosed takes the lock once more, for an owner that has it in a session that is being closed.
func (l *Handle) reenterClosed(ctx context.Context, owner core.Owner, t *Try) (bool, error) {
	e := l.Room.FindState(l.Name)
	if e == nil {
		return false, core.ErrClosed
	}
	defer l.Room.PutState(e)
	if _, holds := e.Queue.Begin(owner); !holds {
		return false, core.ErrClosed
	}
	return e.reenter(ctx, owner, t)
}

// enter enters the local queue, and waits in it if the try waits.
func (e *State) enter(ctx context.Context, owner core.Owner, t *Try) localqueue.Outcome {
	mode := queueMode(owner)
	if t.Barges {
		mode |= localqueue.Barging
	}
	if !t.Waits {
		return e.tryEnter(ctx, owner, mode)
	}
	if ctx.Err() != nil {
		return localqueue.Cancelled
	}
	place := e.Queue.Reserve(owner, mode)
	if e.watched.Load() {
		e.noteWaiter(owner)
	}
	return e.wait(ctx, owner, place, t)
}

// queueMode is how an owner waits in the local queue.
func queueMode(o core.Owner) localqueue.Mode {
	if core.IsShared(o) {
		return localqueue.Shared
	}
	return localqueue.Fair
}

// tryEnter enters the local queue without waiting behind another owner. It does wait for a clean-up, for as long as one
// command may take: the clean-up may be about to release the very lock that the caller asks for.
func (e *State) tryEnter(ctx context.Context, owner core.Owner, mode localqueue.Mode) localqueue.Outcome {
	var limit <-chan time.Time
	for {
		e.mu.Lock() // a clean-up gets the baton, and passes it on, under e.mu
		got, cleaning := e.Queue.TryClaim(owner, mode), e.cleaning
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

// maxHolds is the largest hold count, as in Java.
const maxHolds = math.MaxInt32
