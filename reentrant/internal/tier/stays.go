package tier

import (
	"container/list"
	"time"

	"github.com/relock-go/relock/reentrant/internal/core"
)

// stays are the permits in use, by the calls that got them. Any caller may release permits, so which stay ends is a guess: the
// latest stay of the caller or, if the caller has none, the oldest stay of all.
type stays struct {
	all list.List // of *stay, oldest first
	of  map[core.Owner][]*list.Element
}

// A stay is what is left of the permits that a call got.
type stay struct {
	owner   core.Owner
	permits int
	since   time.Time
}

func (s *stays) begin(owner core.Owner, permits int) {
	if s.of == nil {
		s.of = make(map[core.Owner][]*list.Element)
	}
	s.of[owner] = append(s.of[owner], s.all.PushBack(&stay{owner, permits, time.Now()}))
}

// end takes permits away, and returns since when the first of them were in use.
func (s *stays) end(owner core.Owner, permits int) (since time.Time) {
	since = time.Now()
	for permits > 0 && s.all.Len() > 0 {
		at := s.all.Front()
		if own := s.of[owner]; len(own) > 0 {
			at = own[len(own)-1]
		}
		one := at.Value.(*stay)
		since = core.Earlier(since, one.since)
		n := min(permits, one.permits)
		permits -= n
		if one.permits -= n; one.permits == 0 {
			s.remove(at, one.owner)
		}
	}
	return since
}

func (s *stays) remove(at *list.Element, owner core.Owner) {
	s.all.Remove(at)
	rest := s.of[owner]
	if i := len(rest) - 1; rest[i] == at {
		rest = rest[:i]
	} else {
		rest = rest[1:] // the oldest of all is the owner's oldest
	}
	if len(rest) == 0 {
		delete(s.of, owner)
	} else {
		s.of[owner] = rest
	}
}
