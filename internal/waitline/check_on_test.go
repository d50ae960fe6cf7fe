//go:build invariants || race

package waitline

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func check(l *Line[int], s *Spares[int]) {
	l.Check(func(w *Node[int]) { must(w.InLine(), "a node of the line is not in line") })
	s.Check(func(w *Node[int]) { must(*w.Value() == 0, "a spare has a value") })
}

// Check must notice each kind of damage that it is there for.
func TestCheckNoticesDamage(t *testing.T) {
	for name, damage := range map[string]func(l *Line[int], s *Spares[int]){
		"no damage":              nil,
		"wrong length":           func(l *Line[int], _ *Spares[int]) { l.Len++ },
		"empty with a length":    func(l *Line[int], _ *Spares[int]) { l.First = nil },
		"nodes without a length": func(l *Line[int], _ *Spares[int]) { l.Len = 0 },
		"torn link":              func(l *Line[int], _ *Spares[int]) { l.First.next.next = nil },
		"torn back link":         func(l *Line[int], _ *Spares[int]) { l.First.next.next.prev = nil },
		"crossed link":           func(l *Line[int], _ *Spares[int]) { l.First.next = l.First },
		"crossed back link":      func(l *Line[int], _ *Spares[int]) { l.First.next.next.prev = l.First },
		"last unknown":           func(l *Line[int], _ *Spares[int]) { l.First.prev = nil },
		"another last":           func(l *Line[int], _ *Spares[int]) { l.First.prev = l.First.next },
		"wrong number of spares": func(_ *Line[int], s *Spares[int]) { s.Len++ },
		"a spare with a turn":    func(_ *Line[int], s *Spares[int]) { s.first.Wake() },
		"a spare in line":        func(l *Line[int], s *Spares[int]) { l.Push(s.first) },
		"too many spares": func(_ *Line[int], s *Spares[int]) {
			s.Len = 0
			for range MaxSpares {
				s.Keep(&Node[int]{})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := lineOf(5)
			var s Spares[int]
			s.Keep(&Node[int]{granted: make(chan struct{}, 1)})
			require.NotPanics(t, func() { check(l, &s) })
			if damage != nil {
				damage(l, &s)
				require.Panics(t, func() { check(l, &s) })
			}
		})
	}
}

// A line that is too long to be looked at as a whole is looked at from both ends.
func TestCheckNoticesDamageNearTheEndOfALongLine(t *testing.T) {
	l, nodes := lineOf(3 * checkWalk)
	require.NotPanics(t, func() { check(l, &Spares[int]{}) })
	nodes[len(nodes)-2].prev = nil
	require.Panics(t, func() { check(l, &Spares[int]{}) })
}
