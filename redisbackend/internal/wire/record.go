package wire

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
)

// A Record is the record of a lock. Its text is the one that common.lua describes, and that the scripts write:
//
//	first last session epoch op state keep[ session:epoch:until]...
type Record protocol.Record

// recordText is what common.lua reads a record with.
var recordText = regexp.MustCompile(`^\d+ \d+ \S+ \d{1,16} \d+ [A-Za-z] \d{1,10}(?: |$)`)

// ParseRecord reads a record; false if the text is none.
func ParseRecord(text string) (r Record, ok bool) {
	if !recordText.MatchString(text) {
		return r, false
	}
	words := strings.Fields(text)
	number := func(word string) uint64 { n, _ := strconv.ParseUint(word, 10, 64); return n }
	r = Record{First: backend.Token(number(words[0])), Last: backend.Token(number(words[1])), Session: words[2], Epoch: number(words[3]),
		Op: number(words[4]), Pushed: words[5] == "g", Watched: words[5] == "w", Keep: time.Duration(number(words[6])) * time.Second}
	for _, tomb := range words[7:] {
		if parts := strings.Split(tomb, ":"); len(parts) == 3 {
			until := protocol.Instant(number(parts[2])) * time.Microsecond
			r.Tombs = append(r.Tombs, protocol.Tombstone{Session: parts[0], Epoch: number(parts[1]), Until: until})
		}
	}
	return r, r.First <= r.Last
}

// Format returns the record's text.
func (r *Record) Format() string {
	text := strconv.AppendUint(r.append(nil, true), RoundUp(r.Keep, time.Second), 10)
	for _, t := range r.Tombs {
		text = fmt.Appendf(text, " %s:%d:%d", t.Session, t.Epoch, t.Until.Microseconds())
	}
	return string(text)
}

// append adds the text up to the keep; without the tokens, for a script that adds them.
func (r *Record) append(text []byte, tokens bool) []byte {
	if tokens {
		text = append(strconv.AppendUint(text, uint64(r.First), 10), ' ')
		text = strconv.AppendUint(text, uint64(r.Last), 10)
	}
	text = append(append(append(text, ' '), cmp.Or(r.Session, "-")...), ' ')
	text = append(strconv.AppendUint(text, r.Epoch, 10), ' ')
	text = append(strconv.AppendUint(text, r.Op, 10), ' ')
	switch {
	case r.Pushed:
		return append(text, "g "...)
	case r.Watched:
		return append(text, "w "...)
	}
	return append(text, "h "...)
}
