package explore

// A waiter is an owner of a session that waits for the condition, and what the session knows of its ticket.
type waiter struct {
	ticket uint8 // 0: none
	phase  phase
	placed bool  // its session was put into the queue for the lock
	coming bool  // the session's attempt is for this owner, which acquires the lock again
	served uint8 // the ticket of an owner that has returned, until its signal is acknowledged
	asking verb  // the await or signal that had no reply yet
}

type phase uint8

const (
	_ phase = iota
	waits
	told // the session has learned that the ticket is signalled
	torn // the ticket is to be withdrawn: its await had no reply in time
)

// waits returns what a session can do about the condition besides the head's steps: some of it is done by its
// heartbeat, and some by waiting owners.
func (w *world) waits(all []action, s *state, i uint8) []action {
	c := &s.sessions[i]
	add := func(a what) {
		for way := range s.ways() {
			if way == promptly || way != slow && a != returns {
				all = append(all, action{what: a, session: i, way: way})
			}
		}
		if a != returns {
			all = s.stops(all, action{what: a, session: i})
		}
	}
	if c.phase == waits {
		add(beats)
	}
	if c.phase == waits || c.phase == torn {
		add(withdraws)
	}
	if c.served != 0 {
		add(acknowledges)
	}
	switch {
	case c.busy || c.target != 0:
	case c.asking != verbNone:
		add(asks)
	case c.mode == holding:
		if s.left.awaits > 0 && c.ticket == 0 && c.served == 0 && c.count < w.attempts {
			add(awaits)
		}
		if s.left.signals > 0 {
			add(signals)
		}
	case c.phase == told && (c.mode == idle && !c.owes || c.coming && c.stale):
		add(returns)
	}
	return all
}

// condition carries out one of the actions that waits returns.
func (x *step) condition(a action) {
	i, c := a.session, &x.sessions[a.session]
	switch a.what {
	case awaits:
		x.left.awaits--
		c.count++
		c.ticket, c.asking = c.count, verbAwait
		x.send(x.ask(i), a.way)
	case signals:
		x.left.signals--
		c.op++
		c.asking = verbSignal
		x.send(x.ask(i), a.way)
	case asks:
		x.send(x.ask(i), a.way)
	case beats:
		x.send(call{verb: verbBeat, session: i, ticket: c.ticket}, a.way)
	case withdraws:
		x.send(call{verb: verbWithdraw, session: i, ticket: c.ticket}, a.way)
	case acknowledges:
		x.send(call{verb: verbBeat, session: i, ticket: c.served, all: true}, a.way)
	case returns:
		c.coming = true
		if !c.placed || c.epoch >= c.ticket { // the place is missing, or its attempt has already had the lock
			x.attempt(i, queueUp, 1, promptly)
			return
		}
		x.tell("%s takes over the place that came with the signal", sessionName(i))
		c.mode, c.epoch, c.owner, c.flags, c.owes, c.refuted, c.used = trying, c.ticket, 1, queueUp, true, 0, 0
	}
}

// ask returns the await or signal to which the holder has no reply yet.
func (x *step) ask(i uint8) call {
	c := &x.sessions[i]
	if c.asking == verbSignal {
		return call{verb: verbSignal, session: i, epoch: c.epoch, op: c.op}
	}
	a := call{verb: verbAwait, session: i, owner: 1, epoch: c.epoch, ticket: c.ticket, holds: c.holds, seen: c.seen}
	if c.doubtful > x.now {
		a.doubt = c.doubtful - x.now
	}
	return a
}

// heard handles the reply to an await or a signal.
func (x *step) heard(a call, res result) {
	c := &x.sessions[a.session]
	switch a.verb {
	case verbAwait:
		c.asking = verbNone
		switch res.code {
		case 1:
			c.phase = max(c.phase, waits) // the message of its signal may have arrived before
		case 2:
			c.signalled(c.ticket, false)
		default:
			c.waiter = waiter{served: c.served}
			x.lose(a.session)
			return
		}
		c.mode, c.owes = idle, false
	case verbSignal:
		if c.asking = verbNone; res.code == gone {
			x.lose(a.session)
		}
		for _, number := range res.numbers[2:] {
			c.signalled(uint8(number), false)
		}
	case verbBeat:
		if a.all && c.served == a.ticket {
			c.served = 0
		} else if !a.all && res.code == 2 {
			c.signalled(a.ticket, false)
		}
	case verbWithdraw:
		x.tornOff(c, res)
	}
}

// tornOff handles the reply to a withdrawal: the ticket is gone, or its owner has been signalled nevertheless. An owner
// without a ticket acquires the lock again like any other owner.
func (x *step) tornOff(c *client, res result) {
	if res.code == 2 && c.phase != torn {
		c.signalled(c.ticket, false)
		return
	}
	x.orphans = x.orphans || res.code == 2 // its signal goes to the next waiter, or expires
	c.waiter = waiter{served: c.served, asking: c.asking}
}

// signalled records that a ticket is signalled. If the ticket may have been given up, it is only withdrawn, and its
// signal goes to the next waiter after the signal's deadline.
func (c *client) signalled(number uint8, placed bool) {
	if c.ticket == number && c.phase != torn && c.phase != told {
		c.phase, c.placed = told, placed
	}
}

// arrived records that the head has the lock: if the head waited for the condition, its wait is over.
func (c *client) arrived() {
	if c.coming {
		c.waiter = waiter{served: c.ticket}
	}
}
