package explore

import (
	"cmp"
	"fmt"
	"slices"
)

const (
	maxSessions = 3
	maxNet      = 6
)

// A world says what can happen: how many sessions there are, and how many steps of each kind. Each of its runs ends, so
// all of them can be explored.
type world struct {
	name      string
	sessions  int
	attempts  uint8   // per session
	kinds     []flags // attempts of a session that has nothing
	pass      []flags // attempts of a session that has or waits for the lock already
	remembers bool    // the sessions remember the record
	block     uint8   // tokens per attempt; with more than one, the session keeps the hold for its next owners
	left      budget
	begin     []action // what has already happened at the beginning
	most      int      // how many states are explored, in the order of their distance; 0: all
}

// A budget is what may still happen.
type budget struct {
	ticks   uint8
	faults  uint8 // commands that are lost, late or duplicated, and replies that are lost
	nests   uint8 // re-entries, and their unlocks
	renews  uint8
	flushes uint8 // losses of Redis's memory
	awaits  uint8
	signals uint8
	stops   uint8 // scripts that stop half-way
}

// A mode is the state of the head of a session's queue, which has the baton.
type mode uint8

const (
	idle    mode = iota // no owner has the baton
	trying              // the head wants the lock
	holding             // the head has the lock, and trusts its lease
)

// A client is a session as package exclusive keeps it for one lock: see State there. It sends a new epoch only when none of
// its owners trusts an older one, and the head has at most one command under way.
type client struct {
	mode     mode
	epoch    uint8 // the epoch of the last attempt, or of the ticket that it came from
	owner    uint8 // the owner that the attempt is for
	flags    flags // the latest time of its next copy
	busy     bool  // the head waits for the reply to a slow command
	renewing bool  // the watchdog waits for one
	stale    bool  // the next copy needs a new epoch
	owes     bool  // Redis may have something of this session
	doubtful tick  // until then a copy whose result is unknown may be under way
	refuted  tick  // when the last copy whose reply was "waiting" was sent
	until    tick  // the end of the trust, or of the lease that keepTTL keeps
	holds    uint8
	op       uint8
	target   uint8 // the hold count of a request without a reply; 0: none
	unsure   bool  // a request for a hold count was given up
	token    uint32
	last     uint32
	used     uint32
	seen     uint32

	count uint8 // counts attempts and tickets
	waiter

	memo memo // how the last reply left the record

	gone uint8 // not known to the session: it has given up all epochs up to this one, and Redis has learned that
}

// An item is something under way: a command, a reply or a message.
type item struct {
	kind   kind
	wanted bool // its caller waits for the reply
	twin   bool // made by the network, of a command that had a reply
	sent   tick
	call   call // of a message: its session and epoch
	code   uint8
	first  uint32
	last   uint32
	ttl    tick
	note   string
}

type kind uint8

const (
	nothing kind = iota
	request
	reply
	grant
	signal
)

// A state is a world at one moment. It is comparable.
type state struct {
	now      tick
	memory   *memory
	sessions [maxSessions]client
	net      [maxNet]item // in an order that means nothing
	left     budget
	top      uint32 // the highest token of a hold that a session has trusted
	orphans  bool   // Redis may have something that no session knows of, and that must expire
	halved   bool   // a script has been stopped half-way
}

// A way is what happens to a command under way.
type way uint8

const (
	promptly way = iota // it runs, and its reply arrives at once
	lost                // it is lost, and its caller stops waiting
	unheard             // it runs, and its reply is lost
	delayed             // its caller stops waiting, and it is still under way
	slow                // it is under way, and its caller waits
	doubled             // it runs, its reply arrives, and a copy of it is still under way
	ways
	halfway // its script stops after some commands, and its caller does not know which
)

var wayNames = [...]string{"", "; it is lost", "; the reply is lost", "; given up, but still under way", "; it is slow", "; a copy is still under way", halfway: "; it stops half-way"}

// mostCommands is not less than the number of commands of any script in a world.
const mostCommands = 40

// An action is one thing that happens.
type action struct {
	what    what
	session uint8
	flags   flags
	owner   uint8
	way     way
	index   uint8 // of the item under way; for halfway, the number of commands
}

type what uint8

