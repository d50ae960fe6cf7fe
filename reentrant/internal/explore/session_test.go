package explore

import (
	"hash/maphash"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/exclusive/machine"
)

// A client is a session with one lock: the machine that package exclusive runs, and what else its driver knows. Its head has
// one command under way, and its keeper one more.
type client struct {
	*machine.Machine[uint8]       // its owners are numbers; equal machines are one, see store.machine
	busy                    bool  // the head waits for the reply to a slow command
	renewing                bool  // the keeper waits for the reply to a renewal
	dismissing              bool  // a clean-up is on its way to the idle hold
	woken                   bool  // the head is to be woken, once it is parked
	owner                   uint8 // of the attempt
	wish                    flags // of the attempt, while there can be a Resume
	holds                   uint8
	target                  uint8 // the hold count that was requested without a reply; 0: none
	unsure                  bool  // a request for a hold count was given up
	seen                    uint32
	moving                  machine.Action // a Resume is under way, and its next copy is to be sent with the same epoch, or under a new one
	doubtful                bool           // a copy of the Resume may have been carried out
	behind                  bool           // the head lets the Resume go first
	checking                bool           // Redis is to be asked whether the hold is still the session's
	strayed                 uint8          // not the session's knowledge: the epoch of its hold that has moved elsewhere; 0: none
	due                     bool           // the lease is to be renewed
	full                    bool           // the lean command under way had no effect: the backend goes on with the full one

	count uint8 // of epochs: attempts and tickets
	waiter

	gone uint8 // not the session's knowledge: it has given up everything up to this epoch, and Redis knows
}

// edit returns a session whose machine may be changed, until the end of the step.
func (x *step) edit(i uint8) *client {
	c := &x.sessions[i]
	if own := &x.store.scratch[i]; c.Machine != own {
		*own, c.Machine = *c.Machine, own
	}
	return c
}

// keep ends the changes of machines that edit has allowed.
func (x *step) keep() {
	for i := range x.sessions {
		if c := &x.sessions[i]; c.Machine == &x.store.scratch[i] {
			c.Machine = x.store.machine(c.Machine)
		}
	}
}

// machine returns the one machine that is equal to m. As with states, a hash is enough to know it.
func (r *store) machine(m *machine.Machine[uint8]) *machine.Machine[uint8] {
	h := maphash.Comparable(r.seed, *m)
	one := r.machines[h]
	if one == nil {
		one = new(machine.Machine[uint8])
		*one = *m
		r.machines[h] = one
	}
	return one
}

// fresh returns a session that has done nothing; in a world with alone it has had the lock three times while no other waited.
func (r *store) fresh(w *world) client {
	m := new(machine.Machine[uint8])
	for range 3 {
		if w.alone {
			m.Retaken()
		}
	}
	return client{Machine: r.machine(m)}
}

// trying reports whether the head wants the lock.
func (c *client) trying() bool {
	p := c.Phase()
	return p == machine.Begun || p == machine.Asking || p == machine.Parked
}

// time is a tick as a session's clock has it.
func (t tick) time() time.Time { return time.Unix(int64(t), 0).UTC() }

func tickOf(at time.Time) tick { return tick(at.Unix()) }

func ticksOf(d time.Duration) tick { return tick(d / second) }

// mostBlock is the largest block of tokens in a world.
const mostBlock = 3

// The options of sessions, by the size of their blocks of tokens. With hurried, a turn is always over; with lingers, sessions
// keep a hold that no owner has for a tick.
var options, hurried, lingers = optionsOf(time.Hour, false), optionsOf(0, false), optionsOf(time.Hour, true)

// alone has the options for worlds in which sessions keep a lock with which they are alone. Its attempts are refused after as long
// as the short lease, if not sooner.
var alone = func() (all [mostBlock + 1]machine.Options) {
	for block, o := range optionsOf(time.Hour, true) {
		o.Lease, o.GrantTTL, o.CommandTimeout = second*time.Duration(longLease), second*time.Duration(shortLease), second*time.Duration(shortLease)
		o.Heartbeat = time.Hour // no command takes long
		all[block] = o
	}
	return all
}()

