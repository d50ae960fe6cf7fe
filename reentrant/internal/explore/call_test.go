package explore

import (
	"cmp"
	"strconv"
)

// A verb is a script.
type verb uint8

const (
	verbNone verb = iota
	verbAcquire
	verbReenter
	verbRelease
	verbRenew
	verbAwait
	verbSignal
	verbWithdraw
	verbBeat
	verbResume
	verbPass
	verbTake
	verbFree
	verbYield
	verbCount
)

var verbNames = [verbCount]string{"", "acquire", "reenter", "release", "renew", "await", "signal", "withdraw", "beat", "resume", "pass", "take", "free", "yield"}

func (v verb) String() string { return verbNames[v] }

// flags are options of an acquire.
type flags uint8

const (
	queueUp flags = 1 << iota
	barge
	yield
	fixed
	keepTTL
)

func (f flags) has(x flags) bool { return f&x != 0 }

func (f flags) String() (letters string) {
	for i, letter := range []string{"q", "b", "y", "f", "k"} {
		if f&(1<<i) != 0 {
			letters += letter
		}
	}
	return letters
}

// These are the times of a world, in ticks. Their order is that of the times of a real session. Since a heartbeat takes no
// time here, all of them are small.
const (
	lease    tick = 2
	grantTTL tick = 1
	patience tick = 1
	timeout  tick = 1 // a copy of a command is refused after this time
)

// These are the times of worlds in which a session keeps a lock with which it is alone. The short lease is the lease of a
// grant.
const (
	longLease  tick = 5
	shortLease tick = 3
)

// A call is one copy of a command, as a session sends it.
type call struct {
	verb           verb
	session, owner uint8
	epoch          uint8
	flags          flags
	holds, op      uint8
	tokens         uint8
	notAfter       tick // acquire: refused from this tick on
	doubt          tick // release: for how long copies of the attempt may arrive
	used, seen     uint32
	ticket         uint8
	all            bool
	memo           memo // of the scripts that compare the record
	brief          tick // acquire: how long the record is kept if no session waits; 0: for half a minute
	lease, grant   tick // acquire, renew; 0: the constants above
}

const (
	channels = "relock:session:"
	keep     = "300"
	lockName = "lock"
	condName = "full"
	noteName = "relock:{lock}:n:lock" // which no call of a world writes
)

// arguments returns the KEYS and ARGV of a call. A test compares them with those of the backend.
func (c call) arguments(names [keyCount]string) (keys, args []string) {
	n := func(x uint8) string { return strconv.Itoa(int(x)) }
	ms := func(t tick) string { return strconv.Itoa(1000 * int(t)) }
	session := sessionName(c.session)
	switch c.verb {
	case verbPass, verbTake, verbFree, verbYield:
		return c.leanArguments(names)
	case verbAcquire:
		return names[:4], []string{session, n(c.epoch), ownerName(c.owner), n(c.holds), ms(c.asksFor()), strconv.FormatInt(c.notAfter.micros()-1, 10),
			c.flags.String(), n(c.tokens), redisToken(c.seen), ms(patience), ms(cmp.Or(c.grant, grantTTL)), channels, keep, c.briefly()}
	case verbReenter:
		return names[:2], []string{session, n(c.epoch), ownerName(c.owner), n(c.op), n(c.holds), ms(lease)}
	case verbRelease:
		return names[:4], []string{session, n(c.epoch), strconv.Itoa(1_000_000 * int(c.doubt)), redisToken(c.used), channels, keep, "0"}
	case verbRenew:
		return names[:2], []string{session, n(c.epoch), ms(c.asksFor())}
	case verbAwait:
		return names[:7], []string{session, n(c.epoch), n(c.ticket), ownerName(c.owner), n(c.holds), redisToken(c.seen), ms(patience), ms(grantTTL), channels, keep,
			strconv.Itoa(1_000_000 * int(c.doubt))}
	case verbSignal:
		all := "0"
		if c.all {
			all = "1"
		}
		return names[:7], []string{session, n(c.epoch), n(c.op), all, channels, "1"}
	case verbWithdraw:
		return names[4:7], []string{session, n(c.ticket)}
	case verbResume:
		return append(names[:4:4], noteName), []string{session, n(c.epoch), ownerName(c.owner), ms(lease), strconv.FormatInt(c.notAfter.micros()-1, 10),
			redisToken(c.seen), channels, keep, (c.flags & fixed).String(), strconv.Itoa(1_000_000 * int(c.doubt))}
	}
	waiting := "1"
	if c.all {
		waiting = "0" // the ticket whose signal is acknowledged
	}
	return names[:7], []string{session, channels, waiting, "1", n(c.ticket)}
}

// asksFor returns how long a lease a call asks for.
func (c call) asksFor() tick { return cmp.Or(c.lease, lease) }

// briefly returns for how many seconds an attempt keeps the record if no session waits.
func (c call) briefly() string { return strconv.Itoa(int(cmp.Or(c.brief, 30))) }

func redisToken(t uint32) string {
	if t == 0 {
		return "0"
	}
	return strconv.FormatInt(epoch+int64(t), 10)
}