const (
	attempts what = iota // a new attempt, of a new head or of the one after a loss
	copies               // the same attempt again: a repetition or a heartbeat
	leaves               // the head stops waiting
	releases
	enters // the hold count rises by one
	exits  // the hold count falls by one
	repeats
	abandons // repeats the operation that had no reply
	inherits
	renews
	arrives // an item under way arrives
	gives   // a caller stops waiting for its reply
	ticks
	flushes
	awaits
	signals
	asks // sent again
	beats
	withdraws
	returns
	acknowledges
)

// actions returns all actions that can come next.
func (w *world) actions(s *state) (all []action) {
	for i := range w.sessions {
		if i > 0 && s.sessions[i-1].epoch == 0 {
			break // sessions that have not acted are alike, so they act in order
		}
		all = w.moves(all, s, uint8(i))
	}
	for i, x := range s.net {
		if x.kind != nothing && (x.kind != grant || s.sessions[x.call.session].expects(x)) && !slices.Contains(s.net[:i], x) {
			all = append(all, action{what: arrives, index: uint8(i)})
		}
		if x.wanted && (x.kind == reply || x.kind == request) && s.left.faults > 0 {
			all = append(all, action{what: gives, index: uint8(i)})
		}
	}
	if s.left.ticks > 0 {
		all = append(all, action{what: ticks})
	}
	if s.left.flushes > 0 && s.left.ticks > 0 && s.quiet() {
		all = append(all, action{what: flushes})
	}
	return all
}

// quiet reports whether no session trusts a hold and nothing is under way: only then may Redis lose its memory.
func (s *state) quiet() bool {
	for _, c := range s.sessions {
		if c.mode == holding {
			return false
		}
	}
	return s.net == [maxNet]item{}
}

// ways returns how many ways there are for a command in this state. A command that stays under way needs room.
func (s *state) ways() way {
	switch {
	case s.left.faults == 0:
		return promptly + 1
	case s.net[maxNet-1].kind != nothing:
		return delayed
	}
	return ways
}

// stops returns after how many commands a script can stop. In a renewal, a failing command concerns its own lock only.
func (s *state) stops(all []action, a action) []action {
	if s.left.stops == 0 || a.what == renews {
		return all
	}
	for n := range uint8(mostCommands) {
		a.way, a.index = halfway, n+1
		all = append(all, a)
	}
	return all
}

// moves returns the actions of a session.
func (w *world) moves(all []action, s *state, i uint8) []action {
	c := &s.sessions[i]
	add := func(a action) {
		a.session = i
		for a.way = range s.ways() {
			if all = append(all, a); a.what == leaves || a.what == abandons || a.what == inherits {
				return // these commands send no message
			}
		}
		all = s.stops(all, a)
	}
	if c.mode == holding && s.left.renews > 0 && !c.renewing && !c.flags.has(fixed) {
		add(action{what: renews})
	}
	all = w.waits(all, s, i)
	if c.busy || c.asking != verbNone || c.coming && c.mode == trying {
		if c.coming && !c.busy && c.asking == verbNone && !c.stale {
			add(action{what: copies})
		}
		return all
	}
	for _, x := range w.beginnings(c) {
		add(x)
	}
	switch {
	case c.target != 0:
		add(action{what: repeats})
		add(action{what: abandons})
		return all
	case c.mode == trying && !c.stale:
		add(action{what: copies})
		add(action{what: leaves})
	case c.mode == trying:
		add(action{what: leaves})
	case c.owes:
		add(action{what: releases})
	}
	if c.mode != holding {
		return all
	}
	if s.left.nests > 0 && w.block == 1 && c.holds < 2 {
		add(action{what: enters})
	}
	if s.left.nests > 0 && c.holds > 1 {
		add(action{what: exits})
	}
	if w.block > 1 && c.token < c.last {
		add(action{what: inherits})
	}
	return all
}

// beginnings returns the attempts that a session can begin.
func (w *world) beginnings(c *client) (all []action) {
	if c.count >= w.attempts || c.target != 0 {
		return nil
	}
	for _, owner := range w.owners(c) {
		for _, f := range w.kinds {
			all = append(all, action{what: attempts, flags: f, owner: owner})
			for _, p := range w.pass {
				if c.owes && f.has(queueUp) && (!p.has(keepTTL) || c.mode == holding && !f.has(fixed)) {
					all = append(all, action{what: attempts, flags: f | p, owner: owner})
				}
			}
		}
	}
	return all
}

