package explore

import (
	"fmt"
	"strings"

	"github.com/relock-go/relock/backend"
)

const (
	maxOps      = 4
	maxShareNet = 6
	allUnits    = backend.AllUnits
)

// A shareWorld says what can happen to a few sessions that share a name.
type shareWorld struct {
	name    string
	kind    backend.ShareKind
	ops     [maxSessions][]int // of each session: the units of its users, in the order in which they come
	limit   [maxSessions]int
	ticks   int8
	faults  int8 // copies and messages that are lost or doubled
	flushes int8
	quits   int8          // users that stop waiting
	calm    bool          // sessions send no copies and renew nothing, until nothing fails any more
	begin   []shareAction // what has happened already
	most    int           // states that are explored at full size; 0: all
}

// The states of a user.
type userState uint8

const (
	userAway userState = iota
	userWaits
	userInside
	userDone
	userLost // a writer that has not noticed its loss, and may still write
)

// A shareSession is a session that follows the rules for shared holds.
type shareSession struct {
	epoch       uint64
	units       int
	until       tick // the trust in them: good before that
	first, last backend.Token
	under       backend.Token // first when it got its first unit
	next        backend.Token // a writer's next token
	version     backend.Token // of its readers

	out          bool // a request is under way or queued
	placed, beat bool // beat: a copy of it was sent in this tick
	silent       bool // it is under way since an earlier tick
	full         bool
	req          backend.ShareRequest
	memory       tick
	wanted       bool
	may          int
	users        [maxOps]userState
	tokens       [maxOps]backend.Token
	flushed      bool // what it trusts was destroyed with the server's memory
	renewed      bool // in this tick
}

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
	until   tick
	call    shareCall
	reply   backend.ShareReply
	old     bool // from before a flush
}

type versionRead struct {
	version backend.Token
	writes  int8
}

// A shareState is a world at one moment.
type shareState struct {
	now                                           tick
	memory                                        sharedMemory
	sessions                                      [maxSessions]shareSession
	net                                           [maxShareNet]shareItem
	count                                         int8
	leftTicks, leftFaults, leftFlushes, leftQuits int8
	writes                                        int8 // how often the resource was written
	fence                                         backend.Token
	reads                                         [8]versionRead // the versions that were seen, and of which write
}

// A shareStep takes a state on.
type shareStep struct {
	*shareWorld
	store *shareStore
	shareState
	bad string
}

func (x *shareStep) must(ok bool, format string, args ...any) {
	if !ok && x.bad == "" {
		x.bad = fmt.Sprintf(format, args...)
	}
}

func (x *shareStep) rw() bool { return x.kind == backend.ReadWrite }

// used returns how many units are in use.
func (x *shareStep) used(s int) (units int) {
	for i, n := range x.ops[s] {
		switch {
		case x.sessions[s].users[i] != userInside:
		case x.rw():
			units = max(units, n)
		default:
			units += n
		}
	}
	return units
}

// head returns the first user of a session that waits, -1 if none does.
func (x *shareStep) head(s int) int {
	for i := range x.ops[s] {
		if x.sessions[s].users[i] == userWaits {
			return i
		}
	}
	return -1
}

func (x *shareStep) trusted(s int) int {
	if c := &x.sessions[s]; x.now < c.until {
		return c.units
	}
	return 0
}

// admit lets users in, first come, first served.
func (x *shareStep) admit(s int, atGrant bool) {
	c := &x.sessions[s]
	for i := x.head(s); i >= 0; i = x.head(s) {
		n, used := x.ops[s][i], x.used(s)
		var ok bool
		switch {
		case x.rw() && n == 1:
			ok = used < allUnits && x.trusted(s) >= 1 && (!c.wanted || atGrant)
		case x.rw():
			ok = used == 0 && x.trusted(s) == allUnits && c.next <= c.last && (!c.wanted || atGrant)
		default:
			ok = used+n <= x.trusted(s) && (!c.wanted || atGrant || used+n <= c.may)
		}
		if !ok {
			return
		}
		c.users[i] = userInside
		if x.rw() && n == allUnits {
			c.tokens[i] = c.next
			c.version, c.next = c.next+1, c.next+2
		} else if x.rw() {
			x.read(s)
		}
	}
}

// read checks that equal versions have no write in between.
func (x *shareStep) read(s int) {
	c := &x.sessions[s]
	if c.flushed {
		return
	}
	x.fence = max(x.fence, c.version)
	for i := range x.reads {
		r := &x.reads[i]
		switch r.version {
		case c.version:
			x.must(r.writes == x.writes, "%s reads version %d after %d writes, and it was read after %d", sessionName(uint8(s)), c.version, x.writes, r.writes)
			return
		case 0:
			*r = versionRead{c.version, x.writes}
			return
		}
	}
}

