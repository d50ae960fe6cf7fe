package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/relock-go/relock/reentrant"
)

// A status is the state of a lock as --json shows it. Scripts read these names: they do not change.
type status struct {
	Name    string `json:"name"`
	RawName []byte `json:"name_base64,omitempty"` // the name if it is not UTF-8; JSON cannot have it
	Locked  bool   `json:"locked"`
	// Unlocked says that the holder gave the lock back, and that it stays taken until the lease ends.
	Unlocked bool     `json:"unlocked,omitempty"`
	Kept     bool     `json:"kept,omitempty"` // the session keeps the lock, although perhaps none of its owners has it
	Owner    string   `json:"owner"`          // "" if not locked
	Session  string   `json:"session"`        // "" if not locked
	Holds    int      `json:"holds"`
	TTL      int64    `json:"ttl_ms"`  // rest of the lease; -1 if it has no end, 0 if not locked
	Token    uint64   `json:"token"`   // of the last holder
	Waiting  []string `json:"waiting"` // sessions, longest first
	Note     string   `json:"note,omitempty"`
	Since    string   `json:"since,omitempty"` // when the holder, or the first of several, got the lock, UTC; "" if not known
	Cycle    []string `json:"cycle,omitempty"` // of list: the locks that wait for each other's holders, this one first
	*shared           // the fields of a read-write lock or a semaphore; nil for a plain lock
}

// statusOf reads the state of a name of any kind from Redis.
func statusOf(ctx context.Context, s *reentrant.Session, name string) (status, error) {
	st, err := s.NewLock(name).Inspect(ctx)
	if !errors.Is(err, reentrant.ErrWrongKind) {
		return newStatus(name, st), err
	}
	held, sharedErr := s.NewRWLock(name).Inspect(ctx)
	if errors.Is(sharedErr, reentrant.ErrWrongKind) {
		held, sharedErr = s.NewSemaphore(name, 1).Inspect(ctx)
	}
	switch {
	case errors.Is(sharedErr, reentrant.ErrWrongKind), sharedErr == nil && held.Kind == 0: // the key is no lock
		return status{}, err
	case sharedErr != nil:
		return status{}, sharedErr
	}
	return newSharedStatus(name, held), nil
}

func newStatus(name string, st reentrant.State) status {
	ttl := st.TTL.Milliseconds()
	if st.TTL < 0 {
		ttl = -1
	}
	return status{
		Name: name, RawName: raw(name), Locked: st.Locked, Unlocked: st.Unlocked, Kept: st.Kept(), Owner: st.Owner, Session: st.Session, Holds: st.Holds, TTL: ttl,
		Token: uint64(st.Token), Waiting: append([]string{}, st.Waiting...), // [] and not null
		Note: st.Note, Since: stampOf(st.Since),
	}
}

// raw returns the bytes of a name that is not UTF-8, and nil for others.
func raw(name string) []byte {
	if utf8.ValidString(name) {
		return nil
	}
	return []byte(name)
}

// stamp is the layout of times in the output.
const stamp = "2006-01-02T15:04:05.000Z07:00"

// stampOf formats a time; "" if it is not known.
func stampOf(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(stamp)
}

// age returns how long ago a stamp was.
func age(since string) (_ time.Duration, known bool) {
	at, err := time.Parse(stamp, since)
	return max(time.Since(at), 0), err == nil
}

// forHowLong formats the age of a stamp as the end of a clause; "" if it is not known.
func forHowLong(since string) string {
	if d, known := age(since); known {
		return " for " + inWords(d)
	}
	return ""
}

// heldFor formats for how long the lock has been held; "-" if that is not known.
func (s status) heldFor() string {
	return cmp.Or(strings.TrimPrefix(forHowLong(s.Since), " for "), "-")
}

// by formats who holds the lock, as reentrant.Holder does, and for how long.
func (s status) by() string {
	if s.shared != nil {
		return s.sessions()
	}
	if s.Kept {
		return "session " + shown(s.Session) + forHowLong(s.Since)
	}
	return fmt.Sprintf("owner %s of session %s", shown(s.Owner), shown(s.Session)) + forHowLong(s.Since)
}

// holderAttributes returns who holds the lock, for a log record, under the names that the log of a session has.
func (s status) holderAttributes() (attrs []any) {
	if s.shared == nil {
		attrs = append(attrs, "holder", s.Owner, "holder_session", s.Session)
	} else if len(s.Holders) > 0 {
		attrs = append(attrs, "holder_session", s.Holders[0].Session)
		if n := len(s.Holders); n > 1 {
			attrs = append(attrs, "holders", n)
		}
		s.Note = s.Holders[0].Note
	}
	if s.Note != "" {
		attrs = append(attrs, "holder_note", s.Note)
	}
	return attrs
}

// state says how a plain lock is taken.
func (s status) state() string {
	if s.Unlocked || s.Kept {
		return "kept"
	}
	return "held"
}

// why says why a lock is taken that perhaps no owner has.
func (s status) why() string {
	switch {
	case s.Unlocked:
		return " until its lease ends, though unlocked (--at-least)"
	case s.Kept:
		return " for the owners of its session, until another session asks (WithLinger); one of them may have it"
	}
	return ""
}

// same reports whether two states differ in nothing but the lease.
func (s status) same(other status) bool {
	return s.Locked == other.Locked && s.Unlocked == other.Unlocked && s.Owner == other.Owner && s.Session == other.Session && s.Holds == other.Holds &&
		s.Token == other.Token && s.Note == other.Note && slices.Equal(s.Waiting, other.Waiting) && s.shared.same(other.shared)
}

