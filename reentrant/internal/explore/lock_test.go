package explore

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/relock-go/relock/backend"
)

// A lock is a memory as the scripts' comments describe it: the values of the keys, parsed.
type lock struct {
	hold    hold
	record  record
	queue   []place
	broken  string   // how the keys do not fit together
	tickets []ticket // the waiter that has waited longest comes first
	heard   []ticket // those that were signalled
}

// A hold is the parsed hash of the lock. Its count is 0 if no session has the lock.
type hold struct {
	session, owner uint8
	count          int
	expires        tick
}

// A record is the parsed string of the record. Its tokens are counted from tick 0.
type record struct {
	first, last uint32
	session     uint8
	epoch, op   uint8
	pushed      bool
}

// A place is a session in the queue, with the attempt it is for.
type place struct {
	session, owner, epoch uint8
	deadline              tick
	holds                 int
	tokens                uint32
	grant                 tick
}

const nobody = 99

func (h hold) held() bool            { return h.count > 0 }
func (h hold) of(session uint8) bool { return h.held() && h.session == session }
func (p place) alive(now tick) bool  { return now <= p.deadline }
func (l *lock) has(s, e uint8) bool {
	return l.hold.of(s) && l.record.session == s && l.record.epoch == e
}
func (l *lock) heldEpoch(s uint8) int {
	if !l.hold.of(s) || l.record.session != s {
		return 0
	}
	return int(l.record.epoch)
}

// placeOf returns the place of a session and its index in the queue, -1 if it has none.
func (l *lock) placeOf(session uint8) (place, int) {
	for i, p := range l.queue {
		if p.session == session {
			return p, i
		}
	}
	return place{}, -1
}

// granting returns for how long a waiting session gets the lock: for what its place in the queue asked for, or for grantTTL
// if it has no place.
func (l *lock) granting(session uint8) tick {
	if p, at := l.placeOf(session); at >= 0 {
		return p.grant
	}
	return grantTTL
}

// firstLive returns the live session that has waited longest.
func (l *lock) firstLive(now tick) (place, bool) {
	for _, p := range l.queue {
		if p.alive(now) {
			return p, true
		}
	}
	return place{}, false
}

var recordForm = regexp.MustCompile(`^(\d+) (\d+) (\S+) (\d+) (\d+) (\w) \d+(?: \w+:\d+:\d+)*$`)

func parseLock(keys *[keyCount]value) (l lock) {
	l.record.session = nobody
	for i, v := range keys {
		if v.items != nil && v.expires == eternal {
			l.broken = fmt.Sprintf("key %d never expires", i)
		}
	}
	if r := keys[keyRecord]; r.items != nil {
		m := recordForm.FindStringSubmatch(r.items[0])
		if m == nil {
			l.broken = fmt.Sprintf("the record is %q", r.items)
			return l
		}
		l.record = record{token(num[int64](m[1])), token(num[int64](m[2])), sessionOf(m[3]), num[uint8](m[4]), num[uint8](m[5]), m[6] == "g"}
	}
	for h, i := keys[keyHold], 0; i < len(h.items); i += 2 {
		session, owner, _ := strings.Cut(h.items[i], ":")
		one := hold{sessionOf(session), ownerOf(owner), num[int](h.items[i+1]), h.expires}
		if i == 0 || one.session == l.record.session && l.hold.session != one.session { // see sole in common.lua
			l.hold = one
		}
		if len(h.items) != 2 || one.count < 1 {
			l.broken = fmt.Sprintf("the hold is %q", h.items)
		}
	}
	places := keys[keyWaiters].items
	if 2*len(keys[keyQueue].items) != len(places) {
		l.broken = fmt.Sprintf("the queue is %q, its records %q", keys[keyQueue].items, places)
	}
	for _, session := range keys[keyQueue].items {
		l.queue = append(l.queue, parsePlace(session, places, &l.broken))
	}
	l.tickets, l.heard = parseTickets(keys, keyTickets), parseTickets(keys, keySignalled)
	return l
}

