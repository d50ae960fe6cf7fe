package explore

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/relock-go/relock/reentrant/internal/exclusive/machine"
)

const (
	maxSessions = 3
	maxNet      = 6
)

// A world says what can happen: how many sessions there are, and how many steps of each kind. Every run in it ends, so all
// runs can be explored.
type world struct {
	name      string
	sessions  int
	attempts  uint8   // of each session
	kinds     []flags // of attempts that begin with nothing
	lingers   bool    // sessions keep a hold that no owner has for a tick
	alone     bool    // sessions keep a hold without a cohort, since they are alone with the lock; only leases that are due are renewed
	portable  bool    // other sessions could resume a session's holds, so the session hands no lease on
	hurries   bool    // turns may be over: the session yields
	remembers bool    // the sessions remember the record
	brief     tick    // how long a record is kept if no session waits; 0: beyond the end of the world
	block     uint8   // tokens of an attempt; more than one: the hold is the session's, and its owners inherit it
	left      budget
	begin     []action // what has happened already
	most      int      // states that are explored, the nearest first; 0: all
}

// A budget is what may still happen.
type budget struct {
	ticks   uint8
	faults  uint8 // commands that are lost, late or doubled, and replies that are lost
	nests   uint8 // re-entries, and their unlocks
	renews  uint8
	flushes uint8 // losses of Redis's memory
	awaits  uint8
	signals uint8
	stops   uint8 // scripts that stop half-way
	resumes uint8
}

// An item is something under way: a command, a reply or a message.
type item struct {
	kind    kind
	wanted  bool // its caller waits for the reply
	twin    bool // made by the network, of a command that had a reply
	lingers bool // of a reply: see result
	sent    tick
	call    call // of a message: session and epoch
	code    uint8
	first   uint32
	last    uint32
	ttl     tick
	note    string
}

type kind uint8

const (
	nothing kind = iota
	request
	reply
	grant
	signal
	want
	taken
)

// A state is a world at one moment. It is comparable.
type state struct {
	now      tick
	memory   *memory
	sessions [maxSessions]client
	net      [maxNet]item // in an order that says nothing
	left     budget
	top      uint32 // the highest token of a hold that a session trusted
	orphans  bool   // Redis may rightly have something that no session knows of: it must expire
	halved   bool   // a script has stopped half-way
}

// A way is what happens to a command on its way.
type way uint8

const (
	promptly way = iota // it is executed, and its reply arrives at once
	lost                // it does not arrive, and its caller gives it up
	unheard             // it is executed, and its reply is lost
	delayed             // its caller gives it up, and it is still under way
	slow                // it is under way, and its caller waits
	doubled             // it is executed, its reply arrives, and another copy of it is under way
	ways
	halfway // its script stops after some commands, and its caller does not know what it has done
)

var wayNames = [...]string{"", "; it is lost", "; the answer is lost", "; given up, but still under way", "; it is slow", "; a copy is still under way", halfway: "; it stops half-way"}

// mostCommands is how many commands a script has at most in a world, or more.
const mostCommands = 40

// An action is one thing that happens.
type action struct {
	what    what
	session uint8
	flags   flags
	owner   uint8
	way     way
	index   uint8 // in the net; halfway: after how many commands
}

type what uint8

const (
	attempts what = iota // a new attempt: the head has changed, or there is one again
	copies               // the same attempt once more: a repetition or a heartbeat
	leaves               // the head gives up
	releases
	enters // once more
	exits  // once less
	repeats
	abandons // the operation that had no reply
	inherits
	dismisses
	resumes
	checks
	renews
	arrives // something that is under way
	gives   // up waiting for a reply
	ticks
	flushes
	awaits
	signals
	asks // once more
	beats
	withdraws
	returns
	acknowledges
)

