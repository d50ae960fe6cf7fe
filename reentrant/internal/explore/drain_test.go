package explore

import "github.com/relock-go/relock/reentrant/internal/exclusive/machine"

// From every state that is reached, the world is left to itself: nothing fails any more, no owner wants the lock anew,
// and what is under way is lost. Every waiter must get the lock, and at the end Redis must have nothing but the
// record. The same must hold if any one of the sessions dies in that state.

// drains reports whether everything ends well from a state.
func (e *explorer) drains(s *state) bool {
	for _, dead := range e.casualties(s) {
		x := step{world: e.world, store: e.store, state: *s}
		x.drain(dead, func(s *state) bool {
			t := *s
			t.left, t.top = budget{}, 0
			t.left.ticks = uint8(dead + 1)
			return e.fresh(e.drained, &t)
		})
		if x.bad != "" {
			return false
		}
	}
	return true
}

// casualties returns which sessions may die in a state: none, -1, or one that Redis may have something of.
func (w *world) casualties(s *state) []int {
	dead := []int{-1}
	for i := range w.sessions {
		if s.sessions[i].Unreleased() || s.sessions[i].ticket != 0 {
			dead = append(dead, i)
		}
	}
	return dead
}

// patienceOfDrain is how many ticks a drain may take: more than the leases and the grants of all sessions that may have died.
const patienceOfDrain = 12

// drain lets the world end. It calls the function on in every state, and stops if that function returns false.
func (x *step) drain(dead int, on func(*state) bool) {
	x.tell("— from here on nothing fails —")
	if dead >= 0 {
		x.tell("%s dies", sessionName(uint8(dead)))
		x.sessions[dead] = x.store.fresh(x.world)
	}
	for _, it := range x.net {
		if it.wanted {
			x.wait(it.call, false)
			if int(it.call.session) != dead {
				x.unanswered(it.call)
			}
		}
	}
	clear(x.net[:])
	for limit := x.now + patienceOfDrain; x.now < limit && x.bad == ""; {
		x.keep()
		if !on(&x.state) {
			return
		}
		before := x.state
		for i := range x.world.sessions {
			x.carryOn(uint8(i))
		}
		clear(x.net[:]) // messages are lost
		x.keep()
		if x.state == before {
			if x.ended() {
				x.remains(dead)
				return
			}
			x.tick()
		}
		x.settle()
	}
	x.fail("a session is parked forever")
}

// carryOn takes a session's next step: a holder unlocks, a waiter sends a heartbeat, and what was left behind is
// given back.
func (x *step) carryOn(i uint8) {
	c := x.edit(i)
	switch {
	case c.checking:
		x.inspect(i)
	case c.moving != machine.Nothing:
		x.resume(i, promptly)
	case c.asking != verbNone:
		x.condition(action{what: asks, session: i})
	case c.trying():
		x.copy(i, promptly)
	case c.served != 0:
		x.condition(action{what: acknowledges, session: i})
	case c.dismissing:
		x.dismiss(i, promptly)
	case c.Owned() || c.Phase() == machine.Freeing || c.Phase() == machine.Vacant && c.Unreleased():
		x.release(i, promptly)
	case c.phase == told:
		x.condition(action{what: returns, session: i})
	case c.phase == torn || c.phase == waits && x.calm():
		x.condition(action{what: withdraws, session: i})
	case c.phase == waits:
		x.condition(action{what: beats, session: i})
	}
}

// calm reports whether no session does anything that could wake a waiter.
func (x *step) calm() bool {
	for i := range x.sessions {
		if c := &x.sessions[i]; !c.rests() || c.phase == told {
			return false
		}
	}
	return true
}

// rests reports whether a session has nothing and wants nothing.
func (c *client) rests() bool { return c.Phase() == machine.Vacant && !c.Unreleased() }

func (x *step) ended() bool {
	for i := range x.sessions {
		if c := &x.sessions[i]; !c.rests() || c.ticket != 0 || c.served != 0 {
			return false
		}
	}
	return true
}

// remains checks what is left when all owners have gone.
func (x *step) remains(dead int) {
	m := x.memory
	for i, v := range m.keys {
		if i != keyRecord && v.items != nil && dead < 0 && !x.orphans && !x.halved {
			x.fail("all owners have gone, and Redis has %q", v.items)
		}
	}
}
