package backend

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// String describes the state in one line, for a log. The session and the owner are in quotes if they are empty, or have white
// space, quotes or characters that cannot be printed. Examples:
//
//	held 2 times by owner 18 of session web-4711.k3v9… for 1.8s, note "release 4.2", token 1763920871000003, lease ends in 8.2s, 3 sessions wait
//	kept by session web-4711.k3v9… for 1.8s, token 1763920871000003, lease ends in 2.2s
//	taken until its lease ends though unlocked by owner 18 of session web-4711.k3v9…, token 1763920871000003, lease ends in 8.2s
//	free, last token 1763920871000003
func (s State) String() string {
	if s.Err != nil {
		return "cannot be read: " + s.Err.Error()
	}
	var text strings.Builder
	if s.Locked {
		fmt.Fprintf(&text, "%s by %ssession %s%s", s.use(), s.owner(), shown(s.Session), forHowLong(s.Since))
		if s.Note != "" {
			fmt.Fprintf(&text, ", note %q", s.Note)
		}
		fmt.Fprintf(&text, ", token %d, %s", s.Token, leaseOf(s.TTL))
	} else {
		fmt.Fprintf(&text, "free, last token %d", s.Token)
	}
	return text.String() + waiting(len(s.Waiting))
}

// String describes the state in one line, as [State.String] does:
//
//	held by session web-4711.k3v9… (read) for 1.8s and session web-815.aq2x… (read), last token 1763920871000003, 1 session waits
//	held by session web-4711.k3v9… (permits: 2) for 1.8s, last token 1763920871000003
//	free, last token 1763920871000003
func (s SharedState) String() string {
	text := "free"
	for i, h := range s.Holders {
		join := " and "
		if i == 0 {
			text, join = "held by ", ""
		}
		text += fmt.Sprintf("%ssession %s (%s)%s", join, shown(h.Session), s.part(h), forHowLong(h.Since))
	}
	return fmt.Sprintf("%s, last token %d%s", text, s.Token, waiting(len(s.Waiting)))
}

// part describes what a holder has.
func (s SharedState) part(h SharedHolder) string {
	switch {
	case s.Kind == Permits:
		return fmt.Sprintf("permits: %d", h.Units)
	case h.Units == AllUnits:
		return "write"
	}
	return "read"
}

// waiting says how many sessions wait, as the end of a line.
func waiting(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return ", 1 session waits"
	}
	return fmt.Sprintf(", %d sessions wait", n)
}

// forHowLong says how long ago a time was, as the end of a clause; "" if it is not known.
func forHowLong(since time.Time) string {
	if since.IsZero() {
		return ""
	}
	return " for " + max(time.Since(since), 0).Round(time.Millisecond).String() // the server's clock may be ahead
}

// use says whether the lock is held, and how often.
func (s State) use() string {
	if s.Unlocked {
		return "taken until its lease ends though unlocked"
	}
	if s.Kept() {
		return "kept"
	}
	return "held " + times(s.Holds)
}

// owner names the owner that has the lock, as text in front of its session; "" if the session keeps the lock for all
// its owners.
func (s State) owner() string {
	if s.Kept() {
		return ""
	}
	return "owner " + shown(s.Owner) + " of "
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return strconv.Itoa(n) + " times"
}

func leaseOf(ttl time.Duration) string {
	if ttl < 0 {
		return "without a lease"
	}
	return "lease ends in " + ttl.String()
}

// shown makes a text of another process safe for a terminal.
func shown(text string) string {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsGraphic(r) || r == '"' || r == unicode.ReplacementChar || unicode.IsSpace(r)
	}) {
		return strconv.Quote(text)
	}
	return text
}
