package explore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/relock-go/relock/backend"
)

// A memo is what a session remembers of the lock: how the last reply left the record. If its epoch is 0, the session
// remembers nothing.
type memo struct {
	epoch, owner, op uint8
	token            uint32
	pushed, freed    bool
	note             string
}

// lean reports whether a verb's script compares the record.
func (v verb) lean() bool { return v >= verbPass }

// attempts reports whether a verb is an attempt to acquire the lock.
func (v verb) attempts() bool { return v == verbAcquire || v.lean() && v != verbFree }

// leased reports whether a lean attempt begins a lease.
func (c call) leased() bool { return c.verb == verbTake || !c.flags.has(keepTTL) }

// least returns the least token that a lean attempt gets.
func (c call) least() uint32 { return max(c.memo.token, c.seen) + 1 }

// recordOf returns a record as save in common.lua writes it.
func recordOf(session uint8, m memo) string {
	state := "h"
	if m.pushed {
		state = "g"
	}
	n := redisToken(m.token)
	return n + " " + n + " " + sessionName(session) + " " + strconv.Itoa(int(m.epoch)) + " " + strconv.Itoa(int(m.op)) + " " + state + " " + m.note
}

// kept returns for how many seconds a lean attempt that begins a lease keeps the record. A yield keeps it for at least as
// long as keep says.
func (c call) kept() string {
	kept, _, _ := strings.Cut(c.memo.note, " ")
	if c.verb == verbYield && must(strconv.Atoi(kept)) < must(strconv.Atoi(keep)) {
		return keep
	}
	return kept
}

// noteAfter returns how a lean attempt leaves the end of the record.
func (c call) noteAfter() string {
	_, tombs, some := strings.Cut(c.memo.note, " ")
	switch {
	case !c.leased():
		return c.memo.note
	case some:
		return c.kept() + " " + tombs
	}
	return c.kept()
}

// leanArguments returns the KEYS and ARGV of a call that compares the record.
func (c call) leanArguments(names [keyCount]string) (keys, args []string) {
	field := func(owner uint8) string { return sessionName(c.session) + ":" + ownerName(owner) }
	args = []string{recordOf(c.session, c.memo)}
	if c.verb == verbFree {
		return names[:4], append(args, field(c.memo.owner), channels)
	}
	least := redisToken(c.least())
	after := recordOf(c.session, memo{epoch: c.epoch, token: c.least(), note: c.noteAfter()})
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
		args = append(args, strconv.Itoa(1000*int(lease)), strconv.FormatInt(c.notAfter.micros()-1, 10), c.kept())
	}
	if c.verb == verbYield {
		place := fmt.Sprintf(" %d %d 1 %s %s %s", 1000*int(grantTTL), c.holds, redisToken(c.seen), keep, ownerName(c.owner))
		args = append(args, sessionName(c.session), strconv.Itoa(int(c.epoch))+" ", strconv.Itoa(1_000_000*int(patience)), place, c.noteAfter(), strconv.Itoa(500*must(strconv.Atoi(c.kept()))), channels)
	}
	return keys, args
}

// memoOf returns what the session remembers.
func memoOf(p backend.Prior) memo {
	m := memo{epoch: uint8(p.Epoch), owner: ownerOf(p.Owner), op: uint8(p.Op), token: worldly(p.Token), pushed: p.Pushed, freed: p.Freed, note: p.Note}
	if p.Pushed {
		m.note = keep
	}
	return m
}

// lean returns the attempt as the backend first sends it, by what the session remembers.
func (w *world) lean(full call, p backend.Prior) call {
	if !w.remembers || p.Epoch == 0 || p.Epoch >= uint64(full.epoch) || full.tokens != 1 || full.flags.has(fixed) {
		return full
	}
	m := memoOf(p)
	switch yields := full.flags.has(yield); {
	case yields && (m.freed || full.flags.has(keepTTL)):
	case yields:
		full.verb, full.memo = verbYield, m
	case m.freed:
		full.verb, full.memo = verbTake, m
	default:
		full.verb, full.memo = verbPass, m
	}
	return full
}

// leanRelease returns the release as the backend first sends it, by what the session remembers.
func (w *world) leanRelease(full call, p backend.Prior) call {
	if w.remembers && p.Epoch != 0 && p.Epoch == uint64(full.epoch) && !p.Freed && full.doubt == 0 {
		full.verb, full.memo = verbFree, memoOf(p)
	}
	return full
}

// compared judges a run that compares the record.
func (j *judge) compared() {
	b, a := j.before, j.after
	r := b.record
	m := j.memo
	same := r.session == j.session && r.epoch == m.epoch && r.op == m.op && r.pushed == m.pushed && r.first == m.token && r.last == m.token
	if j.code == 0 {
		j.must(a == b, "it changes something and says that it does not")
		return
	}
	j.must(same, "the record is another one than the session remembers")
	if j.verb == verbFree && j.code == given {
		j.must(b.hold.of(j.session) && b.hold.owner == m.owner, "it gives what the session has not")
		j.must(a.hold.held(), "it is given to no session")
		return // which session gets it, with which token, is checked for all verbs alike
	}
	if j.code == waiting {
		j.must(b.hold.of(j.session) && b.hold.owner == m.owner && j.now < j.notAfter, "it yields what the session has not, or late")
		j.waits()
		return
	}
	j.must(len(j.messages) == 0, "it sends a message")
	j.must(slices.Equal(a.queue, b.queue), "the queue changes")
	_, waits := b.firstLive(j.now)
	switch j.verb {
	case verbFree:
		j.must(b.hold.of(j.session) && !a.hold.held() && a.record == r, "it does more or less than to release")
		j.must(!waits, "the lock is free and a live session waits")
		return
	case verbTake:
		j.must(!b.hold.held(), "it takes a lock that is held")
		j.must(!waits, "it passes over a waiter")
	case verbPass, verbYield:
		j.must(b.hold.of(j.session) && b.hold.owner == m.owner, "it passes on what the session has not")
	}
	j.must(!j.leased() || j.now < j.notAfter, "it is late: it is %d and the limit %d", j.now, j.notAfter)
	h := a.hold
	j.must(a.has(j.session, j.epoch) && h.owner == j.owner && h.count == int(j.holds), "it has not got the lock")
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

// passed handles the reply to a lean attempt. If the lock is not as the session remembers it, the backend goes on with
// acquire.
func (x *step) passed(a call, res result) {
	c := x.edit(a.session)
	switch res.code {
	case 0:
		c.full = true
		return
	case waiting:
		x.acquired(a, res)
		return
	}
	got := backend.Token(res.numbers[2])
	r := backend.AcquireReply{Status: backend.Granted, First: got, Last: got,
		Prior: backend.Prior{Epoch: uint64(a.epoch), Owner: ownerName(a.owner), Token: got, Note: a.noteAfter()}}
	x.follow(a.session, c.Replied(x.at(c), &r))
}

// freed handles the reply to a lean release. If the lock is not as the session remembers it, the backend goes on with
// release.
func (x *step) freed(a call, res result) {
	c := x.edit(a.session)
	if res.code == 0 {
		c.full = true
		return
	}
	c.Released(true, res.code != given && !a.memo.pushed)
}
