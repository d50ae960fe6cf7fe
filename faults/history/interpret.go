package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// An interpreter turns the operations on one lock into steps of the model. It decides which hold each step is about, and when a
// hold ended that did not end by Unlock.
type interpreter struct {
	h        History
	steps    []porcupine.Operation
	clients  map[string]int // numbers of clients, for pictures
	holds    int
	lost     int
	findings []string
}

// A client is the state of one client's hold, according to its own operations.
type client struct {
	name string
	hold *hold // nil: none
	owed int   // Unlocks that must still return Lost
}

// A hold is what an outermost acquire got.
type hold struct {
	id    int
	took  Op
	token uint64
	count int
}

// interpret reads the operations on one lock.
func interpret(h History, ops []Op) ([]porcupine.Operation, *interpreter) {
	in := &interpreter{h: h, clients: make(map[string]int)}
	byClient := make(map[string][]Op)
	for _, op := range ops {
		byClient[op.Client] = append(byClient[op.Client], op)
	}
	for _, name := range slices.Sorted(maps.Keys(byClient)) {
		in.clients[name] = len(in.clients)
		in.client(name, byClient[name])
	}
	for i, f := range h.Forgets {
		by := fmt.Sprintf("Redis forgets, %d", i+1)
		in.clients[by] = len(in.clients)
		v := forget
		if f.Partly {
			v = doubt
		}
		in.add(by, step{verb: v}, f.From, f.To)
	}
	return in.steps, in
}

