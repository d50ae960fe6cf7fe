package reentrant

import (
	"context"
	"time"

	"github.com/relock-go/relock/reentrant/internal/core"
)

// An Observer receives the events of a session's locks, for metrics, traces and tests.
type Observer interface {
	// Observe handles one event. Events come one at a time, and those of one lock in the order in which they happened,
	// in a goroutine of the session's: an observer that is slow, blocks or panics delays no lock and no other call. The
	// price is that a call may return before its event is observed.
	//
	// Each EventAcquired is followed by one EventReleased or EventLost of the same owner and [Mode]. For permits it is
	// followed by one or more of them, for as many permits in all. So an observer that counts them sees one holder of a Lock
	// at a time, never a writer beside a reader, and never more permits than the semaphore has. (This is about one session.
	// One more EventLost says that an owner could not come back from [Condition.Await], after its EventReleased.) By its
	// events an owner has one side of an RWLock at a time: a writer that takes the read side re-enters; when it gives up the
	// write side and goes on as a reader, EventReleased of ModeWrite is followed by EventAcquired of ModeRead.
	//
	// ctx is that of the call (with EventAcquired, EventReentered, EventFailed and EventReleased), for its values; it may
	// have ended by now. With all other events it is context.Background.
	//
	// While Observe blocks, ten thousand events wait. Beyond that they are dropped: [Stats] counts them, and the log has
	// a warning. If Observe panics, or ends its goroutine ([runtime.Goexit]), the event is lost. The log reports the first
	// such failure only. [Session.Close] waits until all events have been observed, but not for more than a second.
	Observe(ctx context.Context, e Event)
}

// EventKind says what happened.
type EventKind = core.EventKind

const (
	// EventAcquired: an owner got a lock that it did not hold, came back from [Condition.Await], or moved its hold by Resume.
	// Wait is how long that took.
	EventAcquired = core.EventAcquired
	// EventReentered: an owner got a lock once more.
	EventReentered = core.EventReentered
	// EventFailed: a call that asked for a lock did not get it, after Wait. Err is the reason; nil if another owner had
	// the lock for as long as the call would wait.
	EventFailed = core.EventFailed
	// EventReleased: an owner gave up its last hold after Held, by Unlock or by Await; or its last hold of a side; or
	// permits. HandedOff says that the next owner of a Lock is of the same session. Any caller may release permits: Held is
	// then for how long the caller had its latest permits or, if the caller has none, for how long the oldest permits of all
	// were in use.
	EventReleased = core.EventReleased
	// EventYielded: the turn of the session was over, and another session got the lock.
	EventYielded = core.EventYielded
	// EventLost: the hold was lost, after Held. Err says how the session noticed the loss, and wraps ErrLost.
	EventLost = core.EventLost
	// EventWaitingLong: a call has waited for longer than the session's lease, in this process's queue or in Redis. It is
	// reported once per wait. Holders are those of this process first, never the caller itself. The session asks the backend
	// for the other holders: State, or Shared, is what the backend says, nil if it did not answer. Of a Lock that an owner of
	// this session holds, State is what the session knows itself. Err is the backend's last error, nil if another owner holds
	// the lock. OfParent says that the call was made with the context of a Do that has the lock, for instance by a goroutine
	// that Do's function started. That goroutine is another owner, and waits for the end of the Do, which may wait for it.
	EventWaitingLong = core.EventWaitingLong
	// EventRenewalFailing: the lease of a hold could not be renewed, for the reason in Err. The session tries again.
	EventRenewalFailing = core.EventRenewalFailing
	// EventRenewalRecovered: the renewal succeeded after failures.
	EventRenewalRecovered = core.EventRenewalRecovered
)

// A Mode is the side of a read-write lock, or the kind of hold, that a call took or gave up.
type Mode = core.Mode

const (
	// ModeLock: a Lock, which has one mode.
	ModeLock = core.ModeLock
	// ModeWrite: the write side of an RWLock.
	ModeWrite = core.ModeWrite
	// ModeRead: the read side of an RWLock.
	ModeRead = core.ModeRead
	// ModePermits: permits of a Semaphore.
	ModePermits = core.ModePermits
)

// An Event is something that happened to a lock. Fields that do not belong to its kind are zero.
//
//	Kind      EventKind
//	At        time.Time // when it happened
//	Lock      string    // its name, or that of the RWLock or Semaphore
//	Mode      Mode      // with EventAcquired, EventReentered, EventFailed, EventReleased and EventLost
//	Owner     Owner
//	Token     Token
//	Wait      time.Duration
//	Held      time.Duration
//	HandedOff bool
//	Permits   int          // with ModePermits: how many
//	Holders   []Holder     // only with EventWaitingLong, like State, Shared and OfParent
//	State     *State       // of a Lock
//	Shared    *SharedState // of an RWLock or a Semaphore
//	OfParent  bool
//	Err       error
type Event = core.Event

// A Holder has what a call waits for.
//
//	Session  string
//	Owner    string    // as Owner.String prints it; "" if it is not known, as that of another session's reader
//	Mode     Mode      // what it has
//	Permits  int       // with ModePermits: how many
//	Note     string    // WithNote; for another session the note of its latest user that has one
//	Since    time.Time // zero if that is not known
//	Unlocked bool      // it has unlocked a Lock that stays taken (WithAtLeast)
type Holder = core.Holder

// reportFailed reports that a call that asked for the lock did not get it.
func (l *Lock) reportFailed(ctx context.Context, begun time.Time, err error) {
	if !l.session.core.Reporting {
		return
	}
	if ctx == nil {
		ctx = context.Background()
	}
	l.session.core.Report(ctx, Event{Kind: EventFailed, Lock: l.handle.Name, Owner: core.CurrentOwner(ctx), Wait: time.Since(begun), Err: err})
}
