package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant"
)

// shared has the additional fields of a read-write lock or a semaphore. Scripts read these names: they do not change.
type shared struct {
	Kind    string         `json:"kind"`            // "rwlock" or "semaphore"
	Limit   int            `json:"limit,omitempty"` // of a semaphore: the highest limit that its sessions use
	Holders []sharedHolder `json:"holders"`         // in the order of their sessions' ids
	Waiters []sharedWaiter `json:"waiters"`         // longest first
}

// A sharedWaiter is a session that waits for a part of the lock: a side, or permits.
type sharedWaiter struct {
	Session string `json:"session"`
	Mode    string `json:"mode"`    // "read", "write" or "permits"
	Permits int    `json:"permits"` // of a semaphore: how many the session wants in total; it may have some
}

// A sharedHolder is a session that holds a part of the lock: a side, or permits.
type sharedHolder struct {
	Session string `json:"session"`
	Mode    string `json:"mode"`    // "read", "write" or "permits"
	Permits int    `json:"permits"` // of a semaphore
	TTL     int64  `json:"ttl_ms"`
	Since   string `json:"since,omitempty"` // when it was last granted a part, UTC; "" if that is not known
	Note    string `json:"note,omitempty"`  // the note of the user in the session that came last with a note
}

const (
	kindRWLock    = "rwlock"
	kindSemaphore = "semaphore"
)

// newSharedStatus returns the status of a shared name. Holds is the number of permits in use, or of sessions that read
// or write. TTL is the rest of the longest lease.
func newSharedStatus(name string, st reentrant.SharedState) status {
	s := status{Name: name, RawName: raw(name), Locked: len(st.Holders) > 0, Token: uint64(st.Token), Waiting: []string{},
		shared: &shared{Kind: kindRWLock, Holders: []sharedHolder{}, Waiters: []sharedWaiter{}}}
	if st.Kind == backend.Permits {
		s.Kind = kindSemaphore
	}
	for _, w := range st.Waiting {
		mode, permits := partOf(s.Kind, w.Want)
		s.Waiting, s.Waiters = append(s.Waiting, w.Session), append(s.Waiters, sharedWaiter{w.Session, mode, permits})
		s.allow(w.Limit)
	}
	for _, h := range st.Holders {
		holder := newSharedHolder(s.Kind, h)
		s.Holders = append(s.Holders, holder)
		s.allow(h.Limit)
		s.Holds += max(holder.Permits, 1)
		s.TTL = max(s.TTL, holder.TTL)
		if s.Since == "" || holder.Since != "" && holder.Since < s.Since {
			s.Since = holder.Since
		}
	}
	slices.SortFunc(s.Holders, func(a, b sharedHolder) int { return cmp.Compare(a.Session, b.Session) })
	return s
}

func newSharedHolder(kind string, h backend.SharedHolder) sharedHolder {
	holder := sharedHolder{Session: h.Session, TTL: h.TTL.Milliseconds(), Since: stampOf(h.Since), Note: h.Note}
	holder.Mode, holder.Permits = partOf(kind, h.Units)
	return holder
}

// partOf returns the part of a lock that the given number of units stands for.
func partOf(kind string, units int) (mode string, permits int) {
	switch {
	case kind == kindSemaphore:
		return "permits", units
	case units == backend.AllUnits:
		return "write", 0
	}
	return "read", 0
}

// allow raises the limit to the one that a session uses.
func (s *shared) allow(limit int) {
	if s.Kind == kindSemaphore {
		s.Limit = max(s.Limit, limit)
	}
}

// same reports whether two states differ in nothing but the leases and the times.
func (s *shared) same(other *shared) bool {
	if s == nil || other == nil {
		return s == other
	}
	return s.Kind == other.Kind && s.Limit == other.Limit && slices.EqualFunc(s.Holders, other.Holders, func(a, b sharedHolder) bool {
		a.TTL, b.TTL, a.Since, b.Since = 0, 0, "", ""
		return a == b
	})
}

// use describes which part is held.
func (s *shared) use() string {
	if s.Kind == kindSemaphore {
		used := 0
		for _, h := range s.Holders {
			used += h.Permits
		}
		return fmt.Sprintf("%d of %s held", used, counted(s.Limit, "permit"))
	}
	if s.writing() {
		return "write-locked"
	}
	return "read-locked"
}

// writing reports whether a session has the write side.
func (s *shared) writing() bool { return len(s.Holders) > 0 && s.Holders[0].Mode == "write" }

// sessions lists the sessions that hold a part, and for how long, for a line of text.
func (s *shared) sessions() string {
	var names []string
	for _, h := range s.Holders {
		names = append(names, "session "+shown(h.Session)+h.details()+forHowLong(h.Since))
	}
	return strings.Join(names, ", ")
}

// details formats how many permits a session has, and its note.
func (h sharedHolder) details() string {
	var parts []string
	if h.Permits > 0 {
		parts = append(parts, fmt.Sprintf("permits: %d", h.Permits))
	}
	if h.Note != "" {
		parts = append(parts, "note: "+shown(h.Note))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// notes returns the notes of the sessions, for a table.
func (s *shared) notes() string {
	var all []string
	for _, h := range s.Holders {
		if h.Note != "" {
			all = append(all, shown(h.Note))
		}
	}
	return strings.Join(all, ", ")
}

// wants formats what a session waits for; "" for a plain lock.
func (s *shared) wants(i int) string {
	switch {
	case s == nil:
		return ""
	case s.Waiters[i].Permits > 0:
		return fmt.Sprintf(" (permits: %d)", s.Waiters[i].Permits)
	}
	return " (" + s.Waiters[i].Mode + ")"
}

// leaseOf returns the rest of a session's lease. ok is false if it holds no part.
func (s *shared) leaseOf(session string) (left time.Duration, ok bool) {
	for _, h := range s.Holders {
		if h.Session == session {
			return time.Duration(h.TTL) * time.Millisecond, true
		}
	}
	return 0, false
}

// print prints the holders, a line for each.
func (s *shared) print(w io.Writer) {
	state := "free"
	if len(s.Holders) > 0 {
		state = s.use()
	}
	fmt.Fprintf(w, "kind\t%s\nstate\t%s\n", s.Kind, state)
	for _, h := range s.Holders {
		what := h.Mode
		if h.Permits > 0 {
			what = counted(h.Permits, "permit")
		}
		since := ""
		if h.Since != "" {
			since = fmt.Sprintf(", since %s (%s)", h.Since, strings.TrimPrefix(forHowLong(h.Since), " for "))
		}
		note := ""
		if h.Note != "" {
			note = ", note " + shown(h.Note)
		}
		fmt.Fprintf(w, "session\t%s, %s, lease %v%s%s\n", shown(h.Session), what, time.Duration(h.TTL)*time.Millisecond, since, note)
	}
}
