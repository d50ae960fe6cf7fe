package testsize_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/relock-go/relock/internal/testsize"
)

func TestTheEnvironmentAsksForFullSize(t *testing.T) {
	for value, all := range map[string]bool{"": false, "0": false, "1": true, "true": true} {
		t.Setenv("RELOCK_FULL", value)
		assert.Equal(t, all, testsize.Full(), "%q", value)
		assert.Equal(t, map[bool]int{true: 100, false: 7}[all], testsize.Of(100, 7), "%q", value)
	}
}

func TestWhatTakesLongIsAskedFor(t *testing.T) {
	for value, runs := range map[string]bool{"": false, "0": false, "1": true, "true": true} {
		t.Setenv("RELOCK_FULL", value)
		var went bool
		t.Run(value, func(t *testing.T) {
			testsize.FullOnly(t)
			went = true
		})
		assert.Equal(t, runs, went, "%q", value)
	}
}

func TestSuitesOfOtherTopologiesRunOnlyOnRequest(t *testing.T) {
	for value, runs := range map[string]bool{"": false, "0": false, "1": true, "true": true} {
		t.Setenv("RELOCK_TOPOLOGIES", value)
		var went bool
		t.Run(value, func(t *testing.T) {
			testsize.OfATopology(t)
			went = true
		})
		assert.Equal(t, runs, went, "%q", value)
	}
}