func optionsOf(turn time.Duration, linger bool) (all [mostBlock + 1]machine.Options) {
	for block := range all {
		all[block] = machine.Options{
			Opened: time.Unix(-1, 0).UTC(),
			Lease:  second * time.Duration(lease), Heartbeat: second, CommandTimeout: second * time.Duration(timeout),
			Patience: second * time.Duration(patience), GrantTTL: second * time.Duration(grantTTL),
			Handoffs: 1000, HandoffTime: turn, Generation: time.Hour, Block: block,
		}
		if linger {
			all[block].Linger, all[block].CohortOwner = second, backend.LingeringOwner
		}
	}
	return all
}

// at returns the present moment, as a session knows it.
func (x *step) at(c *client) *machine.Moment {
	o := &options[x.world.block]
	if x.world.lingers {
		o = &lingers[x.world.block]
	}
	if x.world.alone {
		o = &alone[x.world.block]
	}
	return &machine.Moment{Options: o, Now: x.now.time(), Seen: tokenOf(c.seen), Field: ownerName(c.owner)}
}

// tokenOf returns a token as a session knows it.
func tokenOf(t uint32) backend.Token {
	if t == 0 {
		return 0
	}
	return backend.Token(epoch + int64(t))
}

// worldly returns a session's token as a world counts it.
func worldly(t backend.Token) uint32 {
	if t == 0 {
		return 0
	}
	return token(int64(t))
}

// attempt begins a new attempt. A head that has not got the lock leaves, and a holder hands the lock on.
func (x *step) attempt(i uint8, f flags, owner uint8, w way) {
	c := x.edit(i)
	at := x.at(c)
	switch {
	case c.Owned():
		x.tell("%s hands the lock on, to its owner %d", sessionName(i), owner)
		c.HandOver()
	case c.trying():
		c.GiveUp()
	}
	head := x.head(f, owner)
	if f.has(yield) { // the turn is over
		at.Options = &hurried[x.world.block]
	}
	if c.owner, c.woken = owner, false; x.left.resumes > 0 {
		c.wish = f
	}
	if s := x.beginHead(c.Machine, at, head); s.Do == machine.Settle {
		x.got(i, s.Holds, false)
		x.tell("%s's next owner inherits the hold, with token %d", sessionName(i), worldly(c.Hold().Token))
		return
	}
	x.copy(i, w)
}

func (x *step) head(f flags, owner uint8) *machine.Head[uint8] {
	h := &machine.Head[uint8]{Owner: owner, Cohort: x.world.block > 1 && !x.world.alone, Alone: x.world.alone, Portable: x.world.portable && x.world.block == 1, Waits: f.has(queueUp), Barges: f.has(barge)}
	if f.has(fixed) {
		h.Fixed = second * time.Duration(lease)
	}
	return h
}

// inherits reports whether the next owner of the session would get its hold without a command.
func (x *step) inherits(c *client) bool {
	next := *c.Machine
	return (next.Owned() || next.Phase() == machine.Idle) && x.next(c, &next).Do == machine.Settle
}

// next hands the hold on to the next owner of the session.
func (x *step) next(c *client, m *machine.Machine[uint8]) machine.Step {
	if m.Owned() {
		m.HandOver()
	}
	return x.beginHead(m, x.at(c), x.head(queueUp, x.world.owners(c)[0]))
}

// beginHead begins with a head, which inherits what its session has if it can.
func (x *step) beginHead(m *machine.Machine[uint8], at *machine.Moment, h *machine.Head[uint8]) machine.Step {
	if h.Cohort || h.Alone {
		if do, _ := m.Inherit(at.Options, at.Now.Sub(at.Opened), at.Waiters, &h.Owner); do == machine.Settle {
			return machine.Step{Do: do, Holds: 1}
		}
	}
	return m.Begin(at, h)
}

// cohort is the owner of a hold that is its session's.
func (w *world) cohort() uint8 {
	if w.lingers {
		return lingering
	}
	return 0
}

// inherit makes the next owner of the session take over the hold without a command.
func (x *step) inherit(i uint8) {
	c := x.edit(i)
	x.got(i, x.next(c, c.Machine).Holds, false)
	x.tell("%s's next owner inherits the hold, with token %d", sessionName(i), worldly(c.Hold().Token))
}

