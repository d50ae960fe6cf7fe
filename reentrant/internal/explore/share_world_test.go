package explore

import (
	"fmt"
	"strings"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
	"github.com/relock-go/relock/reentrant/internal/share/plan"
)

const (
	maxOps      = 4
	maxShareNet = 6
	allUnits    = backend.AllUnits
)

// A shareWorld says what can happen with a few sessions that share a name.
type shareWorld struct {
	name    string
	kind    backend.ShareKind
	ops     [maxSessions][]int        // for each session the units of its users, in the order of their arrival
	once    [maxSessions][maxOps]bool // users that make a single attempt
	limit   [maxSessions]int
	ticks   int8
	faults  int8          // number of copies and messages that are lost or duplicated
	flushes int8          // losses of the server's memory, or of all sessions' units by force
	quits   int8          // number of users that stop waiting
	deaths  int8          // number of sessions that stop for ever
	hasty   time.Duration // by how many seconds a place ends before a lease does
	slow    tick          // after how many ticks a command has failed, and is refused; 0: 1
	turn    time.Duration // how long a session's own users go first
	calm    bool          // sessions send no copies and renew nothing until the drain
	begin   []shareAction // what has already happened at the beginning
	most    int           // states that are explored at full size; 0: all
}

// A shareSession is a session with one shared name: the plan that package share runs, its local tier, and what else its
// driver knows.
type shareSession struct {
	plan      plan.Plan
	tier      shareTier
	seen      backend.Token // the highest token that a user got
	woken     bool          // the driver is to call Next, which would send
	again     tick          // when the driver calls Next; 0: at no certain time
	busy      bool          // a copy is under way: no other is sent before its reply comes, or it fails
	copy      uint8         // the number of that copy in its tick
	sent      tick          // when that copy was sent
	renewing  bool          // a renewal is under way
	renewed   tick          // when the renewal was sent
	renewedOf uint64        // the renewal's epoch

	// Not the session's knowledge.

	dead     bool
	flushed  bool   // what it trusts was lost with the server's memory
	answered uint64 // the last try that it answered
}

// age is a tick as the age of a session.
func age(t tick) time.Duration { return time.Duration(t) * second }

type shareKind uint8

const (
	shareNothing shareKind = iota
	shareRequest
	shareAnswer
	sharePush
	shareWanted
	renewAnswer
)

// A shareItem is something under way.
type shareItem struct {
	kind    shareKind
	session int
	sent    tick
	copy    uint8
	ttl     time.Duration
	call    shareCall
	reply   backend.ShareReply
	try     uint64 // of a message that another session waits
	old     bool   // sent before the server lost its memory
}

type versionRead struct {
	version backend.Token
	writes  int8
}

// A shareState is a world at one moment.
type shareState struct {
	now                                           tick
	memory                                        *sharedMemory
	sessions                                      [maxSessions]shareSession
	net                                           [maxShareNet]shareItem
	count                                         int8
	lost                                          bool // something was dropped, because too much was under way
	leftTicks, leftFaults, leftFlushes, leftQuits int8
	leftDeaths                                    int8
	writes                                        int8 // how often the resource was written
	fence                                         backend.Token
	reads                                         [8]versionRead // the versions that were read, and after which write
}

// A shareStep leads from one state to the next.
type shareStep struct {
	*shareWorld
	driver *shareDriver
	store  *shareStore
	shareState
	bad string
	old bool // what comes in was sent before the server lost its memory
}

// A shareDriver is what the sessions of a world are given with each event.
type shareDriver struct {
	options plan.Options
	users   shareUsers
}