// owners returns which owners may be the next head. Those that have not acted yet are interchangeable.
func (w *world) owners(c *client) []uint8 {
	switch {
	case w.block > 1:
		return []uint8{0}
	case c.epoch == 0:
		return []uint8{1}
	}
	return []uint8{1, 2}
}

// expects reports whether a session would accept a grant.
func (c *client) expects(x item) bool {
	return c.mode == trying && !c.busy && !c.stale && c.epoch == x.call.epoch && x.sent >= c.refuted && !c.flags.has(fixed)
}

// mayWant reports whether a session may accept a grant later.
func (c *client) mayWant(x item) bool {
	return x.call.epoch >= c.epoch && (c.mode == trying || c.busy) || x.call.epoch == c.ticket
}

// A step is one action as it is carried out.
type step struct {
	world *world
	store *store
	state
	stop uint8    // for halfway: the number of commands
	void bool     // the action is impossible: the script ends before that, or has written nothing
	bad  string   // which rule was broken
	told []string // the text for a reader of a failure; nil if none is wanted
}

func (x *step) tell(format string, args ...any) {
	if x.told != nil {
		x.told = append(x.told, fmt.Sprintf(format, args...))
	}
}

func (x *step) fail(format string, args ...any) {
	if x.bad == "" {
		x.bad = fmt.Sprintf(format, args...)
	}
}

// happen carries out an action.
func (x *step) happen(a action) {
	c, before := &x.sessions[a.session], x.state
	switch a.way {
	case promptly:
	case halfway:
		x.left.stops--
		x.stop = a.index
	default:
		x.left.faults--
	}
	switch a.what {
	case awaits, signals, asks, beats, withdraws, returns, acknowledges:
		x.condition(a)
	case attempts:
		x.attempt(a.session, a.flags, a.owner, a.way)
	case copies:
		x.send(x.acquire(a.session), a.way)
	case leaves:
		x.tell("%s's owner %d leaves", sessionName(a.session), c.owner)
		c.mode, c.stale = idle, false
	case releases:
		x.release(a.session, a.way)
	case enters, exits:
		x.recount(a)
	case repeats:
		x.send(x.reenter(a.session), a.way)
	case abandons:
		x.tell("%s gives up asking for %d holds", sessionName(a.session), c.target)
		c.holds, c.target, c.unsure, c.memo = min(c.holds, c.target), 0, true, memo{}
	case inherits:
		x.believe(a.session, c.token+1, c.last, c.until)
		x.tell("%s's next owner inherits the hold, with token %d", sessionName(a.session), c.token)
	case renews:
		x.left.renews--
		x.send(call{verb: verbRenew, session: a.session, epoch: c.epoch}, a.way)
	case arrives:
		x.arrive(a.index)
	case gives:
		x.give(a.index)
	case ticks:
		x.tick()
	case flushes:
		x.tick()
		x.tell("Redis loses its memory")
		x.left.flushes--
		x.memory = x.store.intern([keyCount]value{})
	}
	if x.void {
		x.state, x.void = before, false
		return
	}
	x.settle()
}

// recount carries out a re-entry, or an Unlock that is not the last.
func (x *step) recount(a action) {
	c := &x.sessions[a.session]
	x.left.nests--
	c.op++
	c.target = c.holds + 1
	if a.what == exits {
		c.target = c.holds - 1
	}
	x.send(x.reenter(a.session), a.way)
}

// attempt begins a new attempt, which ends the session's trust in earlier ones.
func (x *step) attempt(i uint8, f flags, owner uint8, w way) {
	c := &x.sessions[i]
	if c.mode == holding {
		x.tell("%s hands the lock over to its owner %d", sessionName(i), owner)
	}
	c.mode, c.stale, c.refuted, c.target, c.unsure, c.used = trying, false, 0, 0, false, 0
	c.count++
	c.epoch, c.owner, c.flags = c.count, owner, f
	x.send(x.world.lean(c, x.acquire(i)), w)
}

