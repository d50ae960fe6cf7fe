package backend

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// String says the state in one line, for a log, with what other processes wrote in quotes if a terminal could
// take it for a command:
//
//	held 2 times by owner 18 of session 5ba4…, note "release 4.2", token 1763920871000003, lease ends in 8.2s, 3 sessions wait
//	taken until its lease ends though unlocked by owner 18 of session 5ba4…, token 1763920871000003, lease ends in 8.2s
//	free, last token 1763920871000003
func (s State) String() string {
	if s.Err != nil {
		return "cannot be read: " + s.Err.Error()
	}
	var text strings.Builder
	if s.Locked {
		fmt.Fprintf(&text, "%s by owner %s of session %s", s.use(), shown(s.Owner), shown(s.Session))
		if s.Note != "" {
			fmt.Fprintf(&text, ", note %q", s.Note)
		}
		fmt.Fprintf(&text, ", token %d, %s", s.Token, leaseOf(s.TTL))
	} else {
		fmt.Fprintf(&text, "free, last token %d", s.Token)
	}
	switch n := len(s.Waiting); n {
	case 0:
	case 1:
		text.WriteString(", 1 session waits")
	default:
		fmt.Fprintf(&text, ", %d sessions wait", n)
	}
	return text.String()
}

// use says whether the lock is held, and how often.
func (s State) use() string {
	if s.Unlocked {
		return "taken until its lease ends though unlocked"
	}
	return "held " + times(s.Holds)
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

// shown makes a text from elsewhere safe for a terminal.
func shown(text string) string {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) || r == '"' || r == unicode.ReplacementChar }) {
		return strconv.Quote(text)
	}
	return text
}