func newShareDriver(w *shareWorld) *shareDriver {
	d := &shareDriver{}
	session := func() *shareSession { return &d.users.x.sessions[d.users.s] }
	d.options = plan.Options{
		Opened: tick(0).time(), Lease: 3 * second, Heartbeat: second, CommandTimeout: age(w.timeout()),
		Patience: (3 - w.hasty) * second, GrantTTL: 2 * second, Turn: w.turn,
		Jitter:     func(time.Duration) time.Duration { return 0 },
		Pause:      func(int, time.Duration) time.Duration { return 0 },
		EpochAbove: func(least uint64) uint64 { return least + 1 },
		Seen:       func() backend.Token { return session().seen },
		Saw:        func(t backend.Token) { session().seen = max(session().seen, t) },
	}
	return d
}

func (w *shareWorld) timeout() tick { return max(w.slow, 1) }

// users returns the local tier of a session.
func (x *shareStep) users(s int) *shareUsers {
	x.driver.users = shareUsers{x, s}
	return &x.driver.users
}

// at returns what a session knows at this moment.
func (x *shareStep) at(s int) *plan.Moment {
	return &plan.Moment{Options: &x.driver.options, Now: x.now.time(), Tier: x.users(s)}
}

func (x *shareStep) must(ok bool, format string, args ...any) {
	if !ok && x.bad == "" {
		x.bad = fmt.Sprintf(format, args...)
	}
}

func (x *shareStep) rw() bool { return x.kind == backend.ReadWrite }

// trusted returns how many units a session trusts.
func (x *shareStep) trusted(s int) int {
	if t := &x.sessions[s].tier; age(x.now) < t.until {
		return t.units
	}
	return 0
}

// read checks that equal versions have no write in between.
func (x *shareStep) read(s int) {
	c := &x.sessions[s]
	if c.flushed {
		return
	}
	version := c.tier.used + 1
	x.fence = max(x.fence, version)
	for i := range x.reads {
		r := &x.reads[i]
		switch r.version {
		case version:
			x.must(r.writes == x.writes, "%s reads version %d after %d writes, which was also read after %d", sessionName(uint8(s)), version, x.writes, r.writes)
			return
		case 0:
			*r = versionRead{version, x.writes}
			return
		}
	}
}

// write carries out a writer's write to the resource, unless the resource knows a higher token or version.
func (x *shareStep) write(s, i int) {
	if x.sessions[s].tier.tokens[i] < x.fence {
		return
	}
	x.fence = x.sessions[s].tier.tokens[i]
	x.writes++
}

// look calls Next for each session whose driver is to call it, unless Next would send something, since sending is an action
// of its own.
func (x *shareStep) look() {
	for s := range x.ops {
		c := &x.sessions[s]
		if c.busy {
			c.woken = false // it looks after the reply in any case
		}
		if x.ops[s] == nil || c.busy || !c.woken && (c.again == 0 || x.now < c.again) {
			continue
		}
		was, fence, reads := *c, x.fence, x.reads
		again, send := c.plan.Next(x.at(s))
		if send {
			*c, x.fence, x.reads = was, fence, reads
			c.woken = true
			continue
		}
		if c.woken, c.again = false, 0; !again.IsZero() {
			c.again = max(x.now+1, tickOf(again.Add(second-1)))
		}
	}
}

// repeats reports whether what a session would send is a copy of what it has sent.
func (x *shareStep) repeats(s int) bool {
	c, fence, reads := &x.sessions[s], x.fence, x.reads
	was, epoch := *c, c.plan.Request(x.at(s), time.Time{}).Epoch
	c.plan.Next(x.at(s))
	now := c.plan.Awaits(epoch)
	*c, x.fence, x.reads = was, fence, reads
	return now && was.plan.Claims()
}

// post sends what a session has to say.
func (x *shareStep) post(s int) {
	c := &x.sessions[s]
	if again, send := c.plan.Next(x.at(s)); !send {
		x.must(false, "%s has nothing to say until %v", sessionName(uint8(s)), again)
		return
	}
	at := x.at(s)
	c.plan.Send(at)
	req := c.plan.Request(at, time.Time{})
	if req.Memory = (time.Time{}); x.rw() {
		req.Tokens = 2 // so that blocks are used up
	}
	if req.Answer > 0 {
		c.answered = req.Answer
	}
	c.woken, c.again, c.busy, c.copy, c.sent = false, 0, true, x.copyOf(s), x.now
	notAfter := x.now + x.timeout()
	x.send(shareItem{kind: shareRequest, session: s, sent: x.now, copy: c.copy,
		call: shareCall{session: s, req: req, notAfter: notAfter, memory: notAfter}})
}

