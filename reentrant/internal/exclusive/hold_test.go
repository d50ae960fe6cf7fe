//go:build invariants || race

package exclusive

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Only the transitions in the table are possible.
func TestAHoldChangesItsPhaseByTheTable(t *testing.T) {
	for from := range phase(len(successors)) {
		for to := range phase(len(successors)) {
			h := Hold{phase: from}
			change := func() { h.enter(to) }
			if from == to || slices.Contains(successors[from], to) {
				assert.NotPanics(t, change, "from %v to %v", from, to)
			} else {
				assert.Panics(t, change, "from %v to %v", from, to)
			}
		}
	}
}
