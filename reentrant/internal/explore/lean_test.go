package explore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A memo is what a session remembers of the lock: how the last reply left the record. Epoch 0 means nothing.
type memo struct {
	epoch, owner, op uint8
	token            uint32
	pushed, freed    bool
	note             string
}

// lean reports whether a call is of a script that compares the record.
func (v verb) lean() bool { return v >= verbPass }

// attempts reports whether a call is an attempt.
func (v verb) attempts() bool { return v == verbAcquire || v.lean() && v != verbFree }

// leased reports whether a lean attempt begins a lease.
func (c call) leased() bool { return c.verb == verbTake || !c.flags.has(keepTTL) }

// least returns the lowest token that a lean attempt may get.
func (c call) least() uint32 { return max(c.memo.token, c.seen) + 1 }

// recordOf formats a record as save in common.lua does.
func recordOf(session uint8, m memo) string {
	state := "h"
	if m.pushed {
		state = "g"
	}
	n := redisToken(m.token)
	return n + " " + n + " " + sessionName(session) + " " + strconv.Itoa(int(m.epoch)) + " " + strconv.Itoa(int(m.op)) + " " + state + " " + m.note
}

// leanArguments returns the KEYS and ARGV of a call of a script that compares the record.
func (c call) leanArguments(names [keyCount]string) (keys, args []string) {
	field := func(owner uint8) string { return sessionName(c.session) + ":" + ownerName(owner) }
	args = []string{recordOf(c.session, c.memo)}
	if c.verb == verbFree {
		return names[:4], append(args, field(c.memo.owner), channels)
	}
	least := redisToken(c.least())
	after := recordOf(c.session, memo{epoch: c.epoch, token: c.least(), note: c.memo.note})
	if c.leased() {
		after = strings.TrimPrefix(after, least+" "+least)
	}
	args = append(args, least, after)
	keys = names[:3]
	switch c.verb {
	case verbPass:
		keys, args = names[:2], append(args, field(c.memo.owner))
	case verbYield:
		keys, args = names[:4], append(args, field(c.memo.owner))
	}
	args = append(args, field(c.owner), strconv.Itoa(int(c.holds)))
	if c.leased() {
		args = append(args, strconv.Itoa(1000*int(lease)), strconv.FormatInt(c.notAfter.micros()-1, 10), keep)
	}
	if c.verb == verbYield {
		place := fmt.Sprintf(" %d %d 1 %s %s %s", 1000*int(grantTTL), c.holds, redisToken(c.seen), keep, ownerName(c.owner))
		args = append(args, sessionName(c.session), strconv.Itoa(int(c.epoch))+" ", strconv.Itoa(1_000_000*int(patience)), place, c.memo.note, "150000", channels)
	}
	return keys, args
}

// lean returns the attempt in the form that the session sends first, according to what it remembers.
func (w *world) lean(c *client, full call) call {
	if w.remembers && c.memo.epoch != 0 && c.memo.epoch < c.epoch && full.tokens == 1 && !full.flags.has(fixed) {
		switch yields := full.flags.has(yield); {
		case yields && (c.memo.freed || full.flags.has(keepTTL)):
		case yields:
			full.verb, full.memo = verbYield, c.memo
		case c.memo.freed:
			full.verb, full.memo = verbTake, c.memo
		default:
			full.verb, full.memo = verbPass, c.memo
		}
	}
	c.memo = memo{} // remembered again when there is a reply
	return full
}

// leanRelease does for a release what lean does for an attempt.
func (w *world) leanRelease(c *client, full call) call {
	if m := c.memo; w.remembers && m.epoch != 0 && m.epoch == c.epoch && !m.pushed && !m.freed && full.doubt == 0 {
		full.verb, full.memo = verbFree, m
	}
	c.memo = memo{}
	return full
}

// compared checks a run of a script that compares the record.
func (j *judge) compared() {
	b, a := j.before, j.after
	r := b.record
	m := j.memo
	same := r.session == j.session && r.epoch == m.epoch && r.op == m.op && r.pushed == m.pushed && r.first == m.token && r.last == m.token
	if j.code == 0 {
		j.must(a == b, "the script changes something, and returns that it did not")
		return
	}
	j.must(same, "the record is not the one that the session remembers")
	if j.verb == verbFree && j.code == given {
		j.must(b.hold.of(j.session) && b.hold.owner == m.owner, "the script hands over what the session does not have")
		j.must(a.hold.held(), "the script hands the lock over, and no session has it")
		return // handOver checks for all scripts which session gets the lock, and with which token
	}
	if j.code == waiting {
		j.must(b.hold.of(j.session) && b.hold.owner == m.owner && j.now < j.notAfter, "the script yields what the session does not have, or too late")
		j.waits()
		return
	}
	j.must(len(j.messages) == 0, "the script sends a message")
	j.must(slices.Equal(a.queue, b.queue), "the queue changes")
	_, waits := b.firstLive(j.now)
	switch j.verb {
	case verbFree:
		j.must(b.hold.of(j.session) && !a.hold.held() && a.record == r, "the script does not exactly release the hold")
		j.must(!waits, "the lock is free although a live session waits")
		return
	case verbTake:
		j.must(!b.hold.held(), "the script takes a lock that is held")
		j.must(!waits, "the script passes over a waiter")
	case verbPass, verbYield:
		j.must(b.hold.of(j.session) && b.hold.owner == m.owner, "the script passes on what the session does not have")
	}
	j.must(!j.leased() || j.now < j.notAfter, "the script is late: the time is %d and the limit %d", j.now, j.notAfter)
	h := a.hold
	j.must(a.has(j.session, j.epoch) && h.owner == j.owner && h.count == int(j.holds), "the session has not got the lock")
	token := j.least()
	if j.leased() {
		token = max(token, j.now.token())
	}
	j.must(a.record.first == token && a.record.last == token && !a.record.pushed && a.record.op == 0, "the record is wrong")
	if j.leased() {
		j.must(h.expires == j.now+lease, "the lease is not full")
	} else {
		j.must(h.expires == b.hold.expires, "the lease changes")
	}
}

// passed handles the reply to a lean attempt. If the lock is not as the session remembers it, the attempt is repeated
// with the script acquire.
func (x *step) passed(a call, res result, sent tick) {
	c := &x.sessions[a.session]
	switch res.code {
	case 0:
		return
	case waiting:
		x.acquired(a, res, sent)
		return
	}
	c.owes = true
	until := sent + lease
	if !a.leased() {
		until = c.until
	}
	if x.now >= until {
		c.flags &^= keepTTL
		return
	}
	got := token(res.numbers[2])
	c.memo = memo{epoch: a.epoch, owner: a.owner, token: got, note: a.memo.note}
	x.believe(a.session, got, got, until)
}

// freed handles the reply to a lean release. If the lock is not as the session remembers it, the session then sends
// release.
func (c *client) freed(a call, res result) {
	if res.code == 0 {
		return
	}
	c.owes = false
	if res.code != given {
		c.memo = a.memo
		c.memo.freed = true
	}
}