// copyOf returns the number of a session's next copy. No copy of this tick that is still under way has that number.
func (x *shareStep) copyOf(s int) (n uint8) {
	for _, it := range x.net[:x.count] {
		if it.session == s && it.sent == x.now && (it.kind == shareRequest && !it.call.renew || it.kind == shareAnswer) {
			n = max(n, it.copy+1)
		}
	}
	return n
}

// fail ends the wait for the reply to a copy. The reply may still arrive.
func (x *shareStep) fail(s int) {
	c := &x.sessions[s]
	c.busy, c.copy, c.sent, c.woken = false, 0, 0, true
	if c.plan.Claims() {
		c.plan.Failed(x.at(s), plan.Failure{})
	}
}

// renew sends a renewal.
func (x *shareStep) renew(s int) {
	c := &x.sessions[s]
	r, had := c.plan.Renewal(nil, 3*second)
	c.renewing, c.renewed, c.renewedOf = true, x.now, r.Epoch
	x.send(shareItem{kind: shareRequest, session: s, sent: x.now, call: shareCall{session: s, renew: true,
		req: backend.ShareRequest{Epoch: r.Epoch, Keep: had, Under: r.Under, Lease: r.Lease}}})
}

// renewalDue reports whether a session has to renew its units.
func (x *shareStep) renewalDue(s int) bool {
	c := &x.sessions[s]
	at, due := c.plan.Due(x.now.time(), time.Time{})
	return due && !at.IsZero() && !c.renewing
}

func (x *shareStep) send(it shareItem) {
	for i := range x.count {
		if x.net[i] == it {
			return
		}
	}
	if x.count == maxShareNet {
		x.lost = true
		return
	}
	x.net[x.count] = it
	x.count++
}

func (x *shareStep) remove(i int8) {
	copy(x.net[i:], x.net[i+1:])
	x.count--
	x.net[x.count] = shareItem{}
}

// arrive delivers an item to its recipient.
func (x *shareStep) arrive(it shareItem) {
	if x.sessions[it.session].dead && it.kind != shareRequest {
		return
	}
	x.old = it.old
	defer func() { x.old = false }()
	switch it.kind {
	case shareRequest:
		x.serve(it)
	case shareAnswer:
		x.answered(it)
	case sharePush:
		x.pushed(it)
	case shareWanted:
		x.heard(it)
	case renewAnswer:
		x.renewedBy(it)
	}
}

// heard handles the message that another session waits, tries, or no longer waits.
func (x *shareStep) heard(it shareItem) {
	c := &x.sessions[it.session]
	x.carry(it.session, c.plan.Wanted(x.at(it.session), it.reply.May, it.try))
}

// carry carries out a step of a plan.
func (x *shareStep) carry(s int, step plan.Step) {
	if c := &x.sessions[s]; step.Look {
		c.woken = true
	}
}

func (x *shareStep) serve(it shareItem) {
	before := x.memory
	res := x.store.exec(before, x.now, it.call)
	x.must(res.bad == "", "%s", res.bad)
	x.memory = res.after
	x.check()
	x.refusals(before, it.call, res.reply)
	for _, m := range res.told {
		x.send(m)
	}
	it.reply = res.reply
	switch c := &x.sessions[it.session]; {
	case it.call.renew && c.renewing && c.renewed == it.sent:
		it.kind = renewAnswer
		x.send(it)
	case !it.call.renew && res.reply.Status != 0 && x.awaited(it):
		it.kind = shareAnswer
		x.send(it)
	}
}

