package explore

// From every state that is reached, the explorer lets the world run down: nothing fails any more, no owner wants the
// lock anew, and messages and commands under way are lost. Every waiter must then get the lock, and at the end Redis
// must have only the record. The same is tried once for each session that dies in that state.

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

// casualties returns which sessions may die in a state: -1 for none, and each one of which Redis may have something.
func (w *world) casualties(s *state) []int {
	dead := []int{-1}
	for i := range w.sessions {
		if s.sessions[i].owes || s.sessions[i].ticket != 0 {
			dead = append(dead, i)
		}
	}
	return dead
}

// patienceOfDrain is how many ticks a drain may take: more than the leases and the grants of all sessions that may have
// died.
const patienceOfDrain = 12

// drain lets the world run down. on is called in every state and reports whether to go on.
func (x *step) drain(dead int, on func(*state) bool) {
	x.tell("— from here on nothing fails —")
	if dead >= 0 {
		x.tell("%s dies", sessionName(uint8(dead)))
		x.sessions[dead] = client{}
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
		if !on(&x.state) {
			return
		}
		before := x.state
		for i := range x.world.sessions {
			x.carryOn(uint8(i))
		}
		clear(x.net[:]) // messages are lost
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

// carryOn takes a session's next step: a holder unlocks, a waiter sends a heartbeat, and what earlier attempts left is
// released.
func (x *step) carryOn(i uint8) {
	c := &x.sessions[i]
	switch {
	case c.asking != verbNone:
		x.condition(action{what: asks, session: i})
	case c.mode == trying && c.stale:
		x.attempt(i, c.flags, c.owner, promptly)
	case c.mode == trying:
		x.send(x.acquire(i), promptly)
	case c.served != 0:
		x.condition(action{what: acknowledges, session: i})
	case c.owes:
		x.release(i, promptly)
	case c.phase == told:
		x.condition(action{what: returns, session: i})
	case c.phase == torn || c.phase == waits && x.calm():
		x.condition(action{what: withdraws, session: i})
	case c.phase == waits:
		x.condition(action{what: beats, session: i})
	}
}

// calm reports whether no session will do anything that could wake a waiter.
func (x *step) calm() bool {
	for _, c := range x.sessions {
		if c.mode != idle || c.owes || c.phase == told {
			return false
		}
	}
	return true
}

func (x *step) ended() bool {
	for _, c := range x.sessions {
		if c.mode != idle || c.owes || c.ticket != 0 || c.served != 0 {
			return false
		}
	}
	return true
}

// remains checks what Redis has when all owners have left.
func (x *step) remains(dead int) {
	m := x.memory
	for i, v := range m.keys {
		if i != keyRecord && v.items != nil && dead < 0 && !x.orphans && !x.halved {
			x.fail("all owners have left, and Redis still has %q", v.items)
		}
	}
}
