package explore

import "github.com/relock-go/relock/reentrant/internal/exclusive/machine"

// A waiter is an owner of a session that waits for the condition, with what the session knows of its ticket.
type waiter struct {
	ticket uint8 // 0: none
	phase  phase
	placed bool  // it was put in line for the lock
	coming bool  // the attempt is the one by which the waiter's owner takes the lock again
	served uint8 // the ticket of a waiter that is back, until its return is acknowledged
	asking verb  // the await or signal that had no reply
	who    uint8 // the waiter's owner
	back   uint8 // the holds with which the owner comes back
}

type phase uint8

const (
	_ phase = iota
	waits
	told // it has learned that it is signalled
	torn // it is to be withdrawn: its await had no reply in time
)

// waits appends to all what a session can do about the condition. Some of these actions belong to the session's heartbeat and
// to its waiting owners, and not to the head.
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
	case c.busy || c.target != 0 || c.moving != machine.Nothing:
	case c.asking != verbNone:
		add(asks)
	case c.Owned():
		if s.left.awaits > 0 && c.ticket == 0 && c.served == 0 && c.count < w.attempts {
			add(awaits)
		}
		if s.left.signals > 0 {
			add(signals)
		}
	case c.phase == told && c.rests():
		add(returns)
	}
	return all
}

// condition carries out an action that waits has returned.
func (x *step) condition(a action) {
	i, c := a.session, x.edit(a.session)
	switch a.what {
	case awaits:
		x.left.awaits--
		c.count++
		c.ticket, c.asking, c.who, c.back = c.count, verbAwait, c.Hold().Owner, c.holds
		c.StartLeaving()
		c.Operate()
		x.send(x.ask(i), a.way)
	case signals:
		x.left.signals--
		c.Operate()
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
		x.comeBack(i)
	}
}

// comeBack makes the owner that was signalled take the lock again. If Redis has put the session in line, the owner takes over
// that place.
func (x *step) comeBack(i uint8) {
	c := x.edit(i)
	head := x.head(queueUp, c.who)
	head.Holds = int(c.back)
	if c.placed {
		head.Ticket = uint64(c.ticket)
	}
	c.coming, c.owner, c.woken = true, c.who, false
	if s := c.Begin(x.at(c), head); s.Do == machine.Park {
		x.tell("%s takes over the place that came with the signal", sessionName(i))
		return
	}
	x.copy(i, promptly)
}

// ask returns the await or signal that the holder has under way.
func (x *step) ask(i uint8) call {
	c := x.edit(i)
	if c.asking == verbSignal {
		return call{verb: verbSignal, session: i, epoch: uint8(c.Epoch()), op: uint8(c.Hold().Op)}
	}
	return call{verb: verbAwait, session: i, owner: c.who, epoch: uint8(c.Epoch()), ticket: c.ticket, holds: c.holds, seen: c.seen,
		doubt: x.doubt(c.PendingUntil(x.at(c)))}
}

// heard handles the reply to an await or a signal.
func (x *step) heard(a call, res result) {
	c := x.edit(a.session)
	switch a.verb {
	case verbAwait:
		c.asking = verbNone
		switch res.code {
		case 1:
			c.phase = max(c.phase, waits) // its signal may have been heard already
		case 2:
			c.signalled(c.ticket, false)
		default:
			c.waiter = waiter{served: c.served}
			x.follow(a.session, c.Operated(true, true))
			return
		}
		c.Operated(true, false)
		c.Left()
		x.goOn(a.session)
	case verbSignal:
		c.asking = verbNone
		x.follow(a.session, c.Operated(true, res.code == gone))
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

// tornOff handles the reply to a withdrawal: the ticket is gone, or its owner is signalled all the same. An owner whose
// ticket is gone comes back like any other that wants the lock.
func (x *step) tornOff(c *client, res result) {
	if res.code == 2 && c.phase != torn {
		c.signalled(c.ticket, false)
		return
	}
	x.orphans = x.orphans || res.code == 2 // its signal stays for the next waiter, or expires
	c.waiter = waiter{served: c.served, asking: c.asking}
}

// signalled notes that a ticket is signalled. A ticket that may have been given up is only withdrawn: its signal goes to
// the next waiter after its deadline.
func (c *client) signalled(number uint8, placed bool) {
	if c.ticket == number && c.phase != torn && c.phase != told {
		c.phase, c.placed = told, placed
	}
}

// arrived notes that the head has the lock: if the head waited for the condition, its wait is over.
func (c *client) arrived() {
	if c.coming {
		c.waiter = waiter{served: c.ticket}
	}
}
