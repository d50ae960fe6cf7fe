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

// Terms are the units that a session has of a name, by the server's reply.
type Terms struct {
	Units int           // of an RW: 0, 1 (readers) or All (a writer); of Permits: how many
	Until time.Duration // when trust in them ends, by the clock of the constructor

	// Of an RW.

	First, Last uint64 // with All: the tokens for writers are First, First+2 and so on up to Last
	Token       uint64 // the last token that was used anywhere
}

// terms decide about admission together with the holds: units, the trust in them, and the request of another session.
// All fields are guarded by mu, except where it says otherwise.
type terms[O comparable] struct {
	now   func() time.Duration // immutable
	watch func(Change[O])      // immutable; nil unless changes are reported
	until atomic.Int64         // a time.Duration; written under mu, and read without it by readers

	// mu is held for a few instructions at a time. Only shards are locked under it.
	mu sync.Mutex

	units int
	line  line[O]
	shut  bool // newcomers are sent away

	// asked says that another session waits. The next Settle clears it.
	asked   bool
	may     int           // what the session may keep anyway; only Permits use it
	turn    bool          // local waiters still go before the other session
	passes  int           // admissions left in the turn
	turnEnd time.Duration // when the turn ends at the latest

	seen demand // at the latest Look
}

// trusted reports whether the units may be used now.
func (t *terms[O]) trusted() bool { return t.now() < time.Duration(t.until.Load()) }

// settleLocked replaces the units and ends a turn. mu is held.
func (t *terms[O]) settleLocked(units int, until time.Duration) {
	t.units, t.asked, t.turn = units, false, false
	t.until.Store(int64(until))
}

// askLocked begins a turn. Being asked again does not begin another. mu is held.
func (t *terms[O]) askLocked(may, passes int, turnEnd time.Duration) {
	t.may = may
	if !t.asked {
		t.asked, t.turn, t.passes, t.turnEnd = true, passes > 0, passes, turnEnd
	}
}

// unaskLocked ends what askLocked began. mu is held.
func (t *terms[O]) unaskLocked() { t.asked, t.turn = false, false }

// passLocked counts an admission of the turn. mu is held.
func (t *terms[O]) passLocked() {
	if t.turn {
		t.passes--
	}
}

// overLocked reports whether another session waits and the turn is over, and ends a turn whose passes or time are used up.
// mu is held.
func (t *terms[O]) overLocked() bool {
	if t.turn && (t.passes == 0 || t.now() >= t.turnEnd) {
		t.turn = false
	}
	return t.asked && !t.turn
}

// endWaitLocked ends the wait of w, whose goroutine stopped waiting for the reason why, or was woken if that is 0. It
// returns why if w was still in line, and otherwise what w was woken with. mu is held.
func (t *terms[O]) endWaitLocked(w *Waiter[O], why Outcome) (o Outcome, life uint64) {
	n := (*node[O])(w)
	if n.TakeTurn() {
		o, life = n.Value().outcome, n.Value().life
	} else {
		t.line.take(n)
		o = why
	}
	*n.Value() = request[O]{}
	t.line.spares.Keep(n)
	return o, life
}
