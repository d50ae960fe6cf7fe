package explore

import (
	"fmt"
	"slices"
)

// These are the codes that the scripts return. The scripts' headers say what the codes mean.
const (
	granted, waiting, stale, tooLate = 1, 2, 3, 4 // acquire
	done, gone                       = 1, 2       // reenter
	released, withdrawn, none        = 1, 2, 3    // release
	freed, given                     = 1, 2       // free
	resumed, notThere, overtaken     = 1, 2, 3    // resume; 4 as for acquire
)

// A judge checks one run of a script: the state before and after it, and its result.
type judge struct {
	call
	result
	before *memory
	now    tick
	bad    string
}

func (j *judge) must(ok bool, format string, args ...any) {
	if !ok && j.bad == "" {
		j.bad = fmt.Sprintf(format, args...)
	}
}

// contract returns how a run breaks the rules; empty if it does not.
func contract(before *memory, now tick, c call, res result) string {
	j := judge{call: c, result: res, before: before, now: now}
	j.must(res.err == "", "it fails: %s", res.err)
	if res.err == "" {
		j.common()
		switch c.verb {
		case verbAcquire:
			j.acquire()
		case verbReenter:
			j.reenter()
		case verbRelease:
			j.release()
		case verbRenew:
			j.renew()
		case verbAwait:
			j.await()
		case verbSignal:
			j.signal()
		case verbWithdraw:
			j.withdraw()
		case verbBeat:
			j.beat()
		case verbResume:
			j.resume()
		case verbPass, verbTake, verbFree, verbYield:
			j.compared()
		}
	}
	return j.bad
}

// common checks what is true of every script: it changes nothing that other sessions or a newer attempt have.
func (j *judge) common() {
	b, a := j.before, j.after
	j.must(a.broken == "", "%s", a.broken)
	if b.hold.held() && b.hold.session != j.session && j.verb != verbResume {
		j.must(a.hold == b.hold, "it changes the hold of %s", sessionName(b.hold.session))
		j.must(a.record == b.record, "it changes the record of %s's hold", sessionName(b.hold.session))
	}
	if b.heldEpoch(j.session) > int(j.epoch) {
		j.must(a.hold == b.hold && a.record == b.record, "it changes what a newer attempt has")
	}
	j.order()
	j.newTokens()
	j.handOver()
	if (j.verb == verbAcquire && j.code < stale || j.verb == verbYield && j.code == waiting || j.verb == verbRelease || j.verb == verbBeat || j.verb == verbAwait && a != b) && !a.hold.held() {
		_, ok := a.firstLive(j.now)
		j.must(!ok, "the lock is free and a live session waits")
	}
}

// order checks that the places that stay keep their order, that new places come last, and that each place that goes was dead,
// served or given up.
func (j *judge) order() {
	b, a := j.before, j.after
	next := 0
	for _, p := range b.queue {
		q, at := a.placeOf(p.session)
		switch {
		case at < 0 && p.session == j.session:
			left := j.verb == verbRelease && j.code == withdrawn && p.epoch <= j.epoch
			j.must(left || a.hold.of(j.session) || !p.alive(j.now), "the caller loses its place")
		case at < 0:
			j.must(!p.alive(j.now) || a.hold.of(p.session), "%s loses its place", sessionName(p.session))
		default:
			j.must(at >= next, "%s loses its turn", sessionName(p.session))
			next = at + 1
			own := j.verb.attempts() && p.session == j.session && p.epoch <= j.epoch
			j.must(q == p || own, "the place of %s changes", sessionName(p.session))
		}
	}
	for i, p := range a.queue {
		_, was := b.placeOf(p.session)
		_, signalled := find(a.heard, p.session, p.epoch)
		j.must(was >= 0 || j.verb.attempts() && p.session == j.session || signalled && (j.verb == verbSignal || j.verb == verbBeat), "%s gets a place that it did not ask for", sessionName(p.session))
		j.must(was >= 0 || i == len(a.queue)-1, "%s does not queue up behind the others", sessionName(p.session))
	}
}

