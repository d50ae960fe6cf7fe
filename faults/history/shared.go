package history

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// A SharedHistory has the operations of one run on read-write locks and semaphores.
type SharedHistory struct {
	Ops     []Op
	Deaths  map[string]int64 // when a process was dead
	Forgets []Span           // when Redis forgot
	Lease   time.Duration
	Permits map[string]int // limits of the semaphores; the other names are read-write locks
}

// A use is one hold of one client: of the read side, of the write side, or of permits.
type use struct {
	client  string
	process string
	read    bool
	units   int // permits; all of them for a writer
	taken   Op
	depth   int    // acquires that are not unlocked yet
	token   uint64 // token or version; 0: not known
	shown   int64  // when the client began its last check that showed the hold; 0: never
	end     int64  // when the client had released the hold, or had learned of its loss
}

// all is the number of units that a writer uses.
const all = math.MaxInt32

// JudgeShared checks a history of shared holds against their guarantees, each name by itself.
func JudgeShared(h SharedHistory) Verdict {
	v := Verdict{pictures: make(map[string]picture)}
	byName := opsByLock(h.Ops)
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		v.judgeShared(h, name, byName[name])
	}
	return v
}

func (v *Verdict) judgeShared(h SharedHistory, name string, ops []Op) {
	r := &reader{h: h}
	r.read(ops)
	v.Holds += len(r.uses)
	v.Lost += r.lost
	before := len(v.Findings)
	find := func(findings []string) {
		for _, what := range findings {
			v.Findings = append(v.Findings, Finding{name, what})
		}
	}
	limit, permits := h.Permits[name]
	if !permits {
		limit = all
	}
	find(r.findings)
	find(overlaps(r.uses, limit, h.blind()))
	if permits {
		return
	}
	find(h.fallen(r.uses))
	if len(h.Forgets) > 0 || len(v.Findings) > before { // there is nothing to search for, or a finding without a search
		return
	}
	v.order(name, sharedModel, sharedSteps(r))
}

// A reader finds the uses of one name in its operations.
type reader struct {
	h        SharedHistory
	uses     []*use
	saw      []Op // operations that showed a reader another version than its first
	lost     int
	findings []string
}

