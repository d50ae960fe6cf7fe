package wire

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
)

// CheckShare refuses what cannot be, and what is out of bounds.
func CheckShare(req *backend.ShareRequest) error {
	if err := protocol.CheckShare(req); err != nil {
		return err
	}
	req.Lease, req.Patience, req.GrantTTL = min(req.Lease, MaxTTL), min(req.Patience, MaxTTL), min(req.GrantTTL, MaxTTL)
	req.Seen, req.Under, req.Tail = countable(req.Seen), countable(req.Under), countable(req.Tail)
	return CheckNumbers(req.Epoch)
}

// KindLetter is a kind as the record has it.
func KindLetter(kind backend.ShareKind) string {
	if kind == backend.Permits {
		return "p"
	}
	return "r"
}

// KindOf is the kind of a letter, 0 of any other text.
func KindOf(letter string) backend.ShareKind {
	switch letter {
	case "r":
		return backend.ReadWrite
	case "p":
		return backend.Permits
	}
	return 0
}

// A ShareMessage is what share.lua says to a session whose request was granted:
//
//	h <epoch> <units> <first token> <last token> <may> <until, Redis time in µs> <Redis time, µs> <hold key>
type ShareMessage struct {
	Epoch       uint64
	Units, May  int
	First, Last uint64
	TTL         time.Duration
	Stamp       int64
	Hold        string
}

// String is the message as the script writes it.
func (p ShareMessage) String() string {
	words := []string{"h"}
	for _, n := range []uint64{p.Epoch, uint64(p.Units), p.First, p.Last, uint64(p.May),
		uint64(p.Stamp + p.TTL.Microseconds()), uint64(p.Stamp)} {
		words = append(words, strconv.FormatUint(n, 10))
	}
	return strings.Join(append(words, p.Hold), " ")
}

// Plausible is that of a GrantMessage.
func (p *ShareMessage) Plausible() bool {
	return p.Last <= uint64(p.Stamp+protocol.Horizon.Microseconds())
}

// ParseShare reads a message; false if it is anything else. As in ParseGrant, nothing in it is taken for granted.
func ParseShare(message string) (ShareMessage, bool) {
	n, hold, err := numbers(message, "h ", 7)
	if err != nil {
		return ShareMessage{}, false
	}
	p := ShareMessage{Epoch: n[0], Units: int(n[1]), First: n[2], Last: n[3], May: int(n[4]),
		TTL: time.Duration(n[5]-n[6]) * time.Microsecond, Stamp: int64(n[6]), Hold: hold}
	valid := 0 < n[1] && n[1] <= backend.AllUnits && n[4] <= backend.Unlimited && 0 < n[2] && n[2] <= n[3] &&
		n[6] < n[5] && n[5] < maxStamp
	return p, valid
}

// ParseSharedWanted reads what share.lua says to a session that has more units than it may keep:
//
//	x <may> <hold key>
func ParseSharedWanted(message string) (may int, hold string, ok bool) {
	n, hold, err := numbers(message, "x ", 1)
	if err != nil || n[0] > backend.Unlimited {
		return 0, "", false
	}
	return int(n[0]), hold, true
}

var errMessage = errors.New("another message")

// numbers reads a message of a kind: so many numbers, and the rest, which is not empty.
func numbers(message, kind string, count int) (n []uint64, rest string, err error) {
	rest, ok := strings.CutPrefix(message, kind)
	for range count {
		var word string
		word, rest, _ = strings.Cut(rest, " ")
		x, err := strconv.ParseUint(word, 10, 63)
		if err != nil {
			return nil, "", errMessage
		}
		n = append(n, x)
	}
	if !ok || rest == "" {
		return nil, "", errMessage
	}
	return n, rest, nil
}