// newTokens checks that a new attempt gets tokens above all that were used. Without a new attempt the tokens stay, except
// that a release may give back unused ones.
func (j *judge) newTokens() {
	b, a := j.before.record, j.after.record
	spent := b.last
	if j.verb == verbRelease && j.code == released && b.epoch == j.epoch && b.first <= j.used && j.used < b.last {
		spent = j.used
	}
	if a.session == b.session && a.epoch == b.epoch || j.verb == verbResume {
		j.must(a.first == b.first && (a.last == b.last || a.last == spent), "its tokens change")
		return
	}
	j.must(a.first > spent, "token %d after %d", a.first, spent)
	j.must(j.verb.lean() && !j.leased() || a.first >= j.now.token(), "token %d is behind the clock", a.first)
}

// handOver checks a lock that passes to a session other than the caller's. The first live session in the queue must get it,
// as that session asked for it, and no other session may get the message of a grant.
func (j *judge) handOver() {
	b, a := j.before, j.after
	told := 0
	for _, m := range j.messages {
		if m.kind != 'g' {
			continue
		}
		told++
		h, r := a.hold, a.record
		j.must(h.of(m.to) && a.has(m.to, m.epoch), "%s is told that it has the lock", sessionName(m.to))
		j.must(m.first == r.first && m.last == r.last && m.hold == lockName && m.at == j.now, "the message is wrong")
		j.must(m.ttl == h.expires-j.now && m.ttl == b.granting(m.to), "a grant for %d", h.expires-j.now)
	}
	if !a.hold.held() || a.hold.of(j.session) && (j.verb == verbAcquire && j.code == granted || j.verb.lean()) || a.hold == b.hold {
		j.must(told == 0, "a message without a grant")
		return
	}
	if j.verb == verbResume {
		j.must(told == 0, "a message without a grant")
		return
	}
	if j.verb == verbReenter || j.verb == verbRenew || j.verb == verbSignal || j.verb == verbWithdraw {
		j.must(a.hold.session == b.hold.session, "it gives the lock away")
		return
	}
	p, ok := j.first()
	if h := a.hold; j.verb == verbBeat && !ok { // to a session that this beat has put in line
		p = place{session: h.session, owner: h.owner, epoch: a.record.epoch, holds: h.count, tokens: 1}
		_, ok := find(a.heard, h.session, a.record.epoch)
		j.must(ok, "the lock goes to %s", sessionName(h.session))
	}
	h := a.hold
	j.must(h.session == p.session && h.owner == p.owner && h.count == p.holds && a.record.epoch == p.epoch, "the lock does not go to %s", sessionName(p.session))
	j.must(a.record.last-a.record.first+1 == p.tokens, "a block of %d tokens", a.record.last-a.record.first+1)
	j.must(a.record.pushed, "a grant that counts as accepted")
	j.must(told == 1, "%d messages", told)
}

// first returns which session gets the lock if the caller does not have it: the first live waiter. If the call withdraws the
// caller's place, that place does not count.
func (j *judge) first() (place, bool) {
	for _, p := range j.before.queue {
		if left := j.verb == verbRelease && j.code == withdrawn && p.session == j.session; p.alive(j.now) && !left {
			return p, true
		}
	}
	return place{session: nobody}, false
}

func (j *judge) acquire() {
	b, a := j.before, j.after
	j.must((j.code == tooLate) == (j.now >= j.notAfter), "late or not: it is %d and the limit %d", j.now, j.notAfter)
	if j.code == stale || j.code == tooLate {
		j.must(a == b, "a refusal that writes")
		return
	}
	r := b.record
	had := r.session == j.session && (j.epoch < r.epoch || j.epoch == r.epoch && !b.hold.of(j.session))
	j.must(!had, "an epoch that has had its turn")
	if p, at := b.placeOf(j.session); at >= 0 && p.alive(j.now) && p.epoch > j.epoch {
		j.must(j.code == waiting && !j.flags.has(queueUp), "a newer attempt has the place")
	}
	if j.code == waiting {
		j.waits()
		return
	}
	j.must(j.code == granted, "code %d", j.code)
	h := a.hold
	j.must(a.has(j.session, j.epoch) && h.owner == j.owner, "it has not got the lock")
	j.must(token(j.numbers[2]) == a.record.first && token(j.numbers[3]) == a.record.last, "the answer has other tokens")
	j.must(!a.record.pushed, "a hold that counts as not accepted")
	again := b.has(j.session, j.epoch)
	if again {
		j.must(h.count == b.hold.count, "a resend changes the count")
	} else {
		j.must(h.count == int(j.holds), "%d holds", h.count)
		j.must(a.record.last-a.record.first+1 == uint32(j.tokens), "a block of %d tokens", a.record.last-a.record.first+1)
	}
	keeps := again && j.flags.has(fixed) && !b.record.pushed || !again && b.hold.of(j.session) && j.flags.has(keepTTL)
	if keeps {
		j.must(h.expires == b.hold.expires, "the lease changes")
	} else {
		j.must(h.expires == j.now+j.asksFor(), "the lease is not full")
	}
	p, live := b.firstLive(j.now)
	j.must(b.hold.held() || !live || p.session == j.session || j.flags.has(barge), "it barges")
	_, placed := a.placeOf(j.session)
	j.must(placed < 0, "the holder waits for itself")
}