// write carries out a writer's write to the resource, which refuses it if it has seen a higher token or version.
func (x *shareStep) write(s, i int) {
	if x.sessions[s].tokens[i] < x.fence {
		return
	}
	x.fence = x.sessions[s].tokens[i]
	x.writes++
}

// lose takes the units from all users inside. While the session trusts its units the server has them, unless it forgot them.
func (x *shareStep) lose(s int) {
	c := &x.sessions[s]
	x.must(x.trusted(s) == 0 || c.flushed, "%s is told of a loss that is none", sessionName(uint8(s)))
	for i, n := range x.ops[s] {
		if c.users[i] == userInside {
			c.users[i] = userDone
			if x.rw() && n == allUnits {
				c.users[i] = userLost
			}
		}
	}
	c.units, c.until, c.first, c.last, c.under, c.next, c.version, c.wanted, c.flushed = 0, 0, 0, 0, 0, 0, 0, false, false
	if c.out && c.req.Keep > 0 {
		c.out = false
	}
}

// plan returns what the session would ask for next.
func (x *shareStep) plan(s int, idle bool) (keep, want, least int, ok bool) {
	c := &x.sessions[s]
	used, h, has := x.used(s), x.head(s), x.trusted(s)
	if h >= 0 {
		want, least = x.ops[s][h], x.ops[s][h]
		if !x.rw() {
			want = used
			for i, n := range x.ops[s] {
				if c.users[i] == userWaits {
					want += n
				}
			}
			want = max(has, least, min(want, x.limit[s]))
		}
	}
	floor := used
	if !x.rw() && c.wanted {
		floor = max(used, min(has, c.may))
	} else if !x.rw() {
		floor = max(used, has)
	}
	lower := func() (int, int, int, bool) {
		if h >= 0 && want > floor {
			return floor, want, least, true
		}
		return floor, floor, 0, true
	}
	if c.out {
		waits := c.req.Want > c.req.Keep
		switch {
		case h < 0 && waits:
			keep = min(c.req.Keep, has)
			return keep, keep, 0, true
		case c.wanted && waits && floor < c.req.Keep:
			return lower()
		case h >= 0 && waits && x.rw() && want > c.req.Want && c.placed:
			return used, want, least, true
		case h >= 0 && !waits && c.silent && has < least: // what was given back goes with the next request
			if x.rw() {
				return used, want, least, true
			}
			return has, want, least, true
		}
		return 0, 0, 0, false
	}
	switch {
	case c.wanted && floor < has:
		return lower()
	case h >= 0 && !x.rw() && has >= least && used+x.ops[s][h] > has && want > has && !c.full && !c.wanted:
		return has, want, least, true
	case h >= 0 && has < want && x.rw():
		return used, want, least, true
	case h >= 0 && has < least:
		return has, want, least, true
	case h >= 0 && x.rw() && has == allUnits && want == allUnits && c.next > c.last && used == 0:
		return 0, want, least, true
	case h < 0 && idle && has > used:
		return used, used, 0, true
	}
	return 0, 0, 0, false
}

// post sends a new epoch. What it gives back is out of use first.
func (x *shareStep) post(s, keep, want, least int) {
	c := &x.sessions[s]
	c.epoch++
	req := backend.ShareRequest{Kind: x.kind, Epoch: c.epoch, Keep: keep, Want: want, Least: least, Limit: x.limit[s], Tokens: 2,
		Lease: 3 * second, GrantTTL: 2 * second, Patience: 3 * second, Under: c.under}
	if x.rw() && c.units == allUnits && keep < allUnits && c.next > c.first {
		req.Tail = c.next - 2
	}
	if keep < c.units {
		c.units = keep
		if c.next = 0; keep == 0 {
			c.until, c.first, c.last, c.under, c.version, c.flushed = 0, 0, 0, 0, 0, false
		}
	}
	c.out, c.placed, c.silent, c.req = true, false, false, req
	x.copy(s)
}

// copy sends one more copy of the last request.
func (x *shareStep) copy(s int) {
	c := &x.sessions[s]
	c.beat = true
	notAfter := x.now + 1
	if c.req.Want == c.req.Keep {
		notAfter = x.now
	}
	c.memory = max(c.memory, notAfter)
	x.send(shareItem{kind: shareRequest, session: s, sent: x.now, call: shareCall{session: s, req: c.req, notAfter: notAfter, memory: c.memory}})
}

func (x *shareStep) send(it shareItem) {
	for i := range x.count {
		if x.net[i] == it {
			return
		}
	}
	if x.count < maxShareNet { // else it is lost
		x.net[x.count] = it
		x.count++
	}
}

