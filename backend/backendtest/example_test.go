package backendtest_test

import (
	"testing"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/backend/backendtest"
	"github.com/relock-go/relock/internal/memory"
)

// A test of a Backend needs only this. Here memory stands for the package under test: it has no network and waits only on
// channels, so it is tested in virtual time. A Backend that talks to a server is not tested in a bubble; its cases should
// rather run InParallel.
func ExampleRun() {
	_ = func(t *testing.T) { // func TestConformance(t *testing.T)
		newBackend := func(t *testing.T) backend.Backend {
			return memory.New()
		}
		backendtest.Run(t, newBackend, backendtest.InBubble())
	}
}
