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

// A Record is the record of a lock. The scripts write it as a text, which common.lua describes:
//
//	first last session epoch op state keep[ session:epoch:until]...
type Record protocol.Record

// recordText matches the texts that common.lua reads as records.
var recordText = regexp.MustCompile(`^\d+ \d+ \S+ \d{1,16} \d+ [A-Za-z] \d{1,10}(?: |$)`)

// ParseRecord reads a record; false if the text is not a record.
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

// append appends the record's text up to the keep. It leaves the tokens out, for a script that adds them, unless tokens is
// set.
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

// The lean scripts (pass.lua, take.lua, yield.lua and free.lua) take whole records as texts, which the session remembers.

// maxTexts is how many texts the largest of the lean scripts takes.
const maxTexts = 9

// textRoom is how many bytes the texts of a call with a short owner have at most.
const textRoom = 384

// A TextWriter writes the texts of one call, as ArgWriter does with numbers.
type TextWriter struct {
	buf  []byte // at first an array on the caller's stack
	ends [maxTexts + 1]int
	n    int
}

// end ends one text.
func (w *TextWriter) end() {
	w.n++
	w.ends[w.n] = len(w.buf)
}

func (w *TextWriter) number(n uint64) {
	w.buf = strconv.AppendUint(w.buf, n, 10)
	w.end()
}

// field adds the field of a hold.
func (w *TextWriter) field(session, owner string) {
	w.buf = append(append(append(w.buf, session...), ':'), owner...)
	w.end()
}

// record adds the record that a session remembers: with one token, which is both the first and the last, and with p.Note as
// its end. It leaves the token out, for a script that adds it, unless tokens is set.
func (w *TextWriter) record(session string, p *backend.Prior, tokens bool) {
	r := Record{First: p.Token, Last: p.Token, Session: session, Epoch: p.Epoch, Op: p.Op, Pushed: p.Pushed}
	w.buf = append(r.append(w.buf, tokens), p.Note...)
	w.end()
}

// strings returns the texts in the order in which they were added.
func (w *TextWriter) strings() (texts [maxTexts]string) {
	text := string(w.buf)
	for i := range w.n {
		texts[i] = text[w.ends[i]:w.ends[i+1]]
	}
	return texts
}

// A LeanAcquire is a call of pass.lua, take.lua or yield.lua.
type LeanAcquire struct {
	Take  bool
	Yield []string         // what arguments yield.lua takes after those of pass.lua; nil for the other scripts
	Prior backend.Prior    // what the session remembers if the script succeeds; its token is the least possible one
	Texts [maxTexts]string // the script's arguments; of yield.lua, the first ones
	N     int              // how many of Texts there are
}

// NewLeanAcquire returns the lean call for an attempt that Redis may execute until the Redis time notAfter; false if the
// attempt needs acquire.lua.
func NewLeanAcquire(session string, req *backend.AcquireRequest, notAfter int64) (c LeanAcquire, ok bool) {
	if !protocol.Lean(req) {
		return c, false
	}
	token, old := protocol.NextToken(req), req.Prior
	if old.Note == "" {
		old.Note = strconv.FormatUint(KeepFor(max(req.Lease, req.GrantTTL)), 10) // a guess, right if no session keeps the record for longer
	}
	needs := BriefKeepFor(req)
	if req.Yield {
		needs = KeepFor(max(req.Lease, req.GrantTTL))
	}
	keep, _, _ := strings.Cut(old.Note, " ")
	kept, err := strconv.ParseUint(keep, 10, 64)
	note := old.Note
	if err == nil && kept < needs && protocol.SetsLease(req) { // the script sets the expiry of the record
		kept, note = needs, strconv.FormatUint(needs, 10)+note[len(keep):]
	}
	// If the token is not above notAfter, it is not far ahead of the clock when the script runs, so the record need not be
	// kept for longer.
	if err != nil || kept < needs || notAfter < 0 || uint64(token) > uint64(notAfter) {
		return c, false
	}
	c = LeanAcquire{Take: old.Freed,
		Prior: backend.Prior{Epoch: req.Epoch, Owner: req.Owner, Token: token, Note: note}}
	var room [textRoom]byte
	w := TextWriter{buf: room[:0]}
	w.record(session, &old, true)
	w.number(uint64(token))
	w.record(session, &c.Prior, !protocol.SetsLease(req)) // if a lease begins, the script adds the token, perhaps the clock's
	if !c.Take {
		w.field(session, old.Owner)
	}
	w.field(session, req.Owner)
	w.number(uint64(req.Holds))
	if protocol.SetsLease(req) {
		w.number(Millis(req.Lease))
		w.number(uint64(notAfter))
		w.number(kept)
	}
	c.Texts, c.N = w.strings(), w.n
	if req.Yield {
		c.Yield = yieldArgs(session, req, note, kept)
	}
	return c, true
}

// yieldArgs returns the arguments of yield.lua after those of pass.lua, except the last one, the channel prefix. note is how
// the record ends, and kept the number of seconds for which it is kept.
func yieldArgs(session string, req *backend.AcquireRequest, note string, kept uint64) []string {
	var d ArgWriter
	d.Add(req.Epoch)
	d.Add(RoundUp(req.Patience, time.Millisecond) * 1000)
	d.Add(Millis(req.GrantTTL))
	d.Add(uint64(req.Holds))
	d.Add(uint64(req.Seen))
	d.Add(KeepFor(max(req.Lease, req.GrantTTL)))
	d.Add(kept * 1000 / 2)
	n := d.Strings()
	place := " " + n[2] + " " + n[3] + " 1 " + n[4] + " " + n[5] + " " + req.Owner
	return []string{session, n[0] + " ", n[1], place, note, n[6]}
}

// LeanReleaseArgs returns the arguments of free.lua for a release; false if the release needs release.lua. With "" for
// channels the script does nothing if a session waits.
func LeanReleaseArgs(session string, req *backend.ReleaseRequest, channels string) (args [3]string, ok bool) {
	if !protocol.LeanRelease(req) || req.Prior.Note == "" {
		return args, false
	}
	var room [textRoom]byte
	w := TextWriter{buf: room[:0]}
	w.record(session, &req.Prior, true)
	w.field(session, req.Prior.Owner)
	texts := w.strings()
	return [3]string{texts[0], texts[1], channels}, true
}
