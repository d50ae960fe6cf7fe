package core

import "sync/atomic"

// Counters count what a session has done: see reentrant.Stats.
type Counters struct {
	Acquired, Reentries, Handoffs, Yields, Renewals, Lost, Commands atomic.Uint64
}