// copy sends a copy of the head's attempt; after a lean copy that had no effect, it sends the full attempt.
func (x *step) copy(i uint8, w way) {
	c := x.edit(i)
	at := x.at(c)
	full := c.full
	if c.full = false; !full {
		if c.Phase() == machine.Begun {
			c.count++
		}
		c.Send(at, uint64(c.count))
	}
	req := c.AcquireRequest(at)
	if full {
		req.Prior = backend.Prior{}
	}
	a := call{verb: verbAcquire, brief: x.world.brief, session: i, owner: ownerOf(req.Owner), epoch: uint8(req.Epoch), holds: uint8(req.Holds), tokens: uint8(req.Tokens),
		notAfter: tickOf(req.NotAfter), seen: worldly(req.Seen)}
	for _, f := range []struct {
		set  bool
		flag flags
	}{{req.Queue, queueUp}, {req.Barge, barge}, {req.Yield, yield}, {req.Fixed, fixed}, {req.KeepTTL, keepTTL}} {
		if f.set {
			a.flags |= f.flag
		}
	}
	if x.world.alone {
		a.lease, a.grant = ticksOf(req.Lease), ticksOf(req.GrantTTL)
	}
	x.send(x.world.lean(a, req.Prior), w)
}

// lingers has the session keep the hold of an owner that gives it up, if it may.
func (c *client) lingers(at *machine.Moment) bool {
	_, ok := c.Linger(at.Options, at.Now.Sub(at.Opened), false)
	return ok
}

// release gives up all that the session has: its hold, or what attempts left behind. If a release is under way already, it
// sends the full release that follows a lean one.
func (x *step) release(i uint8, w way) {
	c := x.edit(i)
	at := x.at(c)
	switch {
	case c.full:
	case c.Owned() && c.behind:
		x.tell("%s hands the lock on, to the head that let a Resume go first", sessionName(i))
		c.HandOver()
		x.goOn(i)
		return
	case !c.Owned():
		c.Clean()
	case c.lingers(at):
		x.tell("%s keeps the lock, which no owner has", sessionName(i))
		return
	default:
		c.Exit(at)
	}
	req := c.ReleaseRequest(at)
	if c.full {
		c.full, req.Prior = false, backend.Prior{}
	}
	r := call{verb: verbRelease, session: i, epoch: uint8(req.Epoch), used: worldly(req.Used), doubt: x.doubt(req.Until)}
	x.send(x.world.leanRelease(r, req.Prior), w)
}

// dismiss has the clean-up arrive that was sent to an idle hold.
func (x *step) dismiss(i uint8, w way) {
	c := x.edit(i)
	c.dismissing = false
	if c.Arrive() {
		x.release(i, w)
	}
}

// doubt returns for how long a copy may be under way that had no reply.
func (x *step) doubt(until time.Time) tick {
	if until.IsZero() {
		return 0
	}
	return tickOf(until) - x.now
}

func (x *step) reenter(i uint8) call {
	c := x.edit(i)
	return call{verb: verbReenter, session: i, owner: c.Hold().Owner, epoch: uint8(c.Epoch()), op: uint8(c.Hold().Op), holds: c.target}
}

// recount carries out a re-entry, or an unlock that is not the last.
func (x *step) recount(a action) {
	c := x.edit(a.session)
	x.left.nests--
	c.Operate()
	c.target = c.holds + 1
	if a.what == exits {
		c.target = c.holds - 1
	}
	x.send(x.reenter(a.session), a.way)
}

// answered handles the reply to a command that was sent at some moment.
func (x *step) answered(a call, res result, sent tick) {
	c := x.edit(a.session)
	at := x.at(c)
	switch a.verb {
	case verbAcquire:
		x.acquired(a, res)
	case verbPass, verbTake, verbYield:
		x.passed(a, res)
	case verbFree:
		x.freed(a, res)
	case verbAwait, verbSignal, verbBeat, verbWithdraw:
		x.heard(a, res)
	case verbResume:
		x.resumed(a, res)
	case verbRelease:
		c.Released(true, false)
	case verbReenter:
		if c.target == 0 {
			return // the hold has ended
		}
		c.target = 0
		if res.code == done {
			c.holds, c.unsure = a.holds, false
		}
		x.follow(a.session, c.Operated(true, res.code != done))
	case verbRenew:
		r := machine.Renewed{Epoch: uint64(a.epoch), Gone: res.code != 1, Sent: sent.time()}
		if !r.Gone {
			r.First = backend.Token(res.numbers[2])
		}
		x.follow(a.session, c.Renewed(at, r))
	}
}

