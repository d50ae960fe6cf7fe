package backendtest_test

import (
	"testing"

	"github.com/relock-go/relock/backendtest"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

func newMemory(*testing.T) reentrant.Backend { return memory.New() }

func TestMemoryInVirtualTime(t *testing.T) {
	backendtest.Run(t, newMemory, backendtest.InBubble())
}

func TestMemory(t *testing.T) { backendtest.Run(t, newMemory, backendtest.InParallel()) }