// sameHolder reports whether two states have the same holder, with the same note. A nil state is the same only as nil.
func (s *status) sameHolder(other *status) bool {
	if s == nil || other == nil {
		return s == other
	}
	return s.Owner == other.Owner && s.Session == other.Session && s.Note == other.Note && s.shared.same(other.shared)
}

// line formats the state in one line, without the name.
func (s status) line() string {
	if !s.Locked {
		return fmt.Sprintf("free, last token %d, %d waiting", s.Token, len(s.Waiting))
	}
	if s.shared != nil {
		return fmt.Sprintf("%s by %s, last token %d, %d waiting", s.use(), s.by(), s.Token, len(s.Waiting))
	}
	return fmt.Sprintf("%s by %s, %s, token %d, %d waiting%s", s.state(), s.by(), counted(s.Holds, "hold"), s.Token, len(s.Waiting), s.noted())
}

// counted formats a number of things.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// noted formats the note as the end of a sentence.
func (s status) noted() string {
	if s.Note == "" {
		return ""
	}
	return ": " + shown(s.Note)
}

// note formats the holders' notes, for a table; "" if there are none.
func (s status) note() string {
	switch {
	case s.shared != nil:
		return s.notes()
	case s.Note == "":
		return ""
	}
	return shown(s.Note)
}

// holder returns the holder's owner and session, for a table.
func (s status) holder() (owner, session string) {
	switch {
	case !s.Locked:
		return "-", "-"
	case s.Kept:
		return "kept", shown(s.Session)
	case s.shared == nil:
		return shown(s.Owner), shown(s.Session)
	case len(s.Holders) == 1:
		return s.use(), shown(s.Holders[0].Session)
	}
	return s.use(), counted(len(s.Holders), "session")
}

// lease formats the rest of the lease.
func (s status) lease() string {
	switch {
	case !s.Locked:
		return "-"
	case s.TTL < 0:
		return "for ever"
	}
	return (time.Duration(s.TTL) * time.Millisecond).String()
}

// print prints the state in several lines.
func (s status) print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "name\t%s\n", shown(s.Name))
	switch {
	case s.shared != nil:
		s.shared.print(table)
		fmt.Fprintf(table, "last token\t%d\n", s.Token)
	case s.Locked:
		fmt.Fprintf(table, "state\t%s\nowner\t%s\nsession\t%s\nholds\t%d\nlease\t%s\ntoken\t%d\n",
			s.state()+s.why(), shown(s.Owner), shown(s.Session), s.Holds, s.lease(), s.Token)
		if s.Since != "" {
			fmt.Fprintf(table, "since\t%s (%s)\n", s.Since, s.heldFor())
		}
		if s.Note != "" {
			fmt.Fprintf(table, "note\t%s\n", shown(s.Note))
		}
	default:
		fmt.Fprintf(table, "state\tfree\nlast token\t%d\n", s.Token)
	}
	waiting := []string{strconv.Itoa(len(s.Waiting))}
	for i, session := range s.Waiting {
		waiting = append(waiting, shown(session)+s.wants(i))
	}
	fmt.Fprintf(table, "waiting\t%s\n", strings.Join(waiting, " "))
	return table.Flush()
}

// printJSON prints a value on one line. Signs that can change a terminal are escaped, which changes no value.
func printJSON(w io.Writer, v any) error {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, escapedJSON(strings.TrimSuffix(text.String(), "\n")))
	return err
}

// escapedJSON escapes the signs in JSON's strings that are not graphic, and that the encoder leaves: those beyond ASCII.
func escapedJSON(text string) string {
	var escaped strings.Builder
	for _, r := range text {
		if unicode.IsGraphic(r) {
			escaped.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&escaped, `\u%04x`, unit)
		}
	}
	return escaped.String()
}

// reason describes the holder, as a part of a sentence.
func (s status) reason() string {
	switch {
	case !s.Locked:
		return ""
	case s.shared != nil:
		return fmt.Sprintf(": %s by %s", s.use(), s.by())
	}
	return ": it is " + s.state() + " by " + s.by() + s.noted()
}

// heldBy reports whether a session has the lock, or a part of it.
func (s status) heldBy(session string) bool {
	if s.shared != nil {
		_, held := s.shared.leaseOf(session)
		return held
	}
	return s.Locked && !s.Unlocked && s.Session == session
}

// leaseOf returns the rest of a session's lease, negative if it has no end. ok is false if the session does not have the
// lock, or has a plain lock with another token.
func (s status) leaseOf(session string, token reentrant.Token) (left time.Duration, ok bool) {
	if s.shared != nil {
		return s.shared.leaseOf(session)
	}
	return time.Duration(s.TTL) * time.Millisecond, s.heldBy(session) && s.Token == uint64(token)
}

// others reports whether a session other than this one has the lock, or a part of it.
func (s status) others(session string) bool {
	if s.shared != nil {
		return slices.ContainsFunc(s.Holders, func(h sharedHolder) bool { return h.Session != session })
	}
	return s.Locked && s.Session != session
}

// shown makes a text from elsewhere safe for a terminal.
func shown(text string) string {
	odd := func(r rune) bool {
		return !unicode.IsGraphic(r) || r == unicode.ReplacementChar || unicode.IsSpace(r) || r == '"'
	}
	if text == "" || strings.ContainsFunc(text, odd) {
		return strconv.Quote(text)
	}
	return text
}