func (x *step) acquire(i uint8) call {
	c := &x.sessions[i]
	return call{verb: verbAcquire, session: i, owner: c.owner, epoch: c.epoch, flags: c.flags, holds: 1, tokens: x.world.block,
		notAfter: x.now + timeout, seen: c.seen}
}

func (x *step) reenter(i uint8) call {
	c := &x.sessions[i]
	return call{verb: verbReenter, session: i, owner: c.owner, epoch: c.epoch, op: c.op, holds: c.target}
}

// release gives up everything that the session has: its hold, or what attempts have left.
func (x *step) release(i uint8, w way) {
	c := &x.sessions[i]
	c.mode = idle
	r := call{verb: verbRelease, session: i, epoch: c.epoch, used: c.used}
	if c.doubtful > x.now {
		r.doubt = c.doubtful - x.now
	}
	x.send(x.world.leanRelease(c, r), w)
}

// send sends a command, to which the given way happens.
func (x *step) send(c call, w way) {
	x.tell("%v%s", c, wayNames[w])
	switch w {
	case promptly:
		x.answered(c, x.exec(c, false), x.now)
	case lost:
		x.unanswered(c)
	case unheard:
		x.exec(c, false)
		x.unanswered(c)
	case delayed:
		x.post(item{kind: request, call: c, sent: x.now})
		x.unanswered(c)
	case slow:
		x.post(item{kind: request, call: c, sent: x.now, wanted: true})
		x.wait(c, true)
	case doubled:
		x.answered(c, x.exec(c, false), x.now)
		x.post(item{kind: request, call: c, sent: x.now, twin: true})
	case halfway:
		x.half(c)
	}
}

// half runs a part of a command.
func (x *step) half(c call) {
	res := x.store.exec(x.memory, x.now, c, x.stop)
	if x.void = res.err == "" || res.after == x.memory; x.void {
		return
	}
	x.memory, x.halved = res.after, true
	x.deliver(res.messages)
	x.tell("  → the script stops after %d commands: %s", x.stop, describe(c, result{after: res.after}))
	x.unanswered(c)
}

// wait records whether the head, or the watchdog, waits for a reply.
func (x *step) wait(c call, waits bool) {
	if c.verb == verbRenew {
		x.sessions[c.session].renewing = waits
	} else {
		x.sessions[c.session].busy = waits
	}
}

// post adds an item that is under way. If there is no room for it, it is lost.
func (x *step) post(it item) {
	for i := range x.net {
		if x.net[i].kind == nothing {
			x.net[i] = it
			return
		}
	}
}

// exec runs a command that reaches Redis.
func (x *step) exec(c call, twin bool) result {
	before := x.memory
	res := x.store.exec(before, x.now, c, 0)
	if bad := contract(before, x.now, c, res); bad != "" && (!x.halved || res.err != "") {
		x.fail("%v: %s", c, bad)
	}
	x.late(c, res, twin)
	gone := &x.sessions[c.session].gone
	if c.verb == verbRelease || c.verb == verbAwait && res.code == 1 || c.verb == verbFree && res.code > 0 {
		*gone = max(*gone, c.epoch)
	}
	x.memory = res.after
	x.deliver(res.messages)
	if x.told != nil {
		x.tell("  → %s", describe(c, res))
	}
	return res
}

// deliver posts the messages that a script has sent.
func (x *step) deliver(messages []message) {
	for _, m := range messages {
		switch m.kind {
		case 's':
			x.tell("  → a message to %s: ticket %d is signalled", sessionName(m.to), m.epoch)
			x.post(item{kind: signal, call: call{session: m.to, epoch: m.epoch, all: m.placed}, sent: m.at})
		case 'g':
			x.tell("  → a message to %s: epoch %d has the lock, with token %d", sessionName(m.to), m.epoch, m.first)
			x.post(item{kind: grant, call: call{session: m.to, epoch: m.epoch}, sent: m.at, first: m.first, last: m.last, ttl: m.ttl})
		}
	}
}

