package explore

import (
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/sharedqueue"
)

// The states of a user.
type userState uint8

const (
	userAway userState = iota
	userWaits
	userInside
	userDone
	userLost // a writer that has not noticed its loss yet, and may still write
)

// A shareTier is the local tier of a session, as package sharedqueue is in a program, but without goroutines: a value.
// Each user comes once.
type shareTier struct {
	units      int
	until      time.Duration // the units are trusted before this time
	used       backend.Token // the last token that is known to be used
	next, last backend.Token // the block of tokens that is left
	asked      bool          // another session waits, and the field may says how many units this one may keep
	turn       bool          // the users of this session go first until turnEnd
	may        int
	turnEnd    time.Duration
	since      time.Duration // when the head became the first, in worlds with turns
	came       bool          // a user was let in since the latest Rest
	users      [maxOps]userState
	tokens     [maxOps]backend.Token
}

// shareUsers are the methods of a session's local tier.
type shareUsers struct {
	x *shareStep
	s int
}

func (u *shareUsers) tier() *shareTier   { return &u.x.sessions[u.s].tier }
func (u *shareUsers) now() time.Duration { return age(u.x.now) }
func (u *shareUsers) trusted() bool      { return u.now() < u.tier().until }

// all calls f for the users in the given state, in the order of their arrival, until f returns false.
func (u *shareUsers) all(state userState, f func(i, need int) bool) {
	for i, need := range u.x.ops[u.s] {
		if u.tier().users[i] == state && !f(i, need) {
			return
		}
	}
}

// count returns how many users are in the given state, what they need together, and how many of them write.
func (u *shareUsers) count(state userState) (n, units, writers int) {
	u.all(state, func(_, need int) bool {
		n++
		if units += need; u.x.rw() && need == allUnits {
			writers++
		}
		return true
	})
	return n, units, writers
}

// inUse returns how many units are in use.
func (u *shareUsers) inUse() int {
	n, units, writers := u.count(userInside)
	switch {
	case !u.x.rw():
		return units
	case writers > 0:
		return allUnits
	}
	return min(n, 1)
}

// head returns the first waiting user, -1 if there is none.
func (u *shareUsers) head() int {
	head := -1
	u.all(userWaits, func(i, _ int) bool {
		head = i
		return false
	})
	return head
}

// over reports whether another session waits and this session's turn is over. The turn of a writing session goes on only
// while a writer is inside or waits.
func (u *shareUsers) over() bool {
	t := u.tier()
	_, _, inside := u.count(userInside)
	_, _, waiting := u.count(userWaits)
	if u.x.rw() && inside+waiting == 0 || u.now() >= t.turnEnd {
		t.turn = false
	}
	return t.asked && !t.turn
}

// fits reports whether a user that needs so many units can be let in as the next.
func (u *shareUsers) fits(need int) bool {
	t, used := u.tier(), u.inUse()
	switch {
	case !u.trusted():
		return false
	case !u.x.rw():
		return used+need <= t.units && u.within(need) && (used+need <= t.may || !u.over())
	case used == allUnits || u.over() || t.asked && t.units < allUnits:
		return false
	case need == 1:
		return t.units > 0
	}
	return t.units == allUnits && t.next <= t.last && used == 0
}

// within reports whether a user that needs so many permits stays within the limit, or is alone.
func (u *shareUsers) within(need int) bool {
	return u.inUse() == 0 || u.inUse()+need <= u.x.limit[u.s]
}

// take uses the next token of the block.
func (u *shareUsers) take() backend.Token {
	t := u.tier()
	t.used, t.next = t.next, t.next+2
	return t.used
}

// admit lets users in, in the order of their arrival.
func (u *shareUsers) admit() {
	t := u.tier()
	for i := u.head(); i >= 0 && u.fits(u.x.ops[u.s][i]); i = u.head() {
		t.users[i], t.came = userInside, true
		switch {
		case !u.x.rw():
		case u.x.ops[u.s][i] == allUnits:
			t.tokens[i] = u.take()
		default:
			if t.units == allUnits && t.used == 0 {
				u.take() // what is read now must differ from what is read after the first writer
			}
			u.x.read(u.s)
		}
		u.headed()
	}
}

// headed notes the time at which another user becomes the head.
func (u *shareUsers) headed() {
	if u.x.turn > 0 {
		u.tier().since = u.now()
	}
}

// enter lets a user in, or in line. A user that makes a single attempt does not wait for users of its own session.
func (u *shareUsers) enter(i int) {
	need, waiting := u.x.ops[u.s][i], u.head() >= 0
	blocked := waiting || !u.within(need)
	if used := u.inUse(); u.x.rw() {
		blocked = waiting || used == allUnits || used > 0 && need == allUnits
	}
	if blocked && u.x.once[u.s][i] {
		u.tier().users[i] = userDone
		return
	}
	if u.tier().users[i] = userWaits; !waiting {
		u.headed()
	}
	u.admit()
}

