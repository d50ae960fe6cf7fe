package explore

import (
	"fmt"
	"strings"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
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
	hasty   time.Duration // by how many seconds a place ends before a lease does
	calm    bool          // sessions send no copies and renew nothing until the drain
	begin   []shareAction // what has already happened at the beginning
	most    int           // states that are explored at full size; 0: all
}

// The states of a user.
type userState uint8

const (
	userAway userState = iota
	userWaits
	userInside
	userDone
	userLost // a writer that has not noticed its loss yet, and may still write
)

// A shareSession is a session that follows the rules for shared holds.
type shareSession struct {
	epoch       uint64
	confirmed   uint64 // the epoch of the units that the server is known to have
	units       int
	until       tick // the units are trusted before this time
	first, last backend.Token
	under       backend.Token // the first token is set when the session gets its first unit
	next        backend.Token // a writer's next token
	version     backend.Token // the token of its readers

	out          bool // a request is under way, or in the queue
	placed, beat bool // beat: a copy of the request was sent in this tick
	aged, silent bool // a copy has been under way since an earlier tick, and no reply has come since
	probe        bool // the request asks for nothing but whether another session still waits
	req          backend.ShareRequest
	memory       tick
	wanted       bool // another session waits, and lets this one keep so many units
	may, hint    int  // hint: the fewest units that a message has named since the latest copy was sent
	answer       uint64
	users        [maxOps]userState
	tokens       [maxOps]backend.Token
	flushed      bool   // what the session trusts was lost with the server's memory
	renewed      bool   // in this tick
	probed       bool   // in this tick, or in effect in it
	answered     uint64 // the last try that it answered: used by the rules only, no session knows it
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
	writes                                        int8 // how often the resource was written
	fence                                         backend.Token
	reads                                         [8]versionRead // the versions that were read, and after which write
}

// A shareStep leads from one state to the next.
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

// head returns a session's first waiting user, -1 if there is none.
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

// onceHead reports whether the head of a session's users makes a single attempt.
func (x *shareStep) onceHead(s int) bool {
	h := x.head(s)
	return h >= 0 && x.once[s][h]
}

// endTries ends the waits of users that make a single attempt and need at least so many units.
func (x *shareStep) endTries(s, need int) {
	c := &x.sessions[s]
	for i, n := range x.ops[s] {
		if !x.rw() {
			n += x.used(s)
		}
		if c.users[i] == userWaits && x.once[s][i] && n >= need {
			c.users[i] = userDone
		}
	}
	x.admit(s, false)
}

// admit lets users in, in the order of their arrival.
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
			x.must(r.writes == x.writes, "%s reads version %d after %d writes, which was also read after %d", sessionName(uint8(s)), c.version, x.writes, r.writes)
			return
		case 0:
			*r = versionRead{c.version, x.writes}
			return
		}
	}
}

// write carries out a writer's write to the resource, which refuses it if it knows a higher token or version.
func (x *shareStep) write(s, i int) {
	if x.sessions[s].tokens[i] < x.fence {
		return
	}
	x.fence = x.sessions[s].tokens[i]
	x.writes++
}