// check checks what must always hold at the server.
func (x *shareStep) check() {
	sum, most, writers := 0, 0, 0
	for _, e := range x.memory.shared.Entries {
		if instantOf(x.now) <= e.Until && e.Units > 0 {
			sum += e.Units
			most = max(most, e.Limit)
			if e.Units == allUnits {
				writers++
			}
		}
	}
	x.must(sum <= most || !x.sameLimits(), "the sessions have %d units", sum)
	x.must(writers == 0 || sum == allUnits, "a writer is not alone")
}

// refusals checks that a try is refused only if other sessions wait, or if the units that it needs are in use by the
// sessions that were asked.
func (x *shareStep) refusals(before *sharedMemory, c shareCall, reply backend.ShareReply) {
	if x.leftFlushes != x.flushes {
		return // answers to tries that the server no longer knows
	}
	fresh := c.req.Try && reply.Status == backend.Shared && !reply.Placed && reply.Units < c.req.Least
	for _, e := range before.shared.Entries {
		s, live := int(e.Session[0]-'a'), e.Place.Order > 0 && instantOf(x.now) <= e.Place.Deadline
		if s == c.session {
			fresh = fresh && c.req.Epoch > e.Epoch
			continue
		}
		if live && fresh {
			fresh = false
		}
		if after := x.entry(s); live && e.Place.Try && after.Place.Order == 0 && after.Units < e.Place.Least {
			x.must(x.inTheWay(s, e.Limit-e.Place.Least, e.Place.Order), "%s is refused", e.Session)
		}
	}
	x.must(!fresh, "%s is refused at once, although no session waits before it", sessionName(uint8(c.session)))
}

// entry returns what the server stores for a session.
func (x *shareStep) entry(s int) protocol.Entry {
	for _, e := range x.memory.shared.Entries {
		if e.Session == sessionName(uint8(s)) {
			return e
		}
	}
	return protocol.Entry{}
}

// inTheWay reports whether the sessions that answered the try of session s have more units than the try leaves for all
// others, and either one of them alone has more, or each of them has answered.
func (x *shareStep) inTheWay(s, leaves int, try uint64) bool {
	sum, most, all := 0, 0, true
	for o := range x.ops {
		units := x.entry(o).Units
		switch {
		case o == s || units == 0:
		case x.sessions[o].answered == try, x.sessions[o].dead: // which may have answered, in a copy that came since
			sum, most = sum+units, max(most, units)
		default:
			all = false
		}
	}
	return most > leaves || all && sum > leaves
}

func (x *shareStep) sameLimits() bool { return x.limit[0] == x.limit[1] }

// awaited reports whether a session waits for the reply to this copy.
func (x *shareStep) awaited(it shareItem) bool {
	c := &x.sessions[it.session]
	return c.busy && c.copy == it.copy && c.sent == it.sent
}

// answered handles the reply to a copy.
func (x *shareStep) answered(it shareItem) {
	if !x.awaited(it) {
		return
	}
	c := &x.sessions[it.session]
	c.busy, c.copy, c.sent, c.woken = false, 0, 0, true
	if c.plan.Awaits(it.call.req.Epoch) {
		x.carry(it.session, c.plan.Replied(x.at(it.session), &it.reply, it.sent.time(), 0))
	}
}

// pushed handles a message with a grant, or with the refusal of a try.
func (x *shareStep) pushed(it shareItem) {
	r := it.reply
	g := backend.ShareGrant{Name: lockName, Epoch: r.Epoch, Units: r.Units, First: r.First, Last: r.Last, May: r.May, TTL: it.ttl, NotBefore: it.sent.time()}
	x.carry(it.session, x.sessions[it.session].plan.Pushed(x.at(it.session), &g))
}

// renewedBy handles the reply to a renewal.
func (x *shareStep) renewedBy(it shareItem) {
	if c := &x.sessions[it.session]; c.renewing && c.renewed == it.sent {
		x.renewalEnds(it.session, plan.Renewed{Epoch: it.call.req.Epoch, Had: it.call.req.Keep, Gone: it.reply.Units == 0, Units: it.reply.Units, Sent: it.sent.time()})
	}
}

