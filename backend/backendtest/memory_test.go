package backendtest_test

import (
	"testing"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/backend/backendtest"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/internal/testsize"
)

func newMemory(*testing.T) backend.Backend { return memory.New() }

func TestMemoryInVirtualTime(t *testing.T) {
	backendtest.Run(t, newMemory, backendtest.InBubble())
}

func TestMemory(t *testing.T) {
	testsize.OfATopology(t) // the same waits, by the real clock
	backendtest.Run(t, newMemory, backendtest.InParallel())
}