func (x *shareStep) remove(i int8) {
	copy(x.net[i:], x.net[i+1:])
	x.count--
	x.net[x.count] = shareItem{}
}

// arrive delivers an item to where it was sent.
func (x *shareStep) arrive(it shareItem) {
	switch it.kind {
	case shareRequest:
		x.serve(it)
	case shareAnswer:
		x.answered(it)
	case sharePush:
		x.pushed(it)
	case shareWanted:
		if c := &x.sessions[it.session]; c.units > it.reply.May {
			c.wanted, c.may = true, it.reply.May
		}
	case renewAnswer:
		x.renewedBy(it)
	}
}

func (x *shareStep) serve(it shareItem) {
	after, reply, told, bad := x.store.exec(x.memory, x.now, it.call)
	x.must(bad == "", "%s", bad)
	x.memory = after
	x.check()
	for _, m := range told {
		m.sent = x.now
		x.send(m)
	}
	switch {
	case it.call.renew:
		x.send(shareItem{kind: renewAnswer, session: it.session, sent: it.sent, call: it.call, reply: reply})
	case reply.Status != 0:
		x.send(shareItem{kind: shareAnswer, session: it.session, sent: it.sent, call: it.call, reply: reply})
	}
}

// check checks what must be true of the server at any time.
func (x *shareStep) check() {
	sum, most, writers := 0, 0, 0
	for _, e := range x.memory.entries[:x.memory.count] {
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

func (x *shareStep) sameLimits() bool { return x.limit[0] == x.limit[1] }

func (x *shareStep) answered(it shareItem) {
	c, r := &x.sessions[it.session], it.reply
	if r.Status == backend.StaleShare || !c.out || r.Epoch != c.req.Epoch {
		return
	}
	until := it.sent + 3
	switch {
	case r.Status == backend.ShareLost:
		x.lose(it.session)
		c.out = false
	case r.Placed:
		c.placed = true
		if c.req.Keep > 0 && r.Units < c.req.Keep {
			x.lose(it.session)
		} else if c.req.Keep > 0 {
			c.until, c.first = max(c.until, until), r.First
			c.flushed = c.flushed && it.old
		}
	case r.Units < c.req.Want && r.Units < c.req.Least || r.Units < c.req.Keep:
		c.out = false // its place or its grant is over
		if c.req.Keep > 0 && r.Units >= c.req.Keep {
			c.until, c.first = max(c.until, until), r.First
			c.flushed = c.flushed && it.old
		} else if c.req.Keep > 0 {
			x.lose(it.session)
		}
	default:
		x.settle(it, until)
	}
}

func (x *shareStep) pushed(it shareItem) {
	if c := &x.sessions[it.session]; c.out && it.reply.Epoch == c.req.Epoch && x.now < it.until {
		x.settle(it, it.until)
	}
}

// settle sets what the session has from now on.
func (x *shareStep) settle(it shareItem, until tick) {
	s, r := it.session, it.reply
	c := &x.sessions[s]
	c.out, c.placed = false, false
	c.full = r.Units < c.req.Want
	wrote := c.units == allUnits && x.rw()
	if r.Units < c.req.Keep || c.units > 0 && x.now >= c.until {
		x.lose(s)
		return
	}
	if c.req.Keep == 0 {
		c.under = r.First
	}
	c.units, c.until, c.first, c.flushed = r.Units, until, r.First, it.old && r.Units > 0
	switch {
	case c.units == 0:
		c.until, c.version = 0, 0
	case !x.rw():
	case c.units < allUnits:
		c.version = r.First + 1
	case !wrote:
		if c.next, c.last = r.First, r.Last; x.used(s) == 0 || c.version == 0 {
			c.version = r.First - 1 // nothing was written under its tokens
		}
	}
	if x.now >= c.until && c.units > 0 {
		x.lose(s)
	}
	c.wanted = false
	x.admit(s, true)
	if r.May < c.units {
		c.wanted, c.may = true, r.May
	}
	x.admit(s, false)
}

func (x *shareStep) renewedBy(it shareItem) {
	c := &x.sessions[it.session]
	if c.out || it.call.req.Epoch != c.epoch || c.units == 0 {
		return
	}
	if it.reply.Units < c.units {
		x.lose(it.session)
		return
	}
	c.until = max(c.until, it.sent+3)
	c.flushed = c.flushed && it.old
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
	sendsIdle
	shareBeats
	renewsUnits
	delivers
	doubles
	drops
	timePasses
	memoryLost
)

var shareWhats = [...]string{"user comes", "user quits", "user leaves", "late write", "sends", "gives back", "beats", "renews", "delivers", "doubles", "loses", "tick", "flush"}

// actions returns what can happen next.
func (x *shareStep) actions() (all []shareAction) {
	for s := range x.ops {
		if x.ops[s] == nil {
			continue
		}
		c := &x.sessions[s]
		coming := false
		for i := range x.ops[s] {
			switch c.users[i] {
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
		if _, _, _, ok := x.plan(s, false); ok {
			all = append(all, shareAction{sends, int8(s), 0})
		} else if _, _, _, ok := x.plan(s, true); ok {
			all = append(all, shareAction{sendsIdle, int8(s), 0})
		}
		if c.out && !c.beat && !x.calm {
			all = append(all, shareAction{shareBeats, int8(s), 0})
		}
		if !c.out && x.trusted(s) > 0 && !c.renewed && !x.calm {
			all = append(all, shareAction{renewsUnits, int8(s), 0})
		}
	}
	for i := range x.count {
		all = append(all, shareAction{delivers, 0, i})
		if x.leftFaults > 0 {
			all = append(all, shareAction{doubles, 0, i}, shareAction{drops, 0, i})
		}
	}
	if x.leftTicks > 0 {
		all = append(all, shareAction{timePasses, 0, 0})
	}
	if x.leftFlushes > 0 {
		all = append(all, shareAction{memoryLost, 0, 0})
	}
	return all
}

func (x *shareStep) happen(a shareAction) {
	s, i := int(a.session), int(a.index)
	c := &x.sessions[s]
	switch a.what {
	case userComes:
		c.users[i] = userWaits
		x.admit(s, false)
	case userQuits:
		x.leftQuits--
		c.users[i] = userDone
		x.admit(s, false)
	case userLeaves:
		x.leave(s, i)
	case lateWrite:
		x.write(s, i)
		c.users[i] = userDone
	case sends, sendsIdle:
		keep, want, least, _ := x.plan(s, a.what == sendsIdle)
		x.post(s, keep, want, least)
	case shareBeats:
		x.copy(s)
	case renewsUnits:
		c.renewed = true
		x.send(shareItem{kind: shareRequest, session: s, sent: x.now, call: shareCall{session: s, renew: true,
			req: backend.ShareRequest{Epoch: c.epoch, Under: c.under, Lease: 3 * second}}})
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
	}
	x.trustworthy()
}

func (x *shareStep) leave(s, i int) {
	c := &x.sessions[s]
	if x.rw() && x.ops[s][i] == allUnits {
		x.write(s, i)
	} else if x.rw() {
		x.read(s)
	}
	c.users[i] = userDone
	x.admit(s, false)
}

func (x *shareStep) tick() {
	x.leftTicks--
	x.now++
	for s := range x.sessions {
		c := &x.sessions[s]
		c.beat, c.full, c.renewed = false, false, false
		c.silent = c.out
		if c.units > 0 && x.now >= c.until {
			x.lose(s)
		}
	}
}

// flush makes the server forget all. Sessions trust in vain then, until a reply says so.
func (x *shareStep) flush() {
	x.leftFlushes--
	x.memory = sharedMemory{}
	for s := range x.sessions {
		x.sessions[s].flushed = x.sessions[s].units > 0
	}
	for i := range x.count {
		x.net[i].old = x.net[i].kind != shareRequest
	}
	x.reads = [8]versionRead{}
}

// trustworthy checks that the units which sessions trust are within the limit, and that each user inside has trusted units.
func (x *shareStep) trustworthy() {
	sum, most := 0, 0
	for s := range x.ops {
		if x.ops[s] == nil || x.sessions[s].flushed {
			continue
		}
		sum += x.trusted(s)
		most = max(most, x.limit[s])
		used := x.used(s)
		x.must(used <= x.trusted(s), "%s uses %d units and trusts %d", sessionName(uint8(s)), used, x.trusted(s))
	}
	x.must(sum <= most, "%d units are trusted", sum)
}

// tell returns an action, and the state that it led to, as one line.
func (x *shareStep) tell(a shareAction) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s %s", x.now, shareWhats[a.what], sessionName(uint8(a.session)))
	fmt.Fprintf(&b, "  server %s", strings.Join(x.memory.hash(), " | "))
	for s := range x.ops {
		if c := x.sessions[s]; x.ops[s] != nil {
			fmt.Fprintf(&b, "\n   %s e%d units=%d until=%d out=%v placed=%v keep=%d want=%d wanted=%v users=%v v%d", sessionName(uint8(s)), c.epoch,
				c.units, c.until, c.out, c.placed, c.req.Keep, c.req.Want, c.wanted, c.users, c.version)
		}
	}
	for _, it := range x.net[:x.count] {
		fmt.Fprintf(&b, "\n   under way: kind %d of %s sent %d e%d/%d %+v", it.kind, sessionName(uint8(it.session)), it.sent, it.call.req.Epoch, it.reply.Epoch, it.reply)
	}
	return b.String()
}