func (x *shareStep) renewalEnds(s int, r plan.Renewed) {
	c := &x.sessions[s]
	c.renewing, c.renewed, c.renewedOf = false, 0, 0
	step, _ := c.plan.Renewed(x.at(s), r)
	x.carry(s, step)
}

// A shareAction is one thing that happens.
type shareAction struct {
	what    shareWhat
	session int8
	index   int8
}

type shareWhat uint8

const (
	userComes shareWhat = iota
	userQuits
	userLeaves
	lateWrite
	sends
	shareFails
	renewsUnits
	dies
	delivers
	doubles
	drops
	timePasses
	memoryLost
	unitsForced
)

var shareWhats = [...]string{"user comes", "user quits", "user leaves", "late write", "sends", "fails", "renews", "dies", "delivers", "doubles", "loses", "tick", "flush", "force"}

// actions returns the actions that can come next.
func (x *shareStep) actions() (all []shareAction) {
	for s := range x.ops {
		if x.ops[s] == nil {
			continue
		}
		c := &x.sessions[s]
		coming := false
		for i := range x.ops[s] {
			switch c.tier.users[i] {
			case userAway:
				if !coming {
					all = append(all, shareAction{userComes, int8(s), int8(i)})
				}
				coming = true
			case userWaits:
				if x.leftQuits > 0 {
					all = append(all, shareAction{userQuits, int8(s), int8(i)})
				}
			case userInside:
				all = append(all, shareAction{userLeaves, int8(s), int8(i)})
			case userLost:
				all = append(all, shareAction{lateWrite, int8(s), int8(i)})
			}
		}
		switch {
		case c.busy && x.leftFaults > 0:
			all = append(all, shareAction{shareFails, int8(s), 0})
		case !c.busy && c.woken && (!x.calm || !x.repeats(s)):
			all = append(all, shareAction{sends, int8(s), 0})
		}
		if x.leftDeaths > 0 && !c.plan.Idle() {
			all = append(all, shareAction{dies, int8(s), 0})
		}
		if !x.calm && x.renewalDue(s) {
			all = append(all, shareAction{renewsUnits, int8(s), 0})
		}
	}
	for i := range x.count {
		all = append(all, shareAction{delivers, 0, i})
		if x.leftFaults > 0 {
			all = append(all, shareAction{drops, 0, i})
			if k := x.net[i].kind; k != shareAnswer && k != renewAnswer {
				all = append(all, shareAction{doubles, 0, i})
			}
		}
	}
	if x.leftTicks > 0 {
		all = append(all, shareAction{timePasses, 0, 0})
	}
	if x.leftFlushes > 0 {
		all = append(all, shareAction{memoryLost, 0, 0}, shareAction{unitsForced, 0, 0})
	}
	return all
}

func (x *shareStep) happen(a shareAction) {
	s, i := int(a.session), int(a.index)
	c := &x.sessions[s]
	switch a.what {
	case userComes:
		x.users(s).enter(i)
		c.woken = true
	case userQuits:
		x.leftQuits--
		x.users(s).exit(i)
		c.woken = true
	case userLeaves:
		x.leave(s, i)
	case lateWrite:
		x.write(s, i)
		c.tier.users[i] = userDone
	case sends:
		x.post(s)
	case shareFails:
		x.leftFaults--
		x.fail(s)
	case renewsUnits:
		x.renew(s)
	case dies:
		x.die(s)
	case delivers:
		it := x.net[i]
		x.remove(a.index)
		x.arrive(it)
	case doubles:
		x.leftFaults--
		x.arrive(x.net[i])
	case drops:
		x.leftFaults--
		x.remove(a.index)
	case timePasses:
		x.tick()
	case memoryLost:
		x.flush()
	case unitsForced:
		x.force()
	}
	x.look()
	x.trustworthy()
}

