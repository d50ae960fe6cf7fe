//go:build invariants || race

package localqueue

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The check must notice each kind of damage that it tests for.
func TestCheckNoticesDamage(t *testing.T) {
	for name, damage := range map[string]func(q *Queue[string]){
		"no damage":                   nil,
		"negative holds":              func(q *Queue[string]) { q.holds = -1 },
		"free with waiters":           func(q *Queue[string]) { q.state, q.owner, q.holds = free, "", 0 },
		"free with an owner":          func(q *Queue[string]) { *q = Queue[string]{owner: "a"} },
		"settled without holds":       func(q *Queue[string]) { q.holds = 0 },
		"settled while sibling waits": func(q *Queue[string]) { q.owner = "s" },
		"unknown state":               func(q *Queue[string]) { q.state = 99 },
		"arriving while settled":      func(q *Queue[string]) { q.arriving = true },
		"granted while settled":       func(q *Queue[string]) { q.granted = &node[string]{} },
		"granted and linked":          func(q *Queue[string]) { q.state, q.granted = busy, q.line.First },
		"wrong length":                func(q *Queue[string]) { q.line.Len++ },
		"empty with a length":         func(q *Queue[string]) { q.ops.Len++ },
		"in line with its turn":       func(q *Queue[string]) { q.line.First.Wake() },
		"operation without hold":      func(q *Queue[string]) { q.ops.Push(q.nodeLocked("a")) },
		"operation of another":        func(q *Queue[string]) { q.state = busy; q.ops.Push(q.nodeLocked("b")) },
		"ring unknown":                func(q *Queue[string]) { delete(q.siblings, "s") },
		"ring under another name":     func(q *Queue[string]) { q.siblings["x"] = q.siblings["s"]; delete(q.siblings, "s") },
		"ring out of order":           func(q *Queue[string]) { q.siblings["s"] = q.siblings["s"].Value().ring.next },
		"torn ring":                   func(q *Queue[string]) { ring := q.siblings["s"].Value().ring; ring.prev.Value().ring.prev = ring.prev },
		"in a ring of its own":        func(q *Queue[string]) { q.line.First.Value().inRing = true },
		"not in its ring":             func(q *Queue[string]) { q.siblings["s"].Value().inRing = false },
		"more rings than waiters": func(q *Queue[string]) {
			q.siblings["x"], q.siblings["y"], q.siblings["z"], q.siblings["w"] = nil, nil, nil, nil
		},
		"wrong number of spares": func(q *Queue[string]) { q.spares.Len++ },
		"a spare with a turn":    func(q *Queue[string]) { spareOf(q).Wake() },
		"a spare with an owner":  func(q *Queue[string]) { spareOf(q).Value().owner = "x" },
	} {
		t.Run(name, func(t *testing.T) {
			q := Queue[string]{state: settled, owner: "a", holds: 1}
			spare := q.enqueueLocked("gone", Fair, false)
			for _, w := range []struct {
				owner string
				mode  Mode
			}{{"b", Fair}, {"s", Shared}, {"c", Fair}, {"s", Shared}} {
				q.enqueueLocked(w.owner, w.mode, false)
			}
			q.dequeueLocked(spare)
			q.recycleLocked(spare)
			require.NotPanics(t, q.check)
			if damage != nil {
				damage(&q)
				requireBug(t, q.check)
			}
		})
	}
}

// spareOf returns a spare node of q, and leaves the node among the spares.
func spareOf(q *Queue[string]) *node[string] {
	w := q.spares.Take()
	q.recycleLocked(w)
	return w
}