// client reads the operations of one client, in order.
func (in *interpreter) client(name string, ops []Op) {
	slices.SortFunc(ops, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	c := &client{name: name}
	for _, op := range ops {
		switch op.Kind {
		case Acquire:
			in.acquire(c, op)
		case Unlock:
			in.unlock(c, op)
		case Await:
			in.await(c, op)
		default:
			in.look(c, op)
		}
	}
	if c.hold == nil {
		return
	}
	last := ops[len(ops)-1]
	dead, ok := in.h.Deaths[last.Process]
	if !ok {
		in.find("%s ended with the lock held", name)
		return
	}
	// An Unlock or Await without a reply, because its process died, may have been executed.
	from := in.canEnd(c.hold, dead)
	if last.Outcome == Pending && (last.Kind == Await || last.Kind == Unlock && c.hold.count == 1) {
		from = min(from, last.Call)
	}
	in.add(name, step{verb: lapse, hold: c.hold.id}, from, max(from, dead))
}

func (in *interpreter) acquire(c *client, op Op) {
	switch {
	case op.Outcome == Lost && c.hold != nil:
		in.told(c, op)
	case op.Outcome != OK:
	case c.hold != nil && (op.Token == c.hold.token || op.Token == 0 || c.hold.token == 0):
		c.hold.token = max(c.hold.token, op.Token)
		c.hold.count++
		in.step(c, reenter, op)
	default:
		if c.hold != nil { // the hold was lost without notice, and the lock acquired again, as the new token shows
			in.told(c, op)
		}
		in.holds++
		c.hold = &hold{id: in.holds, took: op, token: op.Token, count: 1}
		in.step(c, take, op)
	}
}

func (in *interpreter) unlock(c *client, op Op) {
	switch {
	case op.Outcome == Pending:
	case op.Outcome == Lost && c.hold != nil:
		in.told(c, op)
		c.owed--
	case op.Outcome == Lost && c.owed > 0:
		c.owed--
	case op.Outcome == NotHeld && c.hold == nil && c.owed == 0:
	case c.hold == nil || op.Outcome != OK && op.Outcome != Unknown:
		in.find("%s: Unlock returned %q (%s) with %d Unlocks of lost holds owed and %s", c.name, op.Outcome, op.Note, c.owed, c.hold)
	case c.hold.count > 1: // there was no reply from Redis, so the next operation corrects the count
		c.hold.count--
		in.step(c, part, op)
	case op.Outcome == Unknown:
		in.add(c.name, step{verb: lapse, hold: c.hold.id}, op.Call, op.Return)
		c.hold = nil
	default:
		in.step(c, give, op)
		c.hold = nil
	}
}

// await handles a wait for a condition, which is an Unlock and an acquire with as many holds. A wait that returned Lost may
// have given the lock up, and then nothing was lost.
func (in *interpreter) await(c *client, op Op) {
	switch {
	case op.Outcome == Pending:
	case c.hold == nil:
		if op.Outcome != Lost && op.Outcome != NotHeld {
			in.find("%s: %s returned %q without a hold", c.name, op.Kind, op.Outcome)
		}
	case op.Outcome == OK:
		count := c.hold.count
		if count == 1 {
			in.step(c, give, op)
		} else {
			in.add(c.name, step{verb: lapse, hold: c.hold.id}, op.Call, op.Return)
		}
		in.holds++
		c.hold = &hold{id: in.holds, took: op, token: op.Token, count: 1}
		in.step(c, take, op)
		for c.hold.count < count {
			c.hold.count++
			in.step(c, reenter, op)
		}
	case op.Outcome == Lost:
		in.add(c.name, step{verb: lapse, hold: c.hold.id}, min(op.Call, in.canEnd(c.hold, op.Return)), op.Return)
		c.owed += c.hold.count
		c.hold = nil
	case op.Outcome == NotHeld:
		in.find("%s: %s reports that there never was a hold", c.name, op.Kind)
	}
}

// look handles an operation that shows whether there is a hold.
func (in *interpreter) look(c *client, op Op) {
	switch {
	case op.Outcome == OK && c.hold != nil:
		in.step(c, shown, op)
	case op.Outcome == OK:
		in.find("%s: %s reports a hold that does not exist", c.name, op.Kind)
	case op.Outcome == NotHeld && c.owed == 0:
		in.find("%s: %s reports that there never was a hold", c.name, op.Kind)
	case op.Outcome == Lost && c.hold != nil:
		in.told(c, op)
	case op.Outcome == Untold && c.hold != nil:
		in.find("%s lost %s, and was not notified", c.name, c.hold)
	}
}

// told ends a hold whose loss op has reported to its owner. The hold ended at some time before that.
func (in *interpreter) told(c *client, op Op) {
	in.lost++
	from := in.canEnd(c.hold, op.Return)
	if from > op.Return {
		in.find("%s lost %s for no reason: the loss was reported %d ms before the lease could have ended", c.name, c.hold, (from-op.Return)/1e6)
		from = op.Return
	}
	in.add(c.name, step{verb: lapse, hold: c.hold.id}, from, op.Return)
	c.owed += c.hold.count
	c.hold = nil
}

// canEnd returns the earliest time at which a hold can have ended by itself. The end was noticed at the time seen.
func (in *interpreter) canEnd(h *hold, seen int64) int64 {
	at := h.took.Call + in.h.Least.Nanoseconds()
	var handed int64 // for how long a lock that Redis forgot may still be handed over
	if in.h.Local {
		handed = in.h.Lease.Nanoseconds()
	}
	for _, f := range in.h.Forgets {
		if f.To+handed >= h.took.Call && f.From <= seen {
			at = min(at, max(f.From, h.took.Call))
		}
	}
	return at
}

// step adds an operation of the owner of a hold.
func (in *interpreter) step(c *client, v verb, op Op) {
	recent := in.forgotLately(c.hold, op)
	asks := op.Kind == Verify || v == part && op.Outcome == OK
	in.add(c.name, step{verb: v, hold: c.hold.id, token: op.Token, recent: recent, late: recent && !asks}, op.Call, op.Return)
}

// forgotLately reports whether Redis forgot something during the hold, at most a lease before op.
func (in *interpreter) forgotLately(h *hold, op Op) bool {
	return slices.ContainsFunc(in.h.Forgets, func(f Span) bool {
		return h.took.Call <= f.To && f.From <= op.Return && op.Call <= f.To+in.h.Lease.Nanoseconds()
	})
}

func (in *interpreter) add(by string, s step, from, to int64) {
	s.by = by
	in.steps = append(in.steps, porcupine.Operation{ClientId: in.clients[by], Input: s, Call: from, Return: to})
}

func (in *interpreter) find(format string, args ...any) {
	in.findings = append(in.findings, strings.TrimSpace(fmt.Sprintf(format, args...)))
}

func (h *hold) String() string {
	if h == nil {
		return "no hold"
	}
	return fmt.Sprintf("hold %d × %d with token %d", h.id, h.count, h.token)
}