func (x *shareStep) leave(s, i int) {
	c := &x.sessions[s]
	if x.rw() && x.ops[s][i] == allUnits {
		x.write(s, i)
	} else if x.rw() {
		x.read(s)
	}
	x.users(s).exit(i)
	c.woken = true
}

func (x *shareStep) tick() {
	x.leftTicks--
	x.now++
	x.memory = x.store.pass(x.memory, x.now)
	for s := range x.ops {
		c := &x.sessions[s]
		if x.ops[s] == nil {
			continue
		}
		if c.busy && x.now >= c.sent+x.timeout() {
			x.fail(s)
		}
		if c.renewing && x.now >= c.renewed+x.timeout() {
			x.renewalEnds(s, plan.Renewed{Epoch: c.renewedOf, Failed: true})
		}
		x.carry(s, c.plan.Expire(x.at(s)))
	}
}

// die ends a session and its users. What it has sent may still arrive.
func (x *shareStep) die(s int) {
	x.leftDeaths--
	c := &x.sessions[s]
	*c = shareSession{plan: plan.New(x.kind), dead: true}
	for i := range x.ops[s] {
		c.tier.users[i] = userDone
	}
}

// flush makes the server lose its memory. Sessions trust their units in vain then, until a reply says so.
func (x *shareStep) flush() {
	x.memory = x.store.intern(nil, 0)
	x.forget()
}

// force makes the server take the units of all sessions.
func (x *shareStep) force() {
	res := x.store.exec(x.memory, x.now, shareCall{force: true, req: backend.ShareRequest{Kind: x.kind}})
	x.must(res.bad == "", "%s", res.bad)
	x.memory = res.after
	x.forget()
	for _, m := range res.told {
		x.send(m)
	}
}

// forget records that the server no longer has what sessions trust.
func (x *shareStep) forget() {
	x.leftFlushes--
	for s := range x.sessions {
		x.sessions[s].flushed = x.sessions[s].tier.units > 0
	}
	for i := range x.count {
		x.net[i].old = x.net[i].kind != shareRequest
	}
	x.reads = [8]versionRead{}
}

// trustworthy checks that the units that sessions trust are within the limit, and that each user inside has trusted
// units.
func (x *shareStep) trustworthy() {
	sum, most := 0, 0
	for s := range x.ops {
		if x.ops[s] == nil || x.sessions[s].flushed {
			continue
		}
		sum += x.trusted(s)
		most = max(most, x.limit[s])
		used := x.users(s).inUse()
		x.must(used <= x.trusted(s), "%s uses %d units and trusts %d", sessionName(uint8(s)), used, x.trusted(s))
	}
	x.must(sum <= most, "%d units are trusted", sum)
}

// tell formats an action, and the state that it led to, as one line.
func (x *shareStep) tell(a shareAction) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s %s", x.now, shareWhats[a.what], sessionName(uint8(a.session)))
	fmt.Fprintf(&b, "  server %s", x.memory)
	for s := range x.ops {
		if c := x.sessions[s]; x.ops[s] != nil {
			req := c.plan.Request(x.at(s), time.Time{})
			fmt.Fprintf(&b, "\n   %s units=%d until=%v busy=%v woken=%v again=%d asked=%v may=%d users=%v v%d", sessionName(uint8(s)),
				c.tier.units, c.tier.until, c.busy, c.woken, c.again, c.tier.asked, c.tier.may, c.tier.users, c.tier.used+1)
			if c.plan.Claims() {
				fmt.Fprintf(&b, " claims e%d keep=%d want=%d least=%d try=%v answer=%d", req.Epoch, req.Keep, req.Want, req.Least, req.Try, req.Answer)
			}
		}
	}
	for _, it := range x.net[:x.count] {
		fmt.Fprintf(&b, "\n   under way: kind %d of %s sent %d e%d/%d %+v", it.kind, sessionName(uint8(it.session)), it.sent, it.call.req.Epoch, it.reply.Epoch, it.reply)
	}
	return b.String()
}
