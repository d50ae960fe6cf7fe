package redisbackend

import (
	"strconv"
	"strings"
	"time"

	"github.com/relock-go/relock/internal/protocol"
)

// A push is what grant in common.lua says to the session that was given a lock:
//
//	g <epoch> <first token> <last token> <TTL, ms> <Redis time, µs> <hold key>
type push struct {
	epoch, first, last uint64
	ttl                time.Duration
	stamp              int64
	hold               string
}

// plausible reports whether a script can have given out these tokens at the time that the message names, as far as that
// can be told without asking. After a failover to a clock that is behind, they may be right nevertheless.
func (p *push) plausible() bool {
	return p.last <= uint64(p.stamp+protocol.Horizon.Microseconds())
}

// parsePush reads a message; false if it is anything else. Anybody who may publish can write to the channel, so
// nothing in it is taken for granted.
func parsePush(message string) (push, bool) {
	rest, ok := strings.CutPrefix(message, "g ")
	if !ok {
		return push{}, false
	}
	var fields [5]uint64
	for i := range fields {
		var word string
		word, rest, ok = strings.Cut(rest, " ")
		n, err := strconv.ParseUint(word, 10, 63)
		if !ok || err != nil {
			return push{}, false
		}
		fields[i] = n
	}
	p := push{epoch: fields[0], first: fields[1], last: fields[2],
		ttl: time.Duration(fields[3]) * time.Millisecond, stamp: int64(fields[4]), hold: rest}
	valid := p.first > 0 && p.first <= p.last && rest != "" &&
		0 < fields[3] && fields[3] < maxMessageTTL && p.stamp < maxStamp
	return p, valid
}

// parseWanted reads what ask in common.lua says to a session whose hold lingers, or may:
//
//	w <epoch> <hold key>
func parseWanted(message string) (epoch uint64, hold string, ok bool) {
	return parseEpoch(message, "w ")
}

// parseTaken reads what resume.lua says to the session that had the hold:
//
//	t <epoch> <hold key>
func parseTaken(message string) (epoch uint64, hold string, ok bool) {
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

// parseSignal reads what notify in conditions.lua says to the session of a waiter:
//
//	s <ticket> <1 if the session was given a place for it, else 0> <hold key>
func parseSignal(message string) (ticket uint64, placed bool, hold string, ok bool) {
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