func (r *reader) read(ops []Op) {
	byClient := make(map[string][]Op)
	for _, op := range ops {
		key := op.Client
		if op.Read {
			key += " reads"
		}
		byClient[key] = append(byClient[key], op)
	}
	for _, key := range slices.Sorted(maps.Keys(byClient)) {
		ops := byClient[key]
		slices.SortStableFunc(ops, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
		r.client(ops)
	}
}

// client reads the operations of one client on one side of the name, in order.
func (r *reader) client(ops []Op) {
	var now *use // nil if nothing is in use
	owed := 0    // Unlocks still to be called
	for _, op := range ops {
		switch {
		case op.Outcome == Untold:
			r.find("%s lost %s, and was not notified", op.Client, now)
		case op.Kind == Acquire && op.Outcome == OK:
			owed++
			if now == nil {
				now = r.begin(op)
			}
			now.depth++
		case op.Kind == Look && op.Outcome == OK && now == nil:
			r.find("%s was shown a hold that does not exist", op.Client)
		case op.Kind == Look && op.Outcome == OK:
			r.shown(now, op)
		case op.Kind == Look && op.Outcome == Lost && now != nil:
			r.lost++
			now.end, now = op.Return, nil
		case op.Kind == Await && op.Outcome == OK && now != nil:
			depth := now.depth
			now.end = op.Return
			now = r.begin(op)
			now.depth = depth
		case op.Kind == Await && op.Outcome == Lost && now != nil:
			now.end, now = op.Return, nil
		case op.Kind == Unlock && op.Outcome != Pending:
			if op.Outcome != OK && op.Outcome != Lost || owed == 0 {
				r.find("%s: Unlock returned %q (%s) with %d to come", op.Client, op.Outcome, op.Note, owed)
			}
			owed--
			now = now.unlock(op)
		}
	}
	if now == nil && owed <= 0 {
		return
	}
	dead, ok := r.h.Deaths[ops[len(ops)-1].Process]
	if !ok {
		r.find("%s ended with %s in use and %d Unlocks to come", ops[0].Client, now, owed)
		return
	}
	if now != nil {
		now.end = max(dead, now.shown)
	}
}

// unlock ends one of the holds that u counts, and returns what is left of u: nil after the last one.
func (u *use) unlock(op Op) *use {
	if u == nil {
		return nil
	}
	if u.depth--; u.depth > 0 {
		return u
	}
	u.end = op.Return
	return nil
}

func (r *reader) begin(op Op) *use {
	u := &use{client: op.Client, process: op.Process, read: op.Read, units: op.Units, taken: op}
	switch {
	case op.Read:
		u.units = 1
	case op.Units == 0:
		u.units = all
	}
	r.uses = append(r.uses, u)
	return u
}

// shown records that an operation showed the client its hold.
func (r *reader) shown(u *use, op Op) {
	u.shown = op.Call
	if op.Token == 0 {
		return
	}
	if u.token == 0 {
		u.token = op.Token
	}
	switch {
	case op.Token == u.token:
	case op.Read:
		r.saw = append(r.saw, op)
	default:
		r.find("%s: the token of a writer changed from %d to %d", u.client, u.token, op.Token)
	}
}

func (r *reader) find(format string, args ...any) {
	r.findings = append(r.findings, strings.TrimSpace(fmt.Sprintf(format, args...)))
}

func (u *use) String() string {
	switch {
	case u == nil:
		return "nothing"
	case u.read:
		return fmt.Sprintf("a read hold of version %d", u.token)
	case u.units == all:
		return fmt.Sprintf("the write hold with token %d", u.token)
	}
	return fmt.Sprintf("%d permits", u.units)
}

// certain reports whether the use certainly lasted for some time: from the end of the call that took the units to the beginning
// of the last call that showed them.
func (u *use) certain() bool { return u.shown > u.taken.Return }

// blind returns the times in which sessions may trust units that Redis has forgotten. The times are sorted and do not overlap.
// Each lasts for a lease, within which sessions learn of the loss.
func (h SharedHistory) blind() (spans []Span) {
	forgets := slices.SortedFunc(slices.Values(h.Forgets), func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	for _, f := range forgets {
		to := f.To + h.Lease.Nanoseconds()
		if last := len(spans) - 1; last >= 0 && f.From <= spans[last].To {
			spans[last].To = max(spans[last].To, to)
		} else {
			spans = append(spans, Span{From: f.From, To: to})
		}
	}
	return spans
}

func blindAt(blind []Span, from, to int64) bool {
	return slices.ContainsFunc(blind, func(s Span) bool { return s.From <= from && to <= s.To })
}

// mostOverlaps limits how many overlaps are reported.
const mostOverlaps = 5

// overlaps finds times at which more units are certainly in use than exist.
func overlaps(uses []*use, limit int, blind []Span) (findings []string) {
	type edge struct {
		at  int64
		use *use
		in  bool
	}
	var edges []edge
	for _, u := range uses {
		if u.certain() {
			edges = append(edges, edge{u.taken.Return, u, true}, edge{u.shown, u, false})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	inside := make(map[*use]bool)
	named := false
	for i, e := range edges {
		if e.in {
			inside[e.use] = true
		} else {
			delete(inside, e.use)
		}
		if i+1 == len(edges) || edges[i+1].at == e.at || blindAt(blind, e.at, edges[i+1].at) {
			continue
		}
		many := tooMany(inside, limit)
		if many && !named {
			findings = append(findings, fmt.Sprintf("at once, for %d µs: %s", (edges[i+1].at-e.at)/1e3, names(inside)))
		}
		if named = many; len(findings) == mostOverlaps {
			break
		}
	}
	return findings
}

func names(inside map[*use]bool) string {
	all := make([]string, 0, len(inside))
	for u := range inside {
		all = append(all, fmt.Sprintf("%s of %s", u, u.client))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// tooMany reports whether the uses together exceed the limit. A writer may read at the same time.
func tooMany(inside map[*use]bool, limit int) bool {
	total := 0
	writer := ""
	for u := range inside {
		if u.units == all {
			writer = u.client
		}
	}
	for u := range inside {
		if !u.read || u.client != writer {
			total += u.units
		}
	}
	return total > limit
}

// fallen finds tokens and versions that are lower than those of uses that began before, and tokens that were issued twice. When
// Redis has forgotten, sessions may use what they have for a lease, so only uses of the same process are compared. A replica
// that lacks the last writes brings an older record back. A reader that comes then has a higher version than its own process
// has seen, but nothing else is certain. A writer uses up its tokens even if it writes nothing, so readers that come later have
// a higher version than those of a session that has been reading all along. Therefore a version must be above the tokens of
// writers and above what its own process has seen, and a token above everything.
func (h SharedHistory) fallen(uses []*use) (findings []string) {
	known := slices.DeleteFunc(slices.Clone(uses), func(u *use) bool { return u.token == 0 })
	blind := h.blind()
	calls := slices.SortedFunc(slices.Values(known), func(a, b *use) int { return cmp.Compare(a.taken.Call, b.taken.Call) })
	shown := slices.SortedFunc(slices.Values(known), func(a, b *use) int { return cmp.Compare(a.shown, b.shown) })
	seen := bounds{highest: &use{}, wrote: &use{}, own: make(map[string]*use)}
	had := make(map[uint64]*use) // writers by token
	for _, u := range calls {
		for len(shown) > 0 && shown[0].shown < u.taken.Call {
			seen.show(shown[0])
			shown = shown[1:]
		}
		before := seen.below(u)
		if h.older(u) || slices.ContainsFunc(blind, func(s Span) bool { return s.From <= u.taken.Return && u.taken.Call <= s.To }) {
			before = seen.own[u.process]
		}
		if before != nil && (u.token < before.token || !u.read && u.token == before.token) {
			findings = append(findings, fmt.Sprintf("%s of %s came after %s of %s", u, u.client, before, before.client))
		}
		if u.read != (u.token%2 == 1) {
			findings = append(findings, fmt.Sprintf("%s of %s: tokens are even, and versions odd", u, u.client))
		}
		if other := had[u.token]; other != nil && !u.read {
			findings = append(findings, fmt.Sprintf("token %d was given to %s and to %s", u.token, other.client, u.client))
		}
		if !u.read {
			had[u.token] = u
		}
	}
	return findings
}

// bounds has the uses with the highest tokens and versions among the uses that were shown so far.
type bounds struct {
	highest *use
	wrote   *use            // of the writers
	own     map[string]*use // of each process
}

// show updates the bounds by a use that was shown.
func (b *bounds) show(u *use) {
	if u.token > b.highest.token {
		b.highest = u
	}
	if !u.read && u.token > b.wrote.token {
		b.wrote = u
	}
	if b.own[u.process] == nil || u.token > b.own[u.process].token {
		b.own[u.process] = u
	}
}

// below returns the use whose token u's token must exceed: for a writer the highest of all uses, for a reader the highest of
// the writers and of its own process.
func (b *bounds) below(u *use) *use {
	if !u.read {
		return b.highest
	}
	if own := b.own[u.process]; own != nil && own.token > b.wrote.token {
		return own
	}
	return b.wrote
}

// older reports whether u is a reader that may have got its version from an older record, which a failover brought back.
func (h SharedHistory) older(u *use) bool {
	return u.read && slices.ContainsFunc(h.Forgets, func(s Span) bool { return s.Partly && s.From <= u.taken.Return })
}

// A sharedStep is an operation on a read-write lock as the model sees it.
type sharedStep struct {
	verb   verb
	client int    // of the client; from 1
	token  uint64 // or version; 0: not known
	after  uint64 // the token of the last write before this step; the tokens show which write that is
	by     string
}

// These verbs are what the model does besides acquiring and releasing the write side.
const (
	takeRead verb = "read"
	giveRead verb = "give up reading"
	sawRead  verb = "see the version of"
)

// A sharedState is a read-write lock between two steps.
type sharedState struct {
	writer  int // the writing client; 0: none
	readers int
	highest uint64 // token or version so far
	written uint64 // token of the last write
}

// sharedModel is a read-write lock whose tokens rise above all versions, and whose versions show which write was the last: the
// same version is seen twice only if nothing was written in between. Readers are only counted, so states that differ only in
// the readers' names are equal. Each step has the token of the write before it, which keeps the search small.
var sharedModel = porcupine.Model{
	Init: func() any { return sharedState{} },
	Step: func(s, input, _ any) (bool, any) {
		next, ok := s.(sharedState).do(input.(sharedStep))
		return ok, next
	},
	DescribeOperation: func(input, _ any) string {
		in := input.(sharedStep)
		return fmt.Sprintf("%s: %s %d", in.by, in.verb, in.token)
	},
	DescribeState: func(s any) string {
		st := s.(sharedState)
		return fmt.Sprintf("writer %d, %d readers, up to %d", st.writer, st.readers, st.highest)
	},
}

// do does one step, and returns false if no read-write lock can do it.
func (s sharedState) do(in sharedStep) (sharedState, bool) {
	ok := in.token == 0 || in.after == s.written && (in.verb != take || in.token >= s.highest)
	switch in.verb {
	case take:
		ok = ok && s.writer == 0 && s.readers == 0
		s.writer, s.written = in.client, in.token
	case give:
		ok = s.writer == in.client
		s.writer = 0
	case takeRead:
		ok = ok && (s.writer == 0 || s.writer == in.client)
		s.readers++
	case sawRead:
		ok = ok && s.readers > 0 && s.writer == 0
	case giveRead:
		ok = s.readers > 0
		s.readers--
	}
	s.highest = max(s.highest, in.token)
	return s, ok
}

// sharedSteps returns the steps of the uses that are certain. A use that was never shown proves nothing.
func sharedSteps(r *reader) (steps []porcupine.Operation) {
	clients := make(map[string]int)
	var written []uint64
	add := func(v verb, by string, token uint64, from, to int64) {
		if clients[by] == 0 {
			clients[by] = len(clients) + 1
		}
		step := sharedStep{verb: v, client: clients[by], token: token, by: by}
		if i, _ := slices.BinarySearch(written, token); i > 0 {
			step.after = written[i-1]
		}
		steps = append(steps, porcupine.Operation{ClientId: clients[by], Call: from, Return: to, Input: step})
	}
	for _, u := range r.uses {
		if u.certain() && !u.read {
			written = append(written, u.token)
		}
	}
	slices.Sort(written)
	for _, u := range r.uses {
		enter, leave := take, give
		if u.read {
			enter, leave = takeRead, giveRead
		}
		if u.certain() {
			add(enter, u.client, u.token, u.taken.Call, u.taken.Return)
			add(leave, u.client, 0, u.shown, u.end)
		}
	}
	for _, op := range r.saw {
		add(sawRead, op.Client, op.Token, op.Call, op.Return)
	}
	return steps
}
