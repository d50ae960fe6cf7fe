package memory_test

import (
	"time"

	"github.com/relock-go/relock/internal/memory"
)

// The first Unlock of the first session is executed but its reply is lost, and every message to the second session
// comes 50 ms late.
func ExampleWithFault() {
	memory.New(memory.WithFault(func(op memory.Op) memory.Verdict {
		switch {
		case op.Session == "A" && op.Verb == memory.Release && op.Try == 1:
			return memory.LoseReply
		case op.Session == "B" && op.Verb == memory.Push:
			return memory.Delay(50 * time.Millisecond)
		}
		return memory.Pass
	}))
}