// lose takes the units from all users inside. While a session trusts its units, the server must have them, unless the
// server lost its memory.
func (x *shareStep) lose(s int) {
	c := &x.sessions[s]
	x.must(x.trusted(s) == 0 || c.flushed, "%s learns of a loss, but has lost nothing", sessionName(uint8(s)))
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

// A demand is what a session will ask for next.
type demand struct {
	keep, want, least int
	try, probe        bool
	answer            uint64
}

func only(keep int) *demand { return &demand{keep: keep, want: keep} }

// ask returns what the head of a session's users needs if the session keeps so many units, nil if those are enough.
func (x *shareStep) ask(s, keep int) *demand {
	h := x.head(s)
	if h < 0 {
		return nil
	}
	n := x.ops[s][h]
	d := demand{keep: keep, want: n, least: n, try: x.once[s][h]}
	if !x.rw() {
		d.least = x.used(s) + n
		d.want = x.used(s)
		for i, n := range x.ops[s] {
			if x.sessions[s].users[i] == userWaits {
				d.want += n
			}
		}
		d.want = max(keep, d.least, min(d.want, x.limit[s]))
	}
	if d.want <= keep || d.least > x.limit[s] {
		return nil
	}
	return &d
}

func (x *shareStep) asking(s, keep int) *demand {
	if d := x.ask(s, keep); d != nil {
		return d
	}
	return only(keep)
}

// plan returns what the session has to ask for next, nil for nothing.
func (x *shareStep) plan(s int) *demand {
	c := &x.sessions[s]
	used, has := x.used(s), x.trusted(s)
	if c.out {
		return x.overtake(s, used, has)
	}
	if c.answer > 0 && has > 0 {
		return &demand{keep: used, want: used, probe: true, answer: c.answer}
	}
	h := x.head(s)
	switch {
	case c.wanted && used < has:
		return x.asking(s, used)
	case h < 0:
		return nil
	case c.wanted && x.rw() && has == 1 && x.ops[s][h] == 1 && (x.once[s][h] || !c.probed):
		return &demand{keep: has, want: has, probe: true}
	case !x.rw():
		return x.ask(s, has)
	case has < x.ops[s][h]:
		return x.ask(s, used)
	case has == allUnits && x.ops[s][h] == allUnits && c.next > c.last && used == 0:
		return x.ask(s, 0)
	}
	return nil
}

// overtake returns what replaces the request under way, nil if that one stays.
func (x *shareStep) overtake(s, used, has int) *demand {
	c := &x.sessions[s]
	asks, idle := c.req.Want > c.req.Keep, 0
	if !x.rw() {
		idle = has
	}
	keep := min(c.req.Keep, has)
	switch {
	case !asks && (!c.silent || x.head(s) < 0):
		return nil
	case c.placed && c.answer > 0:
		d := x.asking(s, min(keep, used))
		d.answer = c.answer
		return d
	case c.wanted && used < keep:
		return x.asking(s, used)
	case x.head(s) < 0 || keep < c.req.Keep:
		return x.asking(s, keep)
	case !c.placed && !c.silent:
		return nil
	}
	d := x.ask(s, min(keep, max(used, idle)))
	switch {
	case d == nil && asks:
		return x.asking(s, keep)
	case d != nil && (d.least != c.req.Least || d.try != c.req.Try):
		return d
	}
	return nil
}

// rest returns what the session can give back without being asked for it.
func (x *shareStep) rest(s int) *demand {
	c := &x.sessions[s]
	if c.out || x.head(s) >= 0 || x.used(s) >= x.trusted(s) {
		return nil
	}
	return only(x.used(s))
}

// post sends a request with a new epoch. Units that it gives back must be out of use before.
func (x *shareStep) post(s int, d *demand) {
	c, keep := &x.sessions[s], d.keep
	if d.want == d.keep {
		d.least = 0
	}
	c.epoch++
	req := backend.ShareRequest{Kind: x.kind, Epoch: c.epoch, Keep: keep, Want: d.want, Least: d.least, Limit: x.limit[s], Tokens: 2,
		Lease: 3 * second, GrantTTL: 2 * second, Patience: (3 - x.hasty) * second, Under: c.under, Try: d.try && d.want > d.keep, Answer: d.answer}
	if c.answer = 0; d.answer > 0 {
		c.answered = d.answer
	}
	if x.rw() && c.units == allUnits && keep < allUnits && c.next > c.first {
		req.Tail = c.next - 2
	}
	if keep < c.units {
		c.units = keep
		if c.next = 0; keep == 0 {
			c.until, c.first, c.last, c.under, c.version, c.flushed = 0, 0, 0, 0, 0, false
		}
	}
	c.out, c.placed, c.aged, c.silent, c.probe, c.req = true, false, false, false, d.probe, req
	x.copy(s)
}

// copy sends another copy of the last request.
func (x *shareStep) copy(s int) {
	c := &x.sessions[s]
	c.beat, c.hint = true, backend.Unlimited
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
	c, may := &x.sessions[it.session], it.reply.May
	if may == backend.Unlimited && it.try == 0 {
		x.unask(it.session)
		return
	}
	c.hint = min(c.hint, may)
	x.asked(it.session, may)
	if c.units > 0 || c.out {
		c.answer = it.try
	}
}

func (x *shareStep) unask(s int) {
	c := &x.sessions[s]
	c.wanted, c.hint, c.answer = false, backend.Unlimited, 0
	x.admit(s, false)
}

func (x *shareStep) asked(s, may int) {
	if c := &x.sessions[s]; may < c.units {
		c.wanted, c.may = true, may
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
		m.sent = x.now
		x.send(m)
	}
	switch {
	case it.call.renew:
		x.send(shareItem{kind: renewAnswer, session: it.session, sent: it.sent, call: it.call, reply: res.reply})
	case res.reply.Status != 0:
		x.send(shareItem{kind: shareAnswer, session: it.session, sent: it.sent, call: it.call, reply: res.reply})
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
		case x.sessions[o].answered == try:
			sum, most = sum+units, max(most, units)
		default:
			all = false
		}
	}
	return most > leaves || all && sum > leaves
}

