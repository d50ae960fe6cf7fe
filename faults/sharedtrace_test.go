package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant"
)

// TestSharedTraces does what TestTraces does, but with a read-write lock, for spec/trace/SharesTrace.tla (.ci/traces -shares).
func TestSharedTraces(t *testing.T) {
	recordTraces(t, func(s *reentrant.Session, w tracedWork) func(context.Context) {
		return (&sharedWorker{w, s.NewRWLock(traced)}).work
	})
}

// A shareStep has the fields that a step of a shared name needs in addition to those of a step.
type shareStep struct {
	// Of a request.
	keep, want        int
	under, tail, seen backend.Token // under also of a message that is heard

	// Of a reply, or a push.
	units       int
	first, last backend.Token
	asked       bool // the session is asked to give units back

	// Of what was executed.
	pushes []step
	wanted []string // the sessions that the request asks to give units back
	calmed []string // the sessions that learn that no other session waits any more
	fresh  bool     // there was no record before
	state  sharedState

	// Of an owner that comes or goes.
	writes bool
	reads  bool // the owner already reads, or goes on reading
}

// A sharedState is what the server has of a shared name.
type sharedState struct {
	fresh   bool // it has no record
	top     backend.Token
	entries map[string]sharedEntry // by session
	queue   []sharedPlace
}

// A sharedEntry is what the server has of a session of the name.
type sharedEntry struct {
	epoch        uint64
	units        int
	left         int64 // of the lease, ms; 1 in its last millisecond
	under, first backend.Token
}

// A sharedPlace is a place in the name's queue.
type sharedPlace struct {
	s     string
	want  int
	left  int64 // ms until the place is lost
	order uint64
}

// A sharing has the fields that a trace of a shared name needs in addition to those of a trace. trace.mu guards them.
type sharing struct {
	names  map[string]string // the sessions' names in the trace, by their ids
	inside []*sharedUse
	wanted []string // the sessions that the message being executed asks to give units back
	calmed []string
	fresh  bool
}

// A sharedUse is the use of one side by an owner.
type sharedUse struct {
	session string
	writes  bool
	held    func() bool
}

// meet notes the name of a session.
func (tr *trace) meet(id, name string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.names[id] = name
}

// got notes that an owner has a side. With reads, the owner also has the read side: it already reads, or goes on reading.
func (tr *trace) got(u *sharedUse, token backend.Token, reads bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.inside = append(tr.inside, u)
	tr.noteLocked(step{what: "got", s: u.session, token: token, share: &shareStep{writes: u.writes, reads: reads}})
}

// leaves notes that an owner gives a side up, or knows that the side is lost.
func (tr *trace) leaves(u *sharedUse, what string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if i := slices.Index(tr.inside, u); i >= 0 {
		tr.inside = slices.Delete(tr.inside, i, i+1)
		tr.noteLocked(step{what: what, s: u.session, share: &shareStep{writes: u.writes}})
	}
}

// leavesIfLost notes the losses of those owners of a session that have not reacted yet: meanwhile the session gives the units
// back.
func (tr *trace) leavesIfLost(session string) {
	tr.mu.Lock()
	all := slices.Clone(tr.inside)
	tr.mu.Unlock()
	for _, u := range all {
		if u.session == session && !u.held() {
			tr.leaves(u, "lost")
		}
	}
}

// A sharedWorker is an owner that uses a read-write lock.
type sharedWorker struct {
	tracedWork
	lock *reentrant.RWLock
}

func (w *sharedWorker) work(own context.Context) {
	for pause(own, between(w.random, 0, 2*traceBeat)) {
		writes := w.random.IntN(2) == 0
		if w.random.IntN(4) > 0 {
			w.visit(own, writes, 5*traceBeat, w.dwell())
			continue
		}
		for range 8 {
			w.visit(own, writes, 6*time.Millisecond, between(w.random, 0, time.Millisecond))
		}
	}
}

// visit uses one side for a while, if the worker gets it. A writer may go on as a reader.
func (w *sharedWorker) visit(own context.Context, writes bool, most, dwell time.Duration) {
	lock, after := w.lock.RLock, context.WithoutCancel(own)
	if writes {
		lock = w.lock.Lock
	}
	if !w.waits(own, most, lock) {
		return
	}
	u := w.enters(after, writes, false)
	w.stays(after, u, dwell)
	if !writes {
		_ = w.lock.RUnlock(after) // it returns ErrLost, or the session repeats it until the lease is over
		return
	}
	goesOn := w.random.IntN(3) == 0 && w.lock.RLock(after) == nil
	if !goesOn {
		w.tr.leaves(u, "left")
		_ = w.lock.Unlock(after)
		return
	}
	r := w.enters(after, false, w.lock.HoldCount(after) > 0) // if it is false, the write side was lost before
	w.tr.leaves(u, "left")
	_ = w.lock.Unlock(after)
	w.stays(after, r, w.dwell())
	_ = w.lock.RUnlock(after)
}

