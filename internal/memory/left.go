package memory

import "fmt"

// Left describes what the server still has of a lock that is not over: a hold, places in the queue, tickets. It is for
// tests that look whether anything was left behind.
func (b *Backend) Left(name string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, now := b.locks[name], b.clockLocked()
	if l == nil {
		return nil
	}
	var left []string
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