// late looks for attempts that run after they were given up.
func (x *step) late(c call, res result, twin bool) {
	s := &x.sessions[c.session]
	if c.verb.attempts() && c.verb.lean() {
		// A yield that left the decision to acquire may run later: nothing has been sent since for the hold that it
		// passes on.
		if res.code > 0 && (twin && c.verb != verbYield || c.epoch <= s.gone) {
			x.fail("%v runs, although it had a reply or was given up before", c)
		}
		return
	}
	if got := res.code == granted || res.code == waiting && c.flags.has(queueUp); c.verb != verbAcquire || !got {
		return
	}
	x.orphans = x.orphans || twin && !s.owes
	if c.epoch > s.gone {
		return
	}
	if x.orphans = true; !twin {
		x.fail("%v runs, although all epochs up to %d were given up", c, s.gone)
	}
}

// answered handles the reply to a command that was sent at the given time.
func (x *step) answered(a call, res result, sent tick) {
	c := &x.sessions[a.session]
	switch a.verb {
	case verbAcquire:
		x.acquired(a, res, sent)
	case verbPass, verbTake, verbYield:
		x.passed(a, res, sent)
	case verbFree:
		c.freed(a, res)
	case verbAwait, verbSignal, verbBeat, verbWithdraw:
		x.heard(a, res)
	case verbRelease:
		c.owes = false
	case verbReenter:
		if c.target = 0; res.code == done {
			c.holds, c.unsure = a.holds, false
			c.memo.op = a.op
		} else {
			x.lose(a.session)
		}
	case verbRenew:
		switch {
		case c.mode != holding || c.epoch != a.epoch: // of an older hold
		case res.code == 1:
			c.until = max(c.until, sent+lease)
		default:
			x.lose(a.session)
		}
	}
}

func (x *step) acquired(a call, res result, sent tick) {
	c := &x.sessions[a.session]
	switch res.code {
	case granted:
		c.owes = true
		until := sent + lease
		if a.flags.has(fixed) {
			until = min(until, sent+tick((res.numbers[4]+999)/1000))
		}
		if a.flags.has(keepTTL) {
			until = c.until
		}
		if c.memo = (memo{}); res.note != "" && res.numbers[2] == res.numbers[3] {
			c.memo = memo{epoch: a.epoch, owner: a.owner, token: token(res.numbers[2]), note: res.note}
		}
		if x.now < until {
			x.believe(a.session, token(res.numbers[2]), token(res.numbers[3]), until)
			return
		}
		c.flags &^= keepTTL
		c.stale = a.flags.has(fixed)
	case waiting:
		c.owes = c.owes || a.flags.has(queueUp)
		c.flags &^= keepTTL | yield
		c.refuted = sent
		if !a.flags.has(queueUp) {
			c.mode = idle
		}
	case stale:
		c.stale = true
	}
}

// unanswered handles a command whose caller stopped waiting: Redis may have run it all the same.
func (x *step) unanswered(a call) {
	c := &x.sessions[a.session]
	if !a.verb.attempts() {
		return
	}
	c.owes = true
	c.flags &^= keepTTL
	c.doubtful = max(c.doubtful, a.notAfter)
	if !a.flags.has(queueUp) {
		c.mode = idle
	}
}

// believe makes the head the holder.
func (x *step) believe(i uint8, first, last uint32, until tick) {
	c := &x.sessions[i]
	if first <= x.top {
		x.fail("%s gets token %d after a hold with token %d", sessionName(i), first, x.top)
	}
	x.top = max(x.top, first)
	if c.mode != holding {
		c.holds, c.op, c.target, c.unsure = 1, 0, 0, false
		c.arrived()
	}
	c.mode, c.token, c.last, c.until = holding, first, last, until
	c.seen = max(c.seen, first)
	if x.world.block > 1 {
		c.used = first
	}
}

// lose ends a hold: its lease is over, or Redis no longer has it.
func (x *step) lose(i uint8) {
	c := &x.sessions[i]
	x.tell("%s has lost the lock", sessionName(i))
	c.mode, c.target = idle, 0
	if c.asking == verbAwait {
		c.phase = torn // Redis may have run it
	}
	c.asking = verbNone
}