// exit lets a user out that is inside or waits.
func (u *shareUsers) exit(i int) {
	if u.head() == i {
		u.headed()
	}
	u.tier().users[i] = userDone
	u.admit()
}

func (u *shareUsers) Settle(terms sharedqueue.Terms) {
	t := u.tier()
	u.x.must(terms.Units >= u.inUse(), "%s settles for fewer units than are in use", sessionName(uint8(u.s)))
	switch {
	case !u.x.rw():
	case terms.Units < allUnits:
		t.next, t.last, t.used = 1, 0, backend.Token(terms.Token)
	default:
		first := backend.Token(terms.First)
		switch t.units {
		case allUnits:
			first = max(first, t.next)
		case 0:
			t.used = 0
		}
		t.next, t.last = first, backend.Token(terms.Last)
	}
	t.units, t.until, t.asked, t.turn = terms.Units, terms.Until, false, false
	u.x.sessions[u.s].flushed = u.x.old && t.units > 0
	u.admit()
}

func (u *shareUsers) Trust(until time.Duration) {
	u.tier().until = until
	c := &u.x.sessions[u.s]
	c.flushed = c.flushed && u.x.old
	u.admit()
}

func (u *shareUsers) Ask(may, passes int, turnEnd time.Duration) {
	t := u.tier()
	if t.may = may; !t.asked {
		t.asked, t.turn, t.turnEnd = true, passes > 0, turnEnd
	}
	if !u.x.rw() {
		u.admit()
	}
}

func (u *shareUsers) Unask() {
	t := u.tier()
	t.asked, t.turn = false, false
	u.admit()
}

// Only the channels of Wanted depend on NoteWaiter and NotePlaced.
func (u *shareUsers) NoteWaiter(time.Duration) {}
func (u *shareUsers) NotePlaced()              {}

func (u *shareUsers) Keep(units int) (kept int, used backend.Token) {
	t := u.tier()
	t.units = min(t.units, max(units, u.inUse()))
	if u.x.rw() {
		used = t.used
	}
	if t.units < allUnits {
		t.next, t.last = 1, 0
	}
	if t.units == 0 {
		t.used, u.x.sessions[u.s].flushed = 0, false
	}
	return t.units, used
}

// Lose takes the units from all users inside. While a session trusts its units, the server must have them, unless the
// server lost its memory.
func (u *shareUsers) Lose(why string) (notify func()) {
	t, c := u.tier(), &u.x.sessions[u.s]
	u.x.must(t.units == 0 || !u.trusted() || c.flushed, "%s learns that %s, but has lost nothing", sessionName(uint8(u.s)), why)
	u.all(userInside, func(i, need int) bool {
		t.users[i] = userDone
		if u.x.rw() && need == allUnits {
			t.users[i] = userLost
		}
		return true
	})
	t.units, t.used, t.next, t.last, c.flushed = 0, 0, 1, 0, false
	return nil
}

func (u *shareUsers) EndTries(need int) {
	u.all(userWaits, func(i, n int) bool {
		if !u.x.rw() {
			n += u.inUse()
		}
		if u.x.once[u.s][i] && n >= need {
			u.tier().users[i] = userDone
			u.headed()
		}
		return true
	})
	u.admit()
}

// FailTries ends tries as EndTries(0) does: nothing here looks at the reason.
func (u *shareUsers) FailTries() { u.EndTries(0) }

func (u *shareUsers) Expel() {
	u.all(userWaits, func(i, _ int) bool {
		u.tier().users[i] = userDone
		return true
	})
}

func (u *shareUsers) Rest() bool {
	t := u.tier()
	rest := u.inUse() == 0 && u.head() < 0 && !t.came
	t.came = false
	return rest
}

func (u *shareUsers) Look() sharedqueue.State {
	t, used := u.tier(), u.inUse()
	n, units, writers := u.count(userWaits)
	st := sharedqueue.State{
		Units: t.units, InUse: used, Waiting: n, Limit: u.x.limit[u.s], Since: t.since, Writers: writers,
		Asked: t.asked, TurnOver: u.over() || u.x.rw() && t.asked && t.units < allUnits,
	}
	if u.x.rw() {
		st.Spent, st.Used = t.next > t.last, uint64(t.used)
	}
	if i := u.head(); i >= 0 {
		st.Head, st.Once, st.Want = u.x.ops[u.s][i], u.x.once[u.s][i], used+units
		if u.x.rw() {
			st.Want = max(used, st.Head)
		}
	}
	return st
}
