package wire

import (
	"strconv"
	"strings"
	"time"

	"github.com/relock-go/relock/internal/protocol"
)

// A GrantMessage is what grant in common.lua says to the session that was given a lock:
//
//	g <epoch> <first token> <last token> <TTL, ms> <Redis time, µs> <hold key>
type GrantMessage struct {
	Epoch, First, Last uint64
	TTL                time.Duration
	Stamp              int64
	Hold               string
}

// Plausible reports whether a script can have given out these tokens at the time that the message names, as far as that
// can be told without asking. After a failover to a clock that is behind, they may be right nevertheless.
func (p *GrantMessage) Plausible() bool {
	return p.Last <= uint64(p.Stamp+protocol.Horizon.Microseconds())
}

// ParseGrant reads a message; false if it is anything else. Anybody who may publish can write to the channel, so
// nothing in it is taken for granted.
func ParseGrant(message string) (GrantMessage, bool) {
	rest, ok := strings.CutPrefix(message, "g ")
	if !ok {
		return GrantMessage{}, false
	}
	var fields [5]uint64
	for i := range fields {
		var word string
		word, rest, ok = strings.Cut(rest, " ")
		n, err := strconv.ParseUint(word, 10, 63)
		if !ok || err != nil {
			return GrantMessage{}, false
		}
		fields[i] = n
	}
	p := GrantMessage{Epoch: fields[0], First: fields[1], Last: fields[2],
		TTL: time.Duration(fields[3]) * time.Millisecond, Stamp: int64(fields[4]), Hold: rest}
	valid := p.First > 0 && p.First <= p.Last && rest != "" &&
		0 < fields[3] && fields[3] < maxMessageTTL && p.Stamp < maxStamp
	return p, valid
}

// ParseWanted reads what wanted in common.lua says to a session whose hold lingers, or may, or is watched:
//
//	w <epoch> <hold key>
func ParseWanted(message string) (epoch uint64, hold string, ok bool) {
	return parseEpoch(message, "w ")
}

// ParseTaken reads what resume.lua says to the session that had the hold:
//
//	t <epoch> <hold key>
func ParseTaken(message string) (epoch uint64, hold string, ok bool) {
	return parseEpoch(message, "t ")
}

// parseEpoch reads a message that names an epoch and a lock.
func parseEpoch(message, kind string) (epoch uint64, hold string, ok bool) {
	rest, ok := strings.CutPrefix(message, kind)
	number, hold, _ := strings.Cut(rest, " ")
	epoch, err := strconv.ParseUint(number, 10, 63)
	return epoch, hold, ok && err == nil && hold != ""
}

const (
	maxMessageTTL = 1e12 // ms: some thirty years
	maxStamp      = 9e15 // µs: the year 2255, and what a double holds exactly
)

// ParseSignal reads what notify in conditions.lua says to the session of a waiter:
//
//	s <ticket> <1 if the session was given a place for it, else 0> <hold key>
func ParseSignal(message string) (ticket uint64, placed bool, hold string, ok bool) {
	rest, ok := strings.CutPrefix(message, "s ")
	if !ok {
		return 0, false, "", false
	}
	number, rest, _ := strings.Cut(rest, " ")
	flag, hold, _ := strings.Cut(rest, " ")
	ticket, err := strconv.ParseUint(number, 10, 63)
	ok = err == nil && ticket > 0 && (flag == "0" || flag == "1") && hold != ""
	return ticket, flag == "1", hold, ok
}
