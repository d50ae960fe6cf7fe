package wire

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
)

// CheckShare refuses impossible requests, and numbers out of bounds.
func CheckShare(req *backend.ShareRequest) error {
	if err := protocol.CheckShare(req); err != nil {
		return err
	}
	req.Lease, req.Patience, req.GrantTTL = min(req.Lease, MaxTTL), min(req.Patience, MaxTTL), min(req.GrantTTL, MaxTTL)
	req.Seen, req.Under, req.Tail = countable(req.Seen), countable(req.Under), countable(req.Tail)
	return CheckNumbers(req.Epoch)
}

// KindLetter returns the letter of a kind in the record.
func KindLetter(kind backend.ShareKind) string {
	if kind == backend.Permits {
		return "p"
	}
	return "r"
}

// KindOf returns the kind for a letter in the record, 0 if the text is no such letter.
func KindOf(letter string) backend.ShareKind {
	switch letter {
	case "r":
		return backend.ReadWrite
	case "p":
		return backend.Permits
	}
	return 0
}

// The fields of a shared name's record that belong to no session.
const (
	SummaryField = "="
	PlacePrefix  = "#"  // followed by the order of a place
	NotePrefix   = "#n" // followed by a session
)

// NoTry is the field "pending" of an entry that has no place, or whose place is not that of a try.
const NoTry = -1

// ReadShared reads the fields of a shared name's record. It returns false if the scripts do not write a field so. It reads
// neither the totals of the summary nor the fields of places, since both follow from the entries.
func ReadShared(s *protocol.Shared, fields map[string]string) bool {
	if !readSummary(s, fields[SummaryField]) {
		return false
	}
	for field, raw := range fields {
		if field == SummaryField || strings.HasPrefix(field, PlacePrefix) {
			continue
		}
		e, ok := readEntry(field, raw)
		if !ok {
			return false
		}
		e.Note = readShareNote(fields[NotePrefix+field], e.Got)
		s.Entries = append(s.Entries, e)
	}
	slices.SortFunc(s.Entries, func(a, b protocol.Entry) int { return cmp.Compare(a.Session, b.Session) })
	return true
}

// readShareNote reads "got text"; "" if the text is none, or the note of an earlier grant.
func readShareNote(raw string, got protocol.Instant) string {
	at, text, _ := strings.Cut(raw, " ")
	if at != strconv.FormatInt(got.Microseconds(), 10) {
		return ""
	}
	return text
}

// readSummary reads "kind token units holders sessions soonest first last told"; false if the text is none.
func readSummary(s *protocol.Shared, raw string) bool {
	words := strings.Fields(raw)
	if len(words) != 9 {
		return false
	}
	n, ok := sharedNumbers(words[1:], 0)
	s.Kind, s.Token, s.Last, s.Told = KindOf(words[0]), backend.Token(n[0]), uint64(n[6]), int(n[7])
	return ok && s.Kind != 0
}

// sharedNumbers reads decimal numbers. It returns false if a word is not a number, or a number is below least.
func sharedNumbers(words []string, least int64) (n []int64, ok bool) {
	n, ok = make([]int64, len(words)), true
	for i, word := range words {
		var err error
		n[i], err = strconv.ParseInt(word, 10, 64)
		ok = ok && err == nil && n[i] >= least
	}
	return n, ok
}

// readEntry reads "epoch units until memory first under limit order want least deadline grant tokens seen since pending
// asked got"; false if the text is no entry. Of "pending" it reads only whether the place is a try's: how many answers are
// pending follows from the other entries.
func readEntry(session, raw string) (protocol.Entry, bool) {
	n, ok := sharedNumbers(strings.Fields(raw), NoTry)
	if !ok || len(n) != 18 {
		return protocol.Entry{}, false
	}
	micros := func(n int64) protocol.Instant { return protocol.Instant(n) * time.Microsecond }
	return protocol.Entry{
		Session: session, Epoch: uint64(n[0]), Units: int(n[1]), Until: micros(n[2]), Memory: micros(n[3]),
		First: backend.Token(n[4]), Under: backend.Token(n[5]), Limit: int(n[6]), Asked: uint64(n[16]), Got: micros(n[17]),
		Place: protocol.Place{
			Order: uint64(n[7]), Want: int(n[8]), Least: int(n[9]), Deadline: micros(n[10]), TTL: time.Duration(n[11]) * time.Millisecond,
			Tokens: int(n[12]), Seen: backend.Token(n[13]), Since: micros(n[14]), Try: n[15] != NoTry,
		},
	}, true
}