func (x *shareStep) sameLimits() bool { return x.limit[0] == x.limit[1] }

func (x *shareStep) answered(it shareItem) {
	c, r := &x.sessions[it.session], it.reply
	if r.Status == backend.StaleShare || !c.out || r.Epoch != c.req.Epoch {
		return
	}
	until, asks := it.sent+3, c.req.Want > c.req.Keep
	c.silent = false
	switch {
	case r.Status == backend.ShareLost:
		x.lose(it.session)
		c.out = false
	case r.Placed:
		c.placed = true
		if !c.req.Try {
			x.endTries(it.session, c.req.Least)
		}
		x.confirm(it, until)
		if may := min(r.May, c.hint); may == backend.Unlimited {
			x.unask(it.session)
		} else {
			x.asked(it.session, may)
		}
	case r.Units > 0 && x.now >= until: // the session's units came too late, and it asks again
	case asks && c.req.Keep <= r.Units && r.Units < c.req.Least && c.req.Keep > 0: // refused, or the place or the grant has ended
		c.out = false
		if x.confirm(it, until); c.req.Try {
			x.endTries(it.session, 0)
		}
	default:
		x.settle(it, until)
	}
}

// confirm handles the units in a reply that grants nothing new.
func (x *shareStep) confirm(it shareItem, until tick) {
	c, r := &x.sessions[it.session], it.reply
	switch {
	case c.req.Keep == 0:
	case r.Units < c.req.Keep:
		x.lose(it.session)
	default:
		x.trust(it, until)
	}
}

// trust records that the server has the units under the epoch of the request.
func (x *shareStep) trust(it shareItem, until tick) {
	c := &x.sessions[it.session]
	c.confirmed, c.until = c.req.Epoch, max(c.until, until)
	c.flushed = c.flushed && it.old
}

// pushed handles a message with a grant, or with the refusal of a try.
func (x *shareStep) pushed(it shareItem) {
	c, r := &x.sessions[it.session], it.reply
	refused := c.req.Try && r.Units < c.req.Least
	switch {
	case !c.out || r.Epoch != c.req.Epoch || c.req.Want == c.req.Keep:
	case refused && (!c.placed || r.Units != c.req.Keep): // a copy of the request gets a reply that says more
		c.beat = false
	case refused:
		c.out, c.confirmed = false, c.req.Epoch
		x.endTries(it.session, 0)
	case x.now < it.until:
		x.settle(it, it.until)
	}
}

// settle sets which units the session has from now on.
func (x *shareStep) settle(it shareItem, until tick) {
	s, r := it.session, it.reply
	c := &x.sessions[s]
	asks, may := c.req.Want > c.req.Keep, min(r.May, c.hint)
	if r.Units < c.req.Keep || c.units > 0 && x.now >= c.until {
		x.lose(s)
		c.out, c.placed = false, false
		return
	}
	c.out, c.placed, c.confirmed = false, false, c.req.Epoch
	if c.wanted && r.Units == c.units && may < r.Units && (c.probe || !x.rw() && r.Units == c.req.Keep) {
		x.trust(it, until)
		x.asked(s, may)
		c.probed = true
		x.endTries(s, 0)
		return
	}
	wrote := c.units == allUnits && x.rw()
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
			c.version = r.First - 1 // nothing was written with its tokens
		}
	}
	if x.now >= c.until && c.units > 0 {
		x.lose(s)
	}
	c.wanted, c.probed = false, false
	x.admit(s, true)
	x.asked(s, may)
	x.admit(s, false)
	if asks && r.Units >= c.req.Least {
		x.endTries(s, c.req.Least)
	} else if c.req.Try {
		x.endTries(s, 0)
	}
}

