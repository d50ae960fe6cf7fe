package explore

import (
	"fmt"

	"github.com/relock-go/relock/reentrant/internal/exclusive/machine"
)

// check looks for what must not be in any state: a session that trusts a lease has the lock, so no other session trusts one.
func (x *step) check() {
	if x.memory.broken != "" && !x.halved {
		x.fail("%s", x.memory.broken)
	}
	for i := range x.sessions {
		c := &x.sessions[i]
		if !x.trusts(c) || c.astray() { // the owner is in another session now
			continue
		}
		m, name, until := x.memory, sessionName(uint8(i)), c.Hold().Lease.Until()
		switch {
		case c.Phase() == machine.Leaving: // the session gives up the hold, and does not know yet whether Redis has ended the hold
		case !m.has(uint8(i), uint8(c.Epoch())):
			x.fail("%s trusts its lease until %v, and Redis has given the lock away", name, until)
		case c.Phase() == machine.Idle && x.world.alone && m.hold.expires > x.now+shortLease:
			x.fail("%s keeps the lock, and others would wait for it until %d if it died", name, m.hold.expires)
		case m.hold.expires.time().Before(until):
			x.fail("%s trusts its lease until %v, and it ends at %d", name, until, m.hold.expires)
		case c.Phase() == machine.Idle:
		case m.hold.owner != x.world.ownerInRedis(c):
			x.fail("%s's owner %d trusts its lease, and owner %d has the lock", name, c.Hold().Owner, m.hold.owner)
		case c.target == 0 && !c.unsure && m.hold.count != int(c.holds):
			x.fail("%s has %d holds, and %d in Redis", name, c.holds, m.hold.count)
		case worldly(c.Hold().Token) < m.record.first || m.record.last < worldly(c.Hold().Token):
			x.fail("%s has token %d, of %d to %d", name, worldly(c.Hold().Token), m.record.first, m.record.last)
		}
	}
}

// ownerInRedis returns the owner of a hold as Redis has it.
func (w *world) ownerInRedis(c *client) uint8 {
	if w.alone && c.Hold().Cohort {
		return lingering
	}
	return c.Hold().Owner
}

func (c call) String() string {
	switch c.verb {
	case verbAcquire:
		return fmt.Sprintf("%s: acquire %d for owner %d, %q, before %d", sessionName(c.session), c.epoch, c.owner, c.flags, c.notAfter)
	case verbResume:
		return fmt.Sprintf("%s: resume %d for owner %d, in doubt for %d, before %d", sessionName(c.session), c.epoch, c.owner, c.doubt, c.notAfter)
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
	verbResume:   {"", "resumed", "not there", "overtaken", "late"},
	verbPass:     {"it is another record", "done"},
	verbTake:     {"it is another record", "done"},
	verbFree:     {"release decides", "done", "given to the first waiter"},
	verbYield:    {"acquire decides", "done", "waiting"},
}

// describe returns a reply and what Redis then has, as text.
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