// enters notes that the worker has a side.
func (w *sharedWorker) enters(own context.Context, writes, reads bool) *sharedUse {
	u := &sharedUse{session: w.session, writes: writes}
	var token backend.Token
	var err error
	switch {
	case writes:
		u.held = func() bool { return w.lock.HoldCount(own) > 0 }
		token, err = w.lock.Token(own)
	case reads:
		u.held = func() bool { return w.lock.ReadHoldCount(own) > 0 }
	default:
		u.held = func() bool { return w.lock.ReadHoldCount(own) > 0 }
		token, err = w.lock.Version(own)
		token-- // the last token before this version
	}
	if err == nil {
		w.tr.got(u, token, reads)
	}
	return u
}

// stays keeps a side for a while, or until it is lost, and notes the loss. A reader that has not lost the side leaves it.
func (w *sharedWorker) stays(own context.Context, u *sharedUse, dwell time.Duration) {
	select {
	case <-w.lock.Lost(own):
		w.tr.leaves(u, "lost")
	case <-time.After(dwell):
		if !u.writes {
			w.tr.leaves(u, "left")
		}
	}
}

// Shared passes a grant on as Granted does.
func (s tracedSink) Shared(g backend.ShareGrant) {
	units := &shareStep{units: g.Units, first: g.First, last: g.Last, asked: g.May < g.Units}
	s.push(step{s: s.b.session, kind: "push", epoch: g.Epoch, share: units}, func() { s.shared.Shared(g) })
}

// SharedWanted passes on the message that another session waits, or that none does.
func (s tracedSink) SharedWanted(name string, may int, try uint64) {
	tr := s.b.tr
	tr.mu.Lock()
	if may == backend.Unlimited {
		tr.calmed = append(tr.calmed, s.b.session)
	} else {
		tr.wanted = append(tr.wanted, s.b.session)
	}
	tr.mu.Unlock()
	s.travel(func(bool) { s.shared.SharedWanted(name, may, try) })
}

func (r tracedRemote) Share(ctx context.Context, req backend.ShareRequest) (backend.ShareReply, error) {
	r.b.tr.leavesIfLost(r.b.session)
	m := step{
		s: r.b.session, kind: "share", epoch: req.Epoch, until: time.Until(req.NotAfter).Milliseconds(),
		share: &shareStep{keep: req.Keep, want: req.Want, under: req.Under, tail: req.Tail, seen: req.Seen},
	}
	return carry(ctx, r.b.tr, m, func(ctx context.Context) (backend.ShareReply, step, error) {
		reply, err := r.Sharer.Share(ctx, req)
		if err != nil && !backend.OutcomeUnknown(err) && !backend.Refused(err) {
			return reply, step{reply: "late", share: &shareStep{}}, err
		}
		kind := "ok" // the reply to a session that has lost its units says that there are none
		switch {
		case reply.Status == backend.StaleShare:
			kind = "stale"
		case reply.Placed:
			kind = "queued"
		}
		units := &shareStep{units: reply.Units, first: reply.First, last: reply.Last, asked: reply.May < backend.Unlimited}
		return reply, step{reply: kind, share: units}, err
	})
}

// sharedLocked completes the step of a request that was executed, and returns the message that its session hears. tr.mu is
// held.
func (tr *trace) sharedLocked(s step, reply *shareStep, st sharedState) (done, heard *shareStep) {
	all := *s.share
	all.units, all.first, all.last, all.asked = reply.units, reply.first, reply.last, reply.asked
	all.pushes, all.wanted, all.calmed, all.fresh, all.state = tr.pushed, tr.wanted, tr.calmed, tr.fresh, st
	for _, push := range tr.pushed {
		push.share.under = st.entries[push.s].under
	}
	tr.wanted, tr.calmed = nil, nil
	reply.keep = s.share.keep
	if reply.units > 0 {
		reply.under = st.entries[s.s].under
	}
	return &all, reply
}