// waits checks that another session has the lock or comes first, and that the attempt has its place.
func (j *judge) waits() {
	b, a := j.before, j.after
	j.must(a.hold.held() && a.hold.session != j.session, "it waits for a free lock, or for its own session")
	if b.hold.of(j.session) {
		j.must(j.flags.has(yield), "the holder waits")
	}
	p, at := a.placeOf(j.session)
	if j.flags.has(queueUp) {
		j.must(at >= 0 && p.epoch == j.epoch && p.owner == j.owner, "it waits without a place")
		j.must(p.deadline == j.now+patience, "its place ends at %d", p.deadline)
	}
	j.must(j.numbers[2] == 1000*int64(a.hold.expires-j.now), "the holder has %d ms", j.numbers[2])
}

func (j *judge) reenter() {
	b, a := j.before, j.after
	if !b.has(j.session, j.epoch) || b.hold.owner != j.owner {
		j.must(j.code == gone && a == b, "a hold that is not there")
		return
	}
	j.must(j.code == done, "its hold is gone")
	j.must(j.numbers[2] == int64(a.hold.count), "the answer is %d", j.numbers[2])
	j.must(token(j.numbers[3]) == b.record.first, "it is about the hold with token %d", token(j.numbers[3]))
	if j.op <= b.record.op {
		j.must(a == b, "an operation is done twice")
		return
	}
	j.must(a.has(j.session, j.epoch) && a.hold.count == int(j.holds), "the count is %d", a.hold.count)
	j.must(a.hold.expires >= b.hold.expires, "the lease shrinks")
	j.must(int(j.holds) > b.hold.count || a.hold.expires == b.hold.expires, "an unlock prolongs the lease")
	j.must(int(j.holds) <= b.hold.count || a.hold.expires >= j.now+lease, "a re-entry without a lease")
}

func (j *judge) release() {
	b := j.before
	if b.hold.of(j.session) && b.heldEpoch(j.session) <= int(j.epoch) {
		j.must(j.code == released && j.after.heldEpoch(j.session) != b.heldEpoch(j.session), "it keeps the lock")
		return
	}
	p, at := b.placeOf(j.session)
	if at >= 0 && p.epoch <= j.epoch {
		j.must(j.code == withdrawn, "it keeps its place")
		return
	}
	j.must(j.code == none, "there was nothing to release")
}

func (j *judge) renew() {
	b, a := j.before, j.after
	if !b.has(j.session, j.epoch) {
		j.must(j.numbers[0] == 0 && a == b, "a hold that is not there")
		return
	}
	h := b.hold
	h.expires = j.now + j.asksFor()
	j.must(j.code == 1 && a.hold == h && a.record == b.record, "it does more or less than to renew")
	j.must(token(j.numbers[2]) == b.record.first, "it is about the hold with token %d", token(j.numbers[2]))
}

func (j *judge) await() {
	b, a := j.before, j.after
	if !b.has(j.session, j.epoch) {
		_, waits := find(b.tickets, j.session, j.ticket)
		_, heard := find(b.heard, j.session, j.ticket)
		j.must(a == b, "a hold that is not there")
		j.must((j.code == 1) == waits && (j.code == 2) == (heard && !waits), "code %d", j.code)
		return
	}
	t, ok := find(a.tickets, j.session, j.ticket)
	j.must(j.code == 1 && ok && t.deadline == j.now+patience, "it does not wait")
	j.must(!a.has(j.session, j.epoch), "it keeps the lock")
	if _, was := find(b.tickets, j.session, j.ticket); was {
		return // a copy that the network made had brought the hold back: see doc.go
	}
	j.must(len(a.tickets) == len(b.tickets)+1 && a.tickets[len(b.tickets)] == t, "it is not the last to wait")
}