// acquired handles the reply to an attempt.
func (x *step) acquired(a call, res result) {
	c := x.edit(a.session)
	at := x.at(c)
	r := backend.AcquireReply{Status: backend.AcquireStatus(res.code)}
	switch res.code {
	case granted:
		r.First, r.Last, r.TTL = backend.Token(res.numbers[2]), backend.Token(res.numbers[3]), time.Duration(res.numbers[4])*time.Millisecond
		if res.note != "" && r.First == r.Last && x.world.remembers {
			r.Prior = backend.Prior{Epoch: uint64(a.epoch), Owner: ownerName(a.owner), Token: r.First, Note: res.note}
		}
	case waiting:
		r.TTL, r.Lingers = -1, res.lingers
	case tooLate:
		x.follow(a.session, c.Unanswered(at, machine.Failure{}))
		return
	}
	x.follow(a.session, c.Replied(at, &r))
}

// unanswered handles a command that its caller gave up: Redis may have executed it all the same.
func (x *step) unanswered(a call) {
	c := x.edit(a.session)
	at := x.at(c)
	switch {
	case a.verb.attempts():
		x.follow(a.session, c.Unanswered(at, machine.Failure{Unknown: true}))
	case a.verb == verbResume:
		c.doubtful = true
		x.followResume(a.session, c.ResumeUnanswered(at, machine.Failure{Unknown: true}, a.notAfter.time()))
	case a.verb == verbRelease || a.verb == verbFree:
		c.Released(false, false)
	}
}

// follow carries out the step after an event.
func (x *step) follow(i uint8, s machine.Step) {
	c := x.edit(i)
	c.checking = c.checking || s.Check
	switch s.Do {
	case machine.Settle:
		x.got(i, s.Holds, false)
	case machine.Lose:
		x.lose(i)
	case machine.Dismiss:
		c.dismissing = true
	case machine.Renew:
		c.due = x.world.alone
	case machine.CheckLater:
		c.checking = true
	case machine.Park:
		if c.woken {
			x.wake(i)
		}
	case machine.Wake:
		if c.woken = true; c.Phase() == machine.Parked {
			x.wake(i)
		}
	}
}

// wake wakes the parked head.
func (x *step) wake(i uint8) {
	c := x.edit(i)
	c.woken = false
	x.follow(i, c.Woken(x.at(c)))
}

// got makes the head the holder.
func (x *step) got(i uint8, holds int, resumes bool) {
	c := x.edit(i)
	first := worldly(c.Hold().Token)
	if old := first < x.top || first == x.top && !resumes; old && !c.astray() {
		x.fail("%s is told token %d after a hold with token %d", sessionName(i), first, x.top)
	}
	x.top = max(x.top, first)
	c.holds, c.target, c.unsure, c.woken = uint8(holds), 0, false, false
	c.arrived()
	c.seen = max(c.seen, first)
}

// lose ends a hold that the machine has found to be lost: its lease is over, or Redis no longer has it.
func (x *step) lose(i uint8) {
	c := x.edit(i)
	if c.moving != machine.Nothing { // its owner has an operation under way, which finds the loss
		return
	}
	x.tell("%s has lost the lock", sessionName(i))
	c.Operated(false, false)
	c.Evicted()
	c.target = 0
	if c.asking == verbAwait {
		c.phase = torn // Redis may have executed it
	}
	c.asking = verbNone
	x.goOn(i)
}

// leave ends what the head does: its attempt, or a Resume.
func (x *step) leave(i uint8) {
	c := x.edit(i)
	x.tell("%s's owner %d leaves", sessionName(i), c.owner)
	if c.moving == machine.Nothing {
		c.GiveUp()
		c.woken = false
		return
	}
	x.followResume(i, c.NotResumed(machine.Failure{Unknown: c.doubtful}, false))
}