// arrive delivers an item that was under way: a command to Redis, or a reply or message to its session.
func (x *step) arrive(i uint8) {
	it := x.net[i]
	x.net[i] = item{}
	c := &x.sessions[it.call.session]
	switch it.kind {
	case request:
		x.tell("that %v arrives", it.call)
		res := x.exec(it.call, it.twin)
		if !it.wanted {
			return
		}
		it.kind, it.code = reply, uint8(res.code)
		it.note = res.note
		if len(res.numbers) > 4 {
			it.first, it.last, it.ttl = token(res.numbers[2]), token(res.numbers[3]), tick((res.numbers[4]+999)/1000)
		}
		x.net[i] = it
	case reply:
		x.tell("the reply to that %v arrives", it.call)
		x.wait(it.call, false)
		x.answered(it.call, it.result(), it.sent)
	case grant:
		x.tell("%s receives the message that epoch %d has the lock", sessionName(it.call.session), it.call.epoch)
		c.owes = true
		if it.first == it.last {
			c.memo = memo{epoch: it.call.epoch, owner: c.owner, token: it.first, pushed: true, note: keep}
		}
		x.believe(it.call.session, it.first, it.last, it.sent+it.ttl)
	case signal:
		x.tell("%s receives the message that ticket %d is signalled", sessionName(it.call.session), it.call.epoch)
		c.signalled(it.call.epoch, it.call.all)
	}
}

// result returns the reply that is under way.
func (it item) result() result {
	return result{code: int(it.code), note: it.note, numbers: []int64{int64(it.code), 0, it.first64(), epoch + int64(it.last), 1000 * int64(it.ttl)}}
}

func (it item) first64() int64 { return epoch + int64(it.first) }

// give stops waiting for a reply: the connection was lost, or the time limit was reached.
func (x *step) give(i uint8) {
	it := &x.net[i]
	x.left.faults--
	x.tell("%s stops waiting for the reply to %v", sessionName(it.call.session), it.call)
	x.wait(it.call, false)
	x.unanswered(it.call)
	it.wanted = false
	if it.kind == reply {
		*it = item{}
	}
}

// tick lets time pass.
func (x *step) tick() {
	x.now++
	x.left.ticks -= min(x.left.ticks, 1)
	x.tell("time passes: it is tick %d", x.now)
	x.memory = x.store.pass(x.memory, x.now)
	for i := range x.sessions {
		c := &x.sessions[i]
		if c.mode == holding && c.until <= x.now {
			x.lose(uint8(i))
		}
		if c.doubtful <= x.now {
			c.doubtful = 0
		}
		c.refuted = 0 // all earlier grants are too old to be trusted
	}
	for i, it := range x.net {
		if it.kind == grant {
			x.net[i] = item{}
		}
	}
}

// settle brings equal states into one form, and checks the state.
func (x *step) settle() {
	for i := range x.sessions {
		c := &x.sessions[i]
		if c.mode != holding {
			c.holds, c.op, c.target, c.unsure, c.token, c.last = 0, 0, 0, false, 0, 0
			if c.mode != trying || !c.flags.has(keepTTL) {
				c.until = 0
			}
		}
		if c.mode == idle {
			c.flags, c.refuted, c.stale = 0, 0, false
		}
		if !x.world.remembers {
			c.memo = memo{}
		}
	}
	for i, it := range x.net {
		if c := &x.sessions[it.call.session]; it.kind == grant && !c.mayWant(it) || it.kind == signal && c.ticket != it.call.epoch {
			x.net[i] = item{}
		}
	}
	slices.SortFunc(x.net[:], compareItems)
	x.check()
}

func compareItems(a, b item) int {
	return cmp.Or(cmp.Compare(b.kind, a.kind), compareCalls(a.call, b.call), cmp.Compare(a.sent, b.sent), cmp.Compare(a.first, b.first),
		compareBools(a.wanted, b.wanted), compareBools(a.twin, b.twin), cmp.Compare(a.code, b.code))
}

func compareCalls(a, b call) int {
	return cmp.Or(cmp.Compare(a.session, b.session), cmp.Compare(a.verb, b.verb), cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.op, b.op),
		cmp.Compare(a.flags, b.flags), cmp.Compare(a.notAfter, b.notAfter), cmp.Compare(a.doubt, b.doubt), cmp.Compare(a.used, b.used),
		cmp.Compare(a.seen, b.seen), cmp.Compare(a.holds, b.holds), cmp.Compare(a.memo.epoch, b.memo.epoch), cmp.Compare(a.memo.token, b.memo.token))
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
