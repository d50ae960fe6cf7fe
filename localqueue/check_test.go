//go:build invariants || race

package localqueue

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// check must notice each kind of damage that it is there for.
func TestCheckNoticesDamage(t *testing.T) {
	for name, damage := range map[string]func(q *Queue[string]){
		"no damage":               nil,
		"negative holds":          func(q *Queue[string]) { q.holds = -1 },
		"free with waiters":       func(q *Queue[string]) { q.state, q.owner, q.holds = free, "", 0 },
		"free with an owner":      func(q *Queue[string]) { *q = Queue[string]{owner: "a"} },
		"settled without holds":   func(q *Queue[string]) { q.holds = 0 },
		"settled while kin waits": func(q *Queue[string]) { q.owner = "s" },
		"unknown state":           func(q *Queue[string]) { q.state = 99 },
		"granted while settled":   func(q *Queue[string]) { q.granted = &waiter[string]{} },
		"granted and linked":      func(q *Queue[string]) { q.state, q.granted = busy, q.line.first },
		"wrong length":            func(q *Queue[string]) { q.line.n++ },
		"empty with a length":     func(q *Queue[string]) { q.ops.n++ },
		"torn link":               func(q *Queue[string]) { q.line.last.prev.next = nil },
		"torn back link":          func(q *Queue[string]) { q.line.last.prev = nil },
		"crossed link":            func(q *Queue[string]) { q.line.first.next = q.line.first },
		"in line, not queued":     func(q *Queue[string]) { q.line.first.queued = false },
		"in line with its turn":   func(q *Queue[string]) { q.line.first.turn <- struct{}{} },
		"operation of nobody":     func(q *Queue[string]) { q.ops.push(q.nodeLocked("a")) },
		"operation of another":    func(q *Queue[string]) { q.state = busy; q.ops.push(q.nodeLocked("b")) },
		"kin unknown":             func(q *Queue[string]) { delete(q.kin, "s") },
		"kin under another name":  func(q *Queue[string]) { q.kin["x"] = q.kin["s"]; delete(q.kin, "s") },
		"kin out of order":        func(q *Queue[string]) { q.kin["s"] = q.kin["s"].kin.next },
		"torn ring":               func(q *Queue[string]) { q.kin["s"].kin.prev.kin.prev = q.kin["s"].kin.prev },
		"in a ring of its own":    func(q *Queue[string]) { q.line.first.inRing = true },
		"not in its ring":         func(q *Queue[string]) { q.kin["s"].inRing = false },
		"more kin than waiters":   func(q *Queue[string]) { q.kin["x"], q.kin["y"], q.kin["z"], q.kin["w"] = nil, nil, nil, nil },
		"wrong number of spares":  func(q *Queue[string]) { q.spares++ },
		"a spare with a turn":     func(q *Queue[string]) { q.spare.turn <- struct{}{} },
		"a spare with an owner":   func(q *Queue[string]) { q.spare.owner = "x" },
	} {
		t.Run(name, func(t *testing.T) {
			q := Queue[string]{state: settled, owner: "a", holds: 1}
			spare := q.enqueueLocked("gone", false)
			for _, w := range []struct {
				owner  string
				shared bool
			}{{"b", false}, {"s", true}, {"c", false}, {"s", true}} {
				q.enqueueLocked(w.owner, w.shared)
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
