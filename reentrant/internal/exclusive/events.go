package exclusive

import (
	"context"
	"fmt"
	"time"

	"github.com/relock-go/relock/reentrant/internal/core"
)

// reportGot reports that the owner got the lock, in a session that reports events. Like reportRelease it is called with st.mu
// held, or with the baton of the hold, so that the events of a lock have an order.
func (st *State) reportGot(ctx context.Context, kind core.EventKind, t *Try) {
	st.s.core.Report(ctx, core.Event{Kind: kind, Lock: st.name, Owner: st.m.Owner(), Token: st.m.Token(), Wait: time.Since(t.Begun)})
}

// leftBehind is why a hold ends that Close leaves in Redis.
const leftBehind = "the session was closed, and the hold is left to be resumed"

// reportLost reports that a hold is lost.
func (s *Room) reportLost(name string, h *Hold, why string) {
	s.core.Counts.Lost.Add(1)
	e := core.Event{Kind: core.EventLost, Lock: name, Owner: h.Owner, Token: h.Token, Held: time.Since(h.since)}
	switch {
	case h.Lease.Fixed() && !time.Now().Before(h.Lease.Until()):
		why = "its fixed lease ended"
		e = core.Meant(e, "a fixed lease has ended")
	case why == leftBehind:
		e = core.Meant(e, "a hold is left to be resumed")
	}
	e.Err = fmt.Errorf("%w (%s)", core.ErrLost, why)
	s.core.Report(context.Background(), e)
}
