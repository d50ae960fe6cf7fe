package core

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/lease"
)

// EventKind says what happened.
type EventKind int8

// The kinds of events. Package reentrant documents them.
const (
	EventAcquired EventKind = iota + 1
	EventReentered
	EventFailed
	EventReleased
	EventYielded
	EventLost
	EventWaitingLong
	EventRenewalFailing
	EventRenewalRecovered
)

var eventNames = [...]string{
	EventAcquired: "lock acquired", EventReentered: "lock re-entered", EventFailed: "lock not acquired",
	EventReleased: "lock released", EventYielded: "lock yielded", EventLost: "lock lost",
	EventWaitingLong: "waiting long for a lock", EventRenewalFailing: "renewal failing", EventRenewalRecovered: "renewal recovered",
}

// String describes the kind in words.
func (k EventKind) String() string {
	if k < EventAcquired || int(k) >= len(eventNames) {
		return fmt.Sprintf("EventKind(%d)", int8(k))
	}
	return eventNames[k]
}

// level is the log level of the event.
func (e *Event) level() slog.Level {
	switch e.Kind {
	case EventLost:
		if e.meant != "" {
			return slog.LevelInfo
		}
		return slog.LevelError
	case EventRenewalFailing, EventWaitingLong:
		return slog.LevelWarn
	case EventRenewalRecovered:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// A Mode is the side of a read-write lock, or the kind of hold, that a call took or gave up.
type Mode int8

const (
	ModeLock    Mode = iota // a Lock, which has one mode
	ModeWrite               // the write side of an RWLock
	ModeRead                // the read side of an RWLock
	ModePermits             // permits of a Semaphore
)

var modeNames = [...]string{ModeLock: "lock", ModeWrite: "write", ModeRead: "read", ModePermits: "permits"}

// String is the mode's name.
func (m Mode) String() string {
	if m < ModeLock || int(m) >= len(modeNames) {
		return fmt.Sprintf("Mode(%d)", int8(m))
	}
	return modeNames[m]
}

// An Event is something that happened to a lock. Fields that do not belong to its kind are zero.
type Event struct {
	Kind      EventKind
	At        time.Time // when it happened
	Lock      string    // the name of the Lock, RWLock or Semaphore
	Mode      Mode      // with EventAcquired, EventReentered, EventFailed, EventReleased and EventLost
	Owner     Owner
	Token     backend.Token
	Wait      time.Duration
	Held      time.Duration
	HandedOff bool
	Permits   int                  // with ModePermits: how many
	Holders   []Holder             // only with EventWaitingLong, like State, Shared and OfParent
	State     *backend.State       // of a Lock
	Shared    *backend.SharedState // of an RWLock or a Semaphore
	OfParent  bool
	Err       error
	meant     string // with EventLost: the words of the log, if the hold ended as its owner had asked for
	_         struct{}
}

// Meant returns the EventLost e for a hold that ended as its owner had asked for. words is the text of the log for it.
func Meant(e Event, words string) Event {
	e.meant = words
	return e
}

// words returns the log's words for the event.
func (e *Event) words() string { return cmp.Or(e.meant, e.Kind.String()) }

// A Holder has what a call waits for.
type Holder struct {
	Session string
	Owner   string    // as Owner.String prints it; "" if it is not known, as that of another session's reader
	Mode    Mode      // what it has
	Permits int       // with ModePermits: how many
	Note    string    // [WithNote]; for another session the note of its latest user that has one
	Since   time.Time // zero if that is not known
	// Unlocked says that the owner has unlocked a Lock that stays taken ([WithAtLeast]).
	Unlocked bool
	_        struct{}
}

// An Observer is reentrant.Observer, whose comment says when Observe is called.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// maxEvents bounds how many events wait for the observer.
const maxEvents = 10_000

// Report queues an event for the observer and the log, in the order of the calls of Report. It never blocks. The caller holds
// the mutexes that decide the order.
func (s *Session) Report(ctx context.Context, e Event) {
	e.At = time.Now()
	if s.Config.Observer != nil && !s.Events.Post(func() { s.observe(ctx, e) }) {
		s.slowObserver.Do(func() {
			s.Log(slog.LevelWarn, "the observer is too slow: events are dropped, and Stats counts them; this is logged once")
		})
	}
	if level := e.level(); level > slog.LevelDebug || s.verbose {
		s.LogWriter.LogAt(e.At, level, e.words(), e.attributes)
	}
}

// observe gives an event to the observer.
func (s *Session) observe(ctx context.Context, e Event) {
	returned := false
	defer func() {
		if !returned {
			p, stack := recover(), debug.Stack()
			s.brokenObserver.Do(func() { s.reportBroken(p, stack) })
		}
	}()
	s.Config.Observer.Observe(ctx, e)
	returned = true
}

// reportBroken logs that the observer panicked with p or, if that is nil, ended its goroutine.
func (s *Session) reportBroken(p any, stack []byte) {
	text, attrs := "the observer ended its goroutine", []slog.Attr{slog.String("stack", string(stack))}
	if p != nil {
		text, attrs = "the observer panicked", append(attrs, slog.Any("panic", p))
	}
	s.Log(slog.LevelError, text+"; it is still called, and this is logged once", attrs...)
}

// NoteRenewal counts a renewal that succeeded, and reports what the reply to a renewal has changed. err is the error of a
// renewal that failed.
func (s *Session) NoteRenewal(name string, c lease.Change, err error) {
	switch c {
	case lease.Failing:
		s.Report(context.Background(), Event{Kind: EventRenewalFailing, Lock: name, Err: err})
		return
	case lease.Recovered:
		s.Report(context.Background(), Event{Kind: EventRenewalRecovered, Lock: name})
	case lease.Unchanged:
		return
	}
	s.Counts.Renewals.Add(1)
}

// attributes returns the fields of the event that are set.
func (e Event) attributes() []slog.Attr {
	attrs := []slog.Attr{slog.String("lock", e.Lock)}
	if e.Mode != ModeLock {
		attrs = append(attrs, slog.String("mode", e.Mode.String()))
	}
	if e.Permits > 0 {
		attrs = append(attrs, slog.Int("permits", e.Permits))
	}
	if e.Owner != (Owner{}) {
		attrs = append(attrs, slog.String("owner", e.Owner.String()))
	}
	if e.Token > 0 {
		attrs = append(attrs, slog.Uint64("token", uint64(e.Token)))
	}
	if e.Wait > 0 {
		attrs = append(attrs, slog.Duration("wait", e.Wait))
	}
	if e.Held > 0 {
		attrs = append(attrs, slog.Duration("held", e.Held))
	}
	if e.HandedOff {
		attrs = append(attrs, slog.Bool("handed_off", true))
	}
	attrs = append(attrs, e.holderAttributes()...)
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	if e.Kind == EventLost && e.meant == "" {
		attrs = append(attrs, slog.String("hint", e.consequence()))
	}
	return attrs
}

// consequence says what a loss means for the work of the owner.
func (e *Event) consequence() string {
	if e.Token > 0 {
		return "another owner may have it by now: what this one still writes is refused only by a resource that checks tokens"
	}
	return "others may have it by now, while the work of this owner still goes on"
}

// Log writes a record.
func (s *Session) Log(level slog.Level, text string, attrs ...slog.Attr) {
	s.LogWriter.Log(level, text, attrs...)
}

// holderAttributes returns the first holder, since when it holds, how many there are, and how many sessions wait.
func (e Event) holderAttributes() (attrs []slog.Attr) {
	if len(e.Holders) > 0 {
		attrs = e.Holders[0].attributes()
	}
	if n := len(e.Holders); n > 1 {
		attrs = append(attrs, slog.Int("holders", n))
	}
	if n := e.waitingSessions(); n > 0 {
		attrs = append(attrs, slog.Int("waiting_sessions", n))
	}
	if e.OfParent {
		attrs = append(attrs, slog.String("hint", "the call is made with the context of a Do that has the lock: another goroutine is another owner, unless WithOwner names one"))
	}
	return attrs
}

// part describes what the holder has.
func (h Holder) part() string {
	switch h.Mode {
	case ModeLock:
		return ""
	case ModePermits:
		return fmt.Sprintf(" (permits: %d)", h.Permits)
	}
	return " (" + h.Mode.String() + ")"
}

// Inside describes the holder within its session: its owner, and what it has.
func (h Holder) Inside() string {
	if h.Owner == "" { // permits of callers that are not known
		return "some callers" + h.part()
	}
	return "owner " + Shown(h.Owner) + h.part()
}

// String describes the holder: its owner and session, what it has, for how long, and its note.
func (h Holder) String() string {
	text := "session " + Shown(h.Session)
	if h.Owner != "" {
		text = "owner " + Shown(h.Owner) + " of " + text
	}
	text += h.part()
	if !h.Since.IsZero() {
		text += " for " + time.Since(h.Since).Round(time.Millisecond).String()
	}
	if h.Unlocked {
		text += " (unlocked; WithAtLeast)"
	}
	if h.Note != "" {
		text += fmt.Sprintf(" (%q)", h.Note)
	}
	return text
}

// Shown returns a text of another process as a message shows it: quoted if it is empty, or has anything but letters, digits
// and signs.
func Shown(text string) string {
	odd := func(r rune) bool {
		return !unicode.IsGraphic(r) || r == unicode.ReplacementChar || unicode.IsSpace(r) || r == '"'
	}
	if text == "" || strings.ContainsFunc(text, odd) {
		return strconv.Quote(text)
	}
	return text
}

func (h Holder) attributes() (attrs []slog.Attr) {
	if h.Owner != "" {
		attrs = append(attrs, slog.String("holder", h.Owner))
	}
	attrs = append(attrs, slog.String("holder_session", h.Session))
	if h.Note != "" {
		attrs = append(attrs, slog.String("holder_note", h.Note))
	}
	if h.Unlocked {
		attrs = append(attrs, slog.Bool("holder_unlocked", true))
	}
	if !h.Since.IsZero() {
		attrs = append(attrs, slog.Time("held_since", h.Since))
	}
	return attrs
}

// waitingSessions returns how many sessions wait at the server, as far as that is known.
func (e Event) waitingSessions() int {
	switch {
	case e.State != nil:
		return len(e.State.Waiting)
	case e.Shared != nil:
		return len(e.Shared.Waiting)
	}
	return 0
}