func parsePlace(session string, places []string, broken *string) place {
	for i := 0; i < len(places); i += 2 {
		if places[i] != session {
			continue
		}
		f := strings.SplitN(places[i+1], " ", 8)
		return place{session: sessionOf(session), epoch: num[uint8](f[0]), deadline: instant(num[int64](f[1])),
			holds: num[int](f[3]), tokens: num[uint32](f[4]), owner: ownerOf(f[7]), grant: tick(num[int64](f[2]) / 1000)}
	}
	*broken = fmt.Sprintf("%s has a place and no record of it", session)
	return place{session: sessionOf(session)}
}

// A ticket is a waiter of the condition.
type ticket struct {
	session, number uint8
	deadline        tick // of a signalled waiter: until then it must acknowledge the signal
}

func parseTickets(keys *[keyCount]value, key int) (all []ticket) {
	set, terms := keys[key].items, keys[keyTerms].items
	for i := 0; i < len(set); i += 2 {
		session, number, _ := strings.Cut(set[i+1], ":")
		t := ticket{session: sessionOf(session), number: num[uint8](number)}
		for j := 0; key == keyTickets && j < len(terms); j += 2 {
			if terms[j] == set[i+1] {
				t.deadline = instant(num[int64](strings.Fields(terms[j+1])[0]))
			}
		}
		if key == keySignalled {
			t.deadline = instant(num[int64](set[i]))
		}
		all = append(all, t)
	}
	return all
}

// find returns the ticket of a session that has the number; false if there is none.
func find(all []ticket, session, number uint8) (ticket, bool) {
	for _, t := range all {
		if t.session == session && t.number == number {
			return t, true
		}
	}
	return ticket{}, false
}

// A message is what a script publishes.
type message struct {
	to, epoch   uint8
	kind        byte // g, s, t or w
	first, last uint32
	ttl, at     tick
	hold        string
	placed      bool
}

func parseMessage(channel, text string) message {
	m := message{to: sessionOf(channel), kind: text[0]}
	f := strings.Split(text, " ")
	m.epoch = num[uint8](f[1])
	switch m.kind {
	case 'g':
		m.first, m.last = token(num[int64](f[2])), token(num[int64](f[3]))
		m.ttl, m.at, m.hold = tick(num[int64](f[4])/1000), instant(num[int64](f[5])), f[6]
	case 's':
		m.placed, m.hold = f[2] == "1", f[3]
	default:
		m.hold = f[2]
	}
	return m
}

func num[T int | int64 | uint8 | uint32](text string) T {
	return T(must(strconv.ParseInt(text, 10, 64)))
}

// token returns a token as a world counts it: from Redis's clock at tick 0 on. One that is not above the clock's beginning
// is a low one, which no script may issue.
func token(n int64) uint32 {
	if n <= epoch {
		return uint32(min(n, 1000))
	}
	return uint32(n - epoch)
}

func (t tick) token() uint32 { return token(t.micros()) }

func instant(micros int64) tick { return tick((micros - epoch + 1) / second.Microseconds()) }

func sessionOf(name string) uint8 {
	if name == "-" {
		return nobody
	}
	return name[0] - 'a'
}

// lingering is the owner of a hold that its session may keep while no owner has the lock. Other owners are numbers too; 0 is
// the session itself.
const lingering = 100

func ownerOf(name string) uint8 {
	switch name {
	case "":
		return 0
	case backend.LingeringOwner:
		return lingering
	}
	return num[uint8](name)
}

func ownerName(o uint8) string {
	switch o {
	case 0:
		return ""
	case lingering:
		return backend.LingeringOwner
	}
	return strconv.Itoa(int(o))
}

func sessionName(s uint8) string {
	if s == nobody {
		return "nobody"
	}
	return string(rune('a' + s))
}
