package memory

import (
	"fmt"

	"github.com/relock-go/relock/internal/protocol"
)

// Left describes what the server still has of a name: a hold, places in the queue, tickets, units. What has expired is left
// out. Tests use Left to check that nothing is left behind.
func (b *Backend) Left(name string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, now := b.locks[name], b.clockLocked()
	left := b.leftSharedLocked(name, now)
	if l == nil {
		return left
	}
	if l.Hold.Count > 0 && now <= l.Hold.Expires {
		left = append(left, fmt.Sprintf("a hold of %s by %s", l.Hold.Owner, b.names[l.Hold.Session]))
	}
	for _, w := range l.Queue {
		if now <= w.Deadline {
			left = append(left, fmt.Sprintf("a place of %s", b.names[w.Session]))
		}
	}
	for name, c := range l.Conditions {
		for _, t := range append(append(c.Waiting[:0:0], c.Waiting...), c.Signalled...) {
			if now <= t.Deadline {
				left = append(left, fmt.Sprintf("a ticket of %s for %q", b.names[t.Session], name))
			}
		}
	}
	return left
}

// leftSharedLocked returns what is left of a shared name: units and places.
func (b *Backend) leftSharedLocked(name string, now protocol.Instant) (left []string) {
	s := b.shared[name]
	if s == nil {
		return nil
	}
	st := s.Inspect(now)
	for _, h := range st.Holders {
		left = append(left, fmt.Sprintf("%s units of %s", units(h.Units), b.names[h.Session]))
	}
	for _, w := range st.Waiting {
		left = append(left, fmt.Sprintf("a place of %s", b.names[w.Session]))
	}
	return left
}
