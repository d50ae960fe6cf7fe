package explore

import "fmt"

// check returns what is wrong with a state: a session that trusts a lease must have the lock, so no other session may
// trust one.
func (x *step) check() {
	if x.memory.broken != "" && !x.halved {
		x.fail("%s", x.memory.broken)
	}
	for i := range x.sessions {
		c := &x.sessions[i]
		if c.mode != holding {
			continue
		}
		m, name := x.memory, sessionName(uint8(i))
		switch {
		case c.asking == verbAwait: // it releases the hold, and does not know yet whether Redis has done so
		case !m.has(uint8(i), c.epoch):
			x.fail("%s trusts its lease until %d, but Redis has given the lock away", name, c.until)
		case m.hold.owner != c.owner:
			x.fail("%s's owner %d trusts its lease, and owner %d has the lock", name, c.owner, m.hold.owner)
		case m.hold.expires < c.until:
			x.fail("%s trusts its lease until %d, but the lease ends at %d", name, c.until, m.hold.expires)
		case c.target == 0 && !c.unsure && m.hold.count != int(c.holds):
			x.fail("%s counts %d holds, but Redis %d", name, c.holds, m.hold.count)
		case c.token < m.record.first || m.record.last < c.token:
			x.fail("%s has token %d, which is not within %d to %d", name, c.token, m.record.first, m.record.last)
		}
	}
}

func (c call) String() string {
	switch c.verb {
	case verbAcquire:
		return fmt.Sprintf("%s: acquire %d for owner %d, %q, before %d", sessionName(c.session), c.epoch, c.owner, c.flags, c.notAfter)
	case verbReenter:
		return fmt.Sprintf("%s: reenter %d, operation %d, %d holds", sessionName(c.session), c.epoch, c.op, c.holds)
	case verbRelease:
		return fmt.Sprintf("%s: release %d, in doubt for %d, used %d", sessionName(c.session), c.epoch, c.doubt, c.used)
	}
	if c.ticket != 0 {
		return fmt.Sprintf("%s: %v, ticket %d of epoch %d", sessionName(c.session), c.verb, c.ticket, c.epoch)
	}
	return fmt.Sprintf("%s: %v %d, operation %d", sessionName(c.session), c.verb, c.epoch, c.op)
}

var answers = [verbCount][]string{
	verbAcquire:  {"", "granted", "waiting", "stale", "late"},
	verbReenter:  {"", "done", "gone"},
	verbRelease:  {"", "released", "withdrawn", "nothing"},
	verbRenew:    {"gone", "renewed"},
	verbAwait:    {"", "waiting", "signalled", "gone"},
	verbSignal:   {"", "done", "gone", "more"},
	verbWithdraw: {"", "withdrawn", "signalled", "nothing"},
	verbBeat:     {"", "waits", "over"},
	verbPass:     {"it is another record", "done"},
	verbTake:     {"it is another record", "done"},
	verbFree:     {"release decides", "done", "given to the first waiter"},
	verbYield:    {"acquire decides", "done", "waiting"},
}

// describe formats a reply, and what Redis has after it.
func describe(c call, res result) string {
	if res.err != "" {
		return res.err
	}
	text := "heard"
	if res.code < len(answers[c.verb]) {
		text = answers[c.verb][res.code]
	}
	if c.verb == verbAcquire && res.code == granted {
		text += fmt.Sprintf(" with token %d", token(res.numbers[2]))
	}
	m := res.after
	if m.hold.held() {
		text += fmt.Sprintf("; %s:%s has it until %d, by epoch %d, count %d", sessionName(m.hold.session), ownerName(m.hold.owner), m.hold.expires, m.record.epoch, m.hold.count)
	} else {
		text += "; it is free"
	}
	for _, p := range m.queue {
		text += fmt.Sprintf("; %s waits until %d, by epoch %d", sessionName(p.session), p.deadline, p.epoch)
	}
	for _, t := range m.tickets {
		text += fmt.Sprintf("; %s has ticket %d until %d", sessionName(t.session), t.number, t.deadline)
	}
	for _, t := range m.heard {
		text += fmt.Sprintf("; %s's ticket %d is signalled, to be shown by %d", sessionName(t.session), t.number, t.deadline)
	}
	return text
}