// overdue reports whether a signal was not acknowledged in time, so that the next waiter gets it.
func (j *judge) overdue() bool {
	for _, t := range j.before.heard {
		if t.deadline < j.now {
			return true
		}
	}
	return false
}

func (j *judge) signal() {
	b, a := j.before, j.after
	if !b.has(j.session, j.epoch) {
		j.must(j.code == gone && a == b, "a hold that is not there")
		return
	}
	j.must(j.code == done && a.hold == b.hold, "its hold is gone")
	if j.op <= b.record.op {
		j.must(a == b, "an operation is done twice")
		return
	}
	for _, t := range b.tickets {
		if t.deadline < j.now {
			continue
		}
		j.served(t)
		_, heard := find(a.heard, t.session, t.number)
		j.must(heard, "the longest waiter is not signalled")
		break
	}
	left := 0
	for _, t := range a.heard {
		if _, was := find(b.heard, t.session, t.number); !was {
			left++
		}
	}
	j.must(left <= 1 || j.overdue(), "%d are signalled at once", left)
}

// served checks that a waiter that is signalled gets a message, and is in line for the lock.
func (j *judge) served(t ticket) {
	_, at := j.after.placeOf(t.session)
	j.must(at >= 0 || j.after.hold.of(t.session), "%s is signalled and not in line", sessionName(t.session))
	for _, m := range j.messages {
		if m.kind == 's' && m.to == t.session && m.epoch == t.number {
			return
		}
	}
	j.must(false, "%s is not told", sessionName(t.session))
}

func (j *judge) withdraw() {
	b, a := j.before, j.after
	_, waits := find(b.tickets, j.session, j.ticket)
	_, heard := find(b.heard, j.session, j.ticket)
	_, still := find(a.tickets, j.session, j.ticket)
	j.must((j.code == 1) == waits && (j.code == 2) == (heard && !waits), "code %d", j.code)
	j.must(!still && (waits || a == b), "the ticket stays")
	j.must(a.hold == b.hold && len(a.queue) == len(b.queue), "it changes the lock")
}

func (j *judge) beat() {
	b, a := j.before, j.after
	_, heard := find(a.heard, j.session, j.ticket)
	if j.all {
		j.must(!heard, "a signal that is acknowledged stays")
		return
	}
	if _, waits := find(b.tickets, j.session, j.ticket); waits && !j.overdue() {
		t, still := find(a.tickets, j.session, j.ticket)
		j.must(j.code == 1 && still && t.deadline == j.now+patience, "it does not wait any more")
	}
	for _, t := range a.heard {
		j.must(t.deadline >= j.now, "a signal that was not acknowledged in time stays")
	}
}

func (j *judge) resume() {
	b, a := j.before, j.after
	j.must((j.code == tooLate) == (j.now >= j.notAfter), "late or not: it is %d and the limit %d", j.now, j.notAfter)
	if j.code != resumed {
		j.must(a.hold == b.hold && slices.Equal(a.queue, b.queue), "it changes the lock and says that it does not")
		j.must(j.code == notThere || a == b, "a refusal that writes")
		j.must(j.code != notThere || !b.hold.held() || b.hold.owner != j.owner, "the hold is there")
		return
	}
	j.must(b.hold.held() && b.hold.owner == j.owner, "it takes the lock")
	h := b.hold
	h.session = j.session
	if least := j.now + lease; !j.flags.has(fixed) {
		h.expires = max(h.expires, least)
	}
	j.must(a.hold == h && a.has(j.session, j.epoch), "it has another hold than before")
	j.must(j.numbers[2] == int64(h.count) && token(j.numbers[3]) == a.record.last && j.numbers[4] == 1000*int64(h.expires-j.now), "the answer is wrong")
	_, placed := a.placeOf(j.session)
	j.must(placed < 0, "the holder waits for itself")
	told := 0
	for _, m := range j.messages {
		if told++; m.kind != 't' || m.to != b.hold.session || m.epoch != b.record.epoch {
			j.must(false, "a wrong message")
		}
	}
	j.must((told == 1) == (b.hold.session != j.session), "%d messages", told)
}