// actions returns all that can happen next.
func (w *world) actions(s *state) (all []action) {
	for i := range w.sessions {
		if i > 0 && s.sessions[i-1].count == 0 {
			break // sessions are alike: they come in order
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

// quiet reports whether no session trusts anything and nothing is under way: then Redis may lose its memory.
func (s *state) quiet() bool {
	for i := range s.sessions {
		if c := &s.sessions[i]; c.Owned() || c.Phase() == machine.Idle {
			return false
		}
	}
	return s.net == [maxNet]item{}
}

// ways returns how many of the ways there are for a command now. A command that stays under way needs room.
func (s *state) ways() way {
	switch {
	case s.left.faults == 0:
		return promptly + 1
	case s.net[maxNet-1].kind != nothing:
		return delayed
	}
	return ways
}

// stops appends to the list all those actions in which the command of action a stops half-way. It appends none for a renewal,
// or if no script may stop any more.
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

// moves returns what a session can do.
func (w *world) moves(all []action, s *state, i uint8) []action {
	c := &s.sessions[i]
	add := func(a action) {
		a.session = i
		for a.way = range s.ways() {
			if all = append(all, a); a.what == leaves || a.what == abandons || a.what == inherits {
				return // these send nothing
			}
		}
		all = s.stops(all, a)
	}
	phase := c.Phase()
	if c.checking {
		all = append(all, action{what: checks, session: i})
	}
	if (c.Owned() || phase == machine.Idle) && s.left.renews > 0 && c.due == w.alone && !c.renewing && !c.Hold().Lease.Fixed() {
		add(action{what: renews})
	}
	all = w.waits(all, s, i)
	mayAsk := phase == machine.Parked || phase == machine.Begun && c.count < w.attempts || c.full
	if c.busy || c.asking != verbNone || c.coming && c.trying() {
		if c.coming && !c.busy && c.asking == verbNone && mayAsk {
			add(action{what: copies})
		}
		return all
	}
	if c.moving != machine.Nothing {
		add(action{what: resumes})
		add(action{what: leaves})
		return all
	}
	if phase == machine.Freeing {
		add(action{what: releases})
		return all
	}
	if s.left.resumes > 0 && w.portable && w.block == 1 && c.target == 0 && c.count < w.attempts && (c.Owned() && c.Hold().Owner == 1 || phase == machine.Vacant || phase == machine.Parked) {
		add(action{what: resumes})
	}
	if !c.full {
		for _, x := range w.beginnings(s, c) {
			add(x)
		}
	}
	switch {
	case c.target != 0:
		add(action{what: repeats})
		add(action{what: abandons})
		return all
	case c.trying():
		if mayAsk {
			add(action{what: copies})
		}
		if phase != machine.Asking {
			add(action{what: leaves})
		}
	case phase == machine.Idle || phase == machine.Lapsed:
		if c.dismissing {
			add(action{what: dismisses})
		}
	case c.Unreleased():
		add(action{what: releases})
	}
	if x := (step{world: w, state: *s}); w.block > 1 && x.inherits(c) {
		add(action{what: inherits})
	}
	if !c.Owned() {
		return all
	}
	if s.left.nests > 0 && w.block == 1 && c.holds < 2 {
		add(action{what: enters})
	}
	if s.left.nests > 0 && c.holds > 1 {
		add(action{what: exits})
	}
	return all
}

// beginnings returns the attempts that a session can begin. An attempt that may yield has yield among its flags, and the turn
// is over when it begins.
func (w *world) beginnings(s *state, c *client) (all []action) {
	if c.count >= w.attempts || c.target != 0 || c.behind {
		return nil
	}
	x := step{world: w, state: *s}
	inherits := w.block > 1 && x.inherits(c)
	for _, owner := range w.owners(c) {
		for _, f := range w.kinds {
			if !inherits {
				all = append(all, action{what: attempts, flags: f, owner: owner})
			}
			if w.hurries && c.Unreleased() && f.has(queueUp) {
				all = append(all, action{what: attempts, flags: f | yield, owner: owner})
			}
		}
	}
	return all
}

// owners returns which owners may be the next head: those that have not acted yet are interchangeable.
func (w *world) owners(c *client) []uint8 {
	switch {
	case w.block > 1 && !w.alone:
		return []uint8{w.cohort()}
	case c.count == 0:
		return []uint8{1}
	}
	return []uint8{1, 2}
}

// expects reports whether a grant would change what a session knows.
func (c *client) expects(x item) bool {
	return (c.Phase() == machine.Parked || c.Phase() == machine.Asking) && c.Sent() == uint64(x.call.epoch)
}

// mayWant reports whether a session may come to expect a grant.
func (c *client) mayWant(x item) bool {
	return uint64(x.call.epoch) >= c.Sent() && (c.trying() || c.busy) || x.call.epoch == c.ticket
}

// A step is one action as it happens.
type step struct {
	world *world
	store *store
	state
	stop uint8    // halfway: after so many commands
	void bool     // the action cannot happen: the script ends before it would stop, or has written nothing
	bad  string   // what must not be
	told []string // the story for a reader of a failure; nil if it is not wanted
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

// happen carries an action out.
func (x *step) happen(a action) {
	before := x.state
	c := x.edit(a.session)
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
		x.copy(a.session, a.way)
	case leaves:
		x.leave(a.session)
	case releases:
		x.release(a.session, a.way)
	case enters, exits:
		x.recount(a)
	case repeats:
		x.send(x.reenter(a.session), a.way)
	case abandons:
		x.tell("%s gives up asking for %d holds", sessionName(a.session), c.target)
		c.holds, c.target, c.unsure = min(c.holds, c.target), 0, true
		c.Operated(false, false)
	case inherits:
		x.inherit(a.session)
	case dismisses:
		x.dismiss(a.session, a.way)
	case resumes:
		x.resume(a.session, a.way)
	case checks:
		x.inspect(a.session)
	case renews:
		x.left.renews--
		c.due = false
		r := call{verb: verbRenew, session: a.session, epoch: uint8(c.Epoch())}
		if x.world.alone {
			r.lease = ticksOf(c.Hold().Span)
		}
		x.send(r, a.way)
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

// send sends a command, which then fares in the given way.
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

// half carries out a part of a command.
func (x *step) half(c call) {
	res := x.store.exec(x.memory, x.now, c, x.stop)
	if x.void = res.err == "" || res.after == x.memory; x.void {
		return
	}
	x.memory, x.halved = res.after, true
	x.deliver(res.messages)
	x.tell("  → after %d commands it stops: %s", x.stop, describe(c, result{after: res.after}))
	x.unanswered(c)
}

// wait notes whether the head, or the keeper, waits for a reply.
func (x *step) wait(c call, waits bool) {
	if c.verb == verbRenew {
		x.sessions[c.session].renewing = waits
	} else {
		x.sessions[c.session].busy = waits
	}
}

// post puts something under way. If there is no room for it, it is lost.
func (x *step) post(it item) {
	for i := range x.net {
		if x.net[i].kind == nothing {
			x.net[i] = it
			return
		}
	}
}

// exec carries out a command that reaches Redis.
func (x *step) exec(c call, twin bool) result {
	before := x.memory
	res := x.store.exec(before, x.now, c, 0)
	if bad := contract(before, x.now, c, res); bad != "" && (!x.halved || res.err != "") {
		x.fail("%v: %s", c, bad)
	}
	x.late(c, res, twin)
	if c.verb == verbResume && res.code == resumed {
		if from := before.hold.session; from != c.session {
			x.sessions[from].strayed = before.record.epoch
		}
		x.orphans = true // if its caller has given up
	}
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
			x.tell("  → %s is told that ticket %d is signalled", sessionName(m.to), m.epoch)
			x.post(item{kind: signal, call: call{session: m.to, epoch: m.epoch, all: m.placed}, sent: m.at})
		case 'w':
			x.tell("  → %s is told that the lock is wanted that epoch %d has", sessionName(m.to), m.epoch)
			x.post(item{kind: want, call: call{session: m.to, epoch: m.epoch}, sent: x.now})
		case 't':
			x.tell("  → %s is told that its hold of epoch %d has moved", sessionName(m.to), m.epoch)
			x.post(item{kind: taken, call: call{session: m.to, epoch: m.epoch}, sent: x.now})
		case 'g':
			x.tell("  → %s is told that epoch %d has the lock, with token %d", sessionName(m.to), m.epoch, m.first)
			x.post(item{kind: grant, call: call{session: m.to, epoch: m.epoch}, sent: m.at, first: m.first, last: m.last, ttl: m.ttl})
		}
	}
}

// late looks for attempts that are carried out after they were given up.
func (x *step) late(c call, res result, twin bool) {
	s := &x.sessions[c.session]
	if c.verb.attempts() && c.verb.lean() {
		// A yield that left the decision to acquire may be carried out later: nothing has come after the hold that it passes on.
		if res.code > 0 && (twin && c.verb != verbYield || c.epoch <= s.gone) {
			x.fail("%v is carried out, and was answered or given up before", c)
		}
		return
	}
	if got := res.code == granted || res.code == waiting && c.flags.has(queueUp); c.verb != verbAcquire || !got {
		return
	}
	x.orphans = x.orphans || twin && !s.Unreleased()
	if c.epoch > s.gone {
		return
	}
	if x.orphans = true; !twin {
		x.fail("%v is carried out, after all up to %d was given up", c, s.gone)
	}
}

// arrive delivers something that was under way: a command to Redis, a reply or a message to its session.
func (x *step) arrive(i uint8) {
	it := x.net[i]
	x.net[i] = item{}
	c := x.edit(it.call.session)
	switch it.kind {
	case request:
		x.tell("that %v arrives", it.call)
		res := x.exec(it.call, it.twin)
		if !it.wanted {
			return
		}
		it.kind, it.code = reply, uint8(res.code)
		it.note, it.lingers = res.note, res.lingers
		if len(res.numbers) > 4 {
			it.first, it.last, it.ttl = token(res.numbers[2]), token(res.numbers[3]), tick((res.numbers[4]+999)/1000)
		}
		x.net[i] = it
	case reply:
		x.tell("the answer to that %v arrives", it.call)
		x.wait(it.call, false)
		x.answered(it.call, it.result(), it.sent)
	case grant:
		x.tell("%s hears that epoch %d has the lock", sessionName(it.call.session), it.call.epoch)
		x.pushed(it)
	case taken:
		x.tell("%s hears that its hold of epoch %d has moved", sessionName(it.call.session), it.call.epoch)
		x.follow(it.call.session, c.Taken(uint64(it.call.epoch)))
	case want:
		x.tell("%s hears that the lock is wanted that epoch %d has", sessionName(it.call.session), it.call.epoch)
		x.follow(it.call.session, c.Wanted(uint64(it.call.epoch)))
	case signal:
		x.tell("%s hears that ticket %d is signalled", sessionName(it.call.session), it.call.epoch)
		c.signalled(it.call.epoch, it.call.all)
	}
}

// result returns the reply that is under way.
func (it item) result() result {
	return result{code: int(it.code), note: it.note, lingers: it.lingers, numbers: []int64{int64(it.code), 0, it.first64(), epoch + int64(it.last), 1000 * int64(it.ttl)}}
}

func (it item) first64() int64 { return epoch + int64(it.first) }

// give gives up waiting for a reply: the connection broke, or the time was up.
func (x *step) give(i uint8) {
	it := &x.net[i]
	x.left.faults--
	x.tell("%s gives up waiting for the answer to %v", sessionName(it.call.session), it.call)
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
	x.tell("time passes: it is %d", x.now)
	x.memory = x.store.pass(x.memory, x.now)
	for i := range x.sessions {
		c := x.edit(uint8(i))
		at := x.at(c)
		x.follow(uint8(i), c.Tick(at, machine.Survey{}))
		c.PendingUntil(at) // this forgets a time that has passed
	}
	for i, it := range x.net {
		if it.kind == grant {
			x.net[i] = item{}
		}
	}
}

// settle brings equal states into one form, and looks for what must not be.
func (x *step) settle() {
	x.keep()
	for i := range x.sessions {
		if c := &x.sessions[i]; !c.Owned() {
			c.holds, c.target, c.unsure = 0, 0, false
			c.due = c.due && c.Phase() == machine.Idle
			if !c.trying() {
				c.owner = 0
			}
		}
		if c := &x.sessions[i]; c.Sent() > uint64(c.strayed) && !c.astray() {
			c.strayed = 0
		}
	}
	for i, it := range x.net {
		if c := &x.sessions[it.call.session]; it.kind == grant && !c.mayWant(it) || (it.kind == want || it.kind == taken) && (uint64(it.call.epoch) < c.Epoch() || it.call.epoch == 0) || it.kind == signal && c.ticket != it.call.epoch {
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
