package sharedqueue

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// All is the number of units that a writer needs.
const All = math.MaxInt32

// MaxHolds is the highest hold count of an owner on one side.
const MaxHolds = math.MaxInt32

// Terms are the units that a session has of a name, according to a reply of the server.
type Terms struct {
	Units int           // of an RW: 0, 1 (readers) or All (a writer); of Permits: how many
	Until time.Duration // when trust in the units ends, by the clock given to NewRW or NewPermits

	// Of an RW.

	First, Last uint64 // with All: the tokens for writers are First, First+2 and so on up to Last
	Token       uint64 // below All: the last token that a writer of any session used, as far as the server knows
}

// A queue is what RW and Permits have in common. It has all that decides about admission, except the holds: the units, the
// trust in them, the line, and the request of another session. mu guards all fields whose comments do not say otherwise.
type queue[O comparable] struct {
	now   func() time.Duration // immutable
	watch func(Change[O])      // immutable; nil unless changes are reported
	until atomic.Int64         // when the trust in the units ends, a time.Duration; written under mu, and read by readers without mu

	// mu is held for a few instructions at a time. Only shards are locked under it.
	mu sync.Mutex

	units int
	line  line[O]
	shut  bool // newcomers are sent away

	// contended says that another session waits, or tries. The next Settle or Unask clears it.
	contended    bool
	awaited      bool          // the other session waits, and does not only try
	awaitedUntil time.Duration // until when awaited counts
	keepAtMost   int           // how many units the session may keep while it is contended
	inTurn       bool          // local waiters still go before the other session
	admissions   int           // admissions left in the turn
	turnEnd      time.Duration // when the turn ends at the latest

	seen need // the need at the latest Look
}

// trusted reports whether the units may be used now.
func (q *queue[O]) trusted() bool { return q.now() < time.Duration(q.until.Load()) }

// settleLocked replaces the units and ends a turn. mu is held.
func (q *queue[O]) settleLocked(units int, until time.Duration) {
	q.units, q.contended, q.awaited, q.inTurn = units, false, false, false
	q.until.Store(int64(until))
}

// askLocked begins a turn. While the queue is contended, a further call changes only keepAtMost. mu is held.
func (q *queue[O]) askLocked(keepAtMost, admissions int, turnEnd time.Duration) {
	q.keepAtMost = keepAtMost
	if !q.contended {
		q.contended, q.inTurn, q.admissions, q.turnEnd = true, admissions > 0, admissions, turnEnd
	}
}

// unaskLocked ends what askLocked began. mu is held.
func (q *queue[O]) unaskLocked() { q.contended, q.awaited, q.inTurn = false, false, false }

// noteWaiterLocked does the work of NoteWaiter for RW and Permits. mu is held.
func (q *queue[O]) noteWaiterLocked(until time.Duration) {
	q.awaited, q.awaitedUntil = q.contended, until
}

// lapseLocked clears awaited if NoteWaiter has not reported the other session again in time. mu is held.
func (q *queue[O]) lapseLocked() {
	if q.awaited && q.now() >= q.awaitedUntil {
		q.awaited = false
	}
}

// countAdmissionLocked counts an admission of the turn. mu is held.
func (q *queue[O]) countAdmissionLocked() {
	if q.inTurn {
		q.admissions--
	}
}

// overLocked reports whether another session waits and the turn is over, and ends a turn whose admissions or time are used up.
// mu is held.
func (q *queue[O]) overLocked() bool {
	if q.inTurn && (q.admissions == 0 || q.now() >= q.turnEnd) {
		q.inTurn = false
	}
	return q.contended && !q.inTurn
}

// endWaitLocked ends the wait of w. The outcome why says why w's goroutine stopped waiting, and is 0 if it was woken.
// endWaitLocked returns why if w was still in line, and otherwise the outcome with which w was woken. mu is held.
func (q *queue[O]) endWaitLocked(w *Waiter[O], why Outcome) (o Outcome, life uint64) {
	n := (*node[O])(w)
	if n.TakeTurn() {
		o, life = n.Value().outcome, n.Value().life
	} else {
		q.line.take(n)
		o = why
	}
	*n.Value() = request[O]{}
	q.line.spares.Keep(n)
	return o, life
}