// renewedBy handles the reply to a renewal of the units that the session had when it was sent. A grant may have come
// since. While a request is under way, only a success proves anything.
func (x *shareStep) renewedBy(it shareItem) {
	c := &x.sessions[it.session]
	switch {
	case it.call.req.Epoch != c.confirmed || c.units == 0:
	case it.reply.Units >= it.call.req.Keep:
		c.until = max(c.until, it.sent+3)
		c.flushed = c.flushed && it.old
	case !c.out:
		x.lose(it.session)
	}
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
	tryEnds
	sends
	sendsIdle
	shareBeats
	renewsUnits
	delivers
	doubles
	drops
	timePasses
	memoryLost
	unitsForced
)

var shareWhats = [...]string{"user comes", "user quits", "user leaves", "late write", "gives up", "sends", "gives back", "beats", "renews", "delivers", "doubles", "loses", "tick", "flush", "force"}

// actions returns the actions that can come next.
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
		if c.out && c.aged && x.onceHead(s) {
			all = append(all, shareAction{tryEnds, int8(s), 0})
		}
		if x.plan(s) != nil {
			all = append(all, shareAction{sends, int8(s), 0})
		} else if x.rest(s) != nil {
			all = append(all, shareAction{sendsIdle, int8(s), 0})
		}
		if c.out && !c.beat && !x.calm {
			all = append(all, shareAction{shareBeats, int8(s), 0})
		}
		if x.trusted(s) > 0 && !c.renewed && !x.calm {
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
		all = append(all, shareAction{memoryLost, 0, 0}, shareAction{unitsForced, 0, 0})
	}
	return all
}

func (x *shareStep) happen(a shareAction) {
	s, i := int(a.session), int(a.index)
	c := &x.sessions[s]
	switch a.what {
	case userComes:
		if c.users[i] = userWaits; x.once[s][i] && x.head(s) != i {
			c.users[i] = userDone
		}
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
	case tryEnds:
		x.endTries(s, 0)
	case sends:
		x.post(s, x.plan(s))
	case sendsIdle:
		x.post(s, x.rest(s))
	case shareBeats:
		x.copy(s)
	case renewsUnits:
		c.renewed = true
		x.send(shareItem{kind: shareRequest, session: s, sent: x.now, call: shareCall{session: s, renew: true,
			req: backend.ShareRequest{Epoch: c.confirmed, Keep: c.units, Under: c.under, Lease: 3 * second}}})
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
	for s := range x.ops { // a try for which no command is sent
		if x.onceHead(s) && !x.sessions[s].out && x.plan(s) == nil {
			x.endTries(s, 0)
		}
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
	x.memory = x.store.pass(x.memory, x.now)
	for s := range x.sessions {
		c := &x.sessions[s]
		c.beat, c.renewed, c.probed = false, false, false
		c.aged, c.silent = c.out, c.out
		if c.units > 0 && x.now >= c.until {
			x.lose(s)
		}
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
		m.sent = x.now
		x.send(m)
	}
}

// forget records that the server no longer has what sessions trust.
func (x *shareStep) forget() {
	x.leftFlushes--
	for s := range x.sessions {
		x.sessions[s].flushed = x.sessions[s].units > 0
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
		used := x.used(s)
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
			fmt.Fprintf(&b, "\n   %s e%d units=%d until=%d out=%v placed=%v keep=%d want=%d wanted=%v users=%v v%d", sessionName(uint8(s)), c.epoch,
				c.units, c.until, c.out, c.placed, c.req.Keep, c.req.Want, c.wanted, c.users, c.version)
			if c.req.Try || c.answer > 0 {
				fmt.Fprintf(&b, " try=%v answer=%d", c.req.Try, c.answer)
			}
		}
	}
	for _, it := range x.net[:x.count] {
		fmt.Fprintf(&b, "\n   under way: kind %d of %s sent %d e%d/%d %+v", it.kind, sessionName(uint8(it.session)), it.sent, it.call.req.Epoch, it.reply.Epoch, it.reply)
	}
	return b.String()
}