// resume begins to take up the hold of owner 1, or sends another copy. A head that waits lets it go first.
func (x *step) resume(i uint8, w way) {
	c := x.edit(i)
	at := x.at(c)
	at.Field = ownerName(1)
	if c.moving == machine.Nothing {
		x.left.resumes--
		c.doubtful = false
		head := x.head(queueUp, 1)
		if c.Owned() {
			c.moving = c.ResumeOwn(at, head).Do
		} else {
			c.behind = c.trying()
			c.moving = c.Resume(at, head).Do
		}
	}
	next := uint64(0)
	if c.moving == machine.AskAnew {
		c.count++
		next = uint64(c.count)
	}
	c.SendResume(at, next)
	req := c.ResumeRequest(at, (x.now + timeout).time())
	x.send(call{verb: verbResume, session: i, owner: 1, epoch: uint8(req.Epoch), notAfter: tickOf(req.NotAfter), seen: worldly(req.Seen), doubt: x.doubt(req.Until)}, w)
}

// resumed handles the reply to a copy of a Resume.
func (x *step) resumed(a call, res result) {
	c := x.edit(a.session)
	at := x.at(c)
	if res.code == tooLate {
		x.followResume(a.session, c.ResumeUnanswered(at, machine.Failure{}, a.notAfter.time()))
		return
	}
	x.followResume(a.session, c.Resumed(at, &backend.ResumeReply{Status: backend.ResumeStatus(res.code), Holds: int(res.numbers[2]),
		Token: backend.Token(res.numbers[3]), TTL: time.Duration(res.numbers[4]) * time.Millisecond}))
}

// followResume carries out the step after an event of a Resume.
func (x *step) followResume(i uint8, s machine.Step) {
	c := x.edit(i)
	if s.Do == machine.Ask || s.Do == machine.AskAnew {
		c.moving = s.Do
		return
	}
	c.moving, c.doubtful = machine.Nothing, false
	switch s.Do {
	case machine.Settle:
		x.got(i, s.Holds, true)
	case machine.Replace:
		if s.Holds > 0 {
			x.got(i, s.Holds, true)
		}
		c.unsure = true // with the count that its owner knows
		c.checking = c.checking || s.Check
	}
	switch {
	case c.Phase() == machine.Lost:
		x.lose(i)
	case !c.Owned():
		x.goOn(i)
	}
}

// goOn gives the baton to the head that has let a Resume go first.
func (x *step) goOn(i uint8) {
	c := x.edit(i)
	if c.behind {
		c.behind = false
		c.Overtaken(x.at(c), x.head(c.wish, c.owner))
	}
}

// inspect asks Redis whether the hold is still the session's.
func (x *step) inspect(i uint8) {
	c := x.edit(i)
	c.checking = false
	epoch := c.Epoch()
	if !c.Checking(epoch) {
		return
	}
	m := x.memory
	r := machine.Checked{Epoch: epoch, Ours: m.has(i, uint8(epoch)), Sent: x.now.time()}
	if r.Ours {
		r.TTL = second * time.Duration(m.hold.expires-x.now)
	}
	x.tell("%s asks whether its hold of epoch %d is there", sessionName(i), epoch)
	x.follow(i, c.Checked(x.at(c), r))
}

// astray reports whether the session's hold has moved to another session, which this one may not know.
func (c *client) astray() bool { return c.strayed != 0 && c.Epoch() == uint64(c.strayed) }

// trusts reports whether the session trusts that it has the lock.
func (x *step) trusts(c *client) bool {
	return c.Owned() || c.Phase() == machine.Idle && c.Hold().Lease.Trusted(x.now.time())
}

// pushed handles a grant that arrives.
func (x *step) pushed(it item) {
	i := it.call.session
	g := backend.Grant{Epoch: uint64(it.call.epoch), First: tokenOf(it.first), Last: tokenOf(it.last), TTL: time.Duration(it.ttl) * second, NotBefore: it.sent.time()}
	c := x.edit(i)
	x.follow(i, c.Pushed(x.at(c), &g, false, true))
}