// read returns what the server has of the shared name, without anything that has ended.
func (tr *trace) read() (st sharedState) {
	c := tr.server.Client()
	fields, err := c.Do(context.Background(), c.B().Hgetall().Key("relock:{"+traced+"}:t:"+traced).Build()).AsStrMap()
	tr.blame(err)
	st.fresh = len(fields) == 0
	st.entries = make(map[string]sharedEntry)
	now := time.Now().UnixMicro()
	left := func(until string) int64 { return max(0, (int64(number(until))-now)/1000+1) } //nolint:gosec // a time
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for field, value := range fields {
		words := strings.Fields(value)
		switch name := tr.names[field]; {
		case field == "=":
			st.top = backend.Token(number(words[1]))
		case name != "":
			e := sharedEntry{epoch: number(words[0]), units: int(number(words[1])), left: left(words[2])} //nolint:gosec // below 1<<31
			if e.left == 0 || e.units == 0 {
				e.units, e.left = 0, 0
			} else {
				e.first, e.under = backend.Token(number(words[4])), backend.Token(number(words[5]))
			}
			st.entries[name] = e
			if p := (sharedPlace{name, int(number(words[8])), left(words[10]), number(words[7])}); p.order > 0 && p.left > 0 { //nolint:gosec // below 1<<31
				st.queue = append(st.queue, p)
			}
		}
	}
	slices.SortFunc(st.queue, func(a, b sharedPlace) int { return int(a.order) - int(b.order) }) //nolint:gosec // small
	return st
}

// block returns the first token of the session that has all units. It returns 0 if no session has all.
func (st *sharedState) block() (first backend.Token) {
	for _, e := range st.entries {
		if e.units == backend.AllUnits {
			first = e.first
		}
	}
	return first
}

func (x *shareStep) tokens() []backend.Token {
	all := []backend.Token{x.under, x.tail, x.seen, x.first, x.last, x.state.top}
	for _, push := range x.pushes {
		all = append(all, push.share.first, push.share.last)
	}
	for _, e := range x.state.entries {
		all = append(all, e.under, e.first)
	}
	return all
}

// text returns the fields that a step of a shared name adds. AllUnits becomes tracedLimit.
func (x *shareStep) text(what string, rank func(backend.Token) int) string {
	switch what {
	case "got", "left", "lost":
		return fmt.Sprintf("writes |-> %s, reads |-> %s", truth(x.writes), truth(x.reads))
	case "hear":
		return fmt.Sprintf("kept |-> %d, units |-> %d, under |-> %d, first |-> %d, last |-> %d",
			few(x.keep), few(x.units), rank(x.under), rank(x.first), rank(x.last))
	}
	request := fmt.Sprintf("keep |-> %d, want |-> %d, under |-> %d, tail |-> %d, seen |-> %d",
		few(x.keep), few(x.want), rank(x.under), rank(x.tail), rank(x.seen))
	if what != "execute" {
		return request
	}
	var pushes, places, entries []string
	for _, p := range x.pushes {
		pushes = append(pushes, fmt.Sprintf("[s |-> %q, e |-> %d, units |-> %d, first |-> %d, last |-> %d, asked |-> %s]",
			p.s, p.epoch, few(p.share.units), rank(p.share.first), rank(p.share.last), truth(p.share.asked)))
	}
	for _, p := range x.state.queue {
		places = append(places, fmt.Sprintf("[s |-> %q, want |-> %d, left |-> %d]", p.s, few(p.want), p.left))
	}
	for _, s := range []string{"s1", "s2", "s3"} {
		e := x.state.entries[s]
		entries = append(entries, fmt.Sprintf("%s |-> [e |-> %d, units |-> %d, left |-> %d, under |-> %d, first |-> %d]",
			s, e.epoch, few(e.units), e.left, rank(e.under), rank(e.first)))
	}
	return fmt.Sprintf("%s, units |-> %d, first |-> %d, last |-> %d, asked |-> %s, pushes |-> {%s}, wanted |-> %s, calmed |-> %s, fresh |-> %s, "+
		"block |-> %d, top |-> %d, entries |-> [%s], queue |-> <<%s>>",
		request, few(x.units), rank(x.first), rank(x.last), truth(x.asked), strings.Join(pushes, ", "), set(x.wanted), set(x.calmed), truth(x.fresh),
		rank(x.state.block()), rank(x.state.top), strings.Join(entries, ", "), strings.Join(places, ", "))
}

// tracedLimit stands for AllUnits in a trace, and is the Limit of SharesTrace.cfg: AllUnits is the largest integer that TLC
// knows.
const tracedLimit = 1000

func few(units int) int { return min(units, tracedLimit) }

// set returns the text of a set of sessions.
func set(sessions []string) string {
	var all []string
	for _, s := range sessions {
		all = append(all, fmt.Sprintf("%q", s))
	}
	return "{" + strings.Join(all, ", ") + "}"
}
