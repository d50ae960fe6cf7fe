package reentrant

import (
	"fmt"

	"github.com/relock-go/relock/backend"
)

// Replies of a Backend are checked on arrival: an impossible reply is an error whose outcome is unknown, as if there
// had been no reply.

func checkAcquire(r *backend.AcquireReply) error {
	granted := r.Status == backend.Granted && r.First > 0 && r.Last >= r.First
	if granted || r.Status == backend.Waiting || r.Status == backend.Stale {
		return nil
	}
	return impossible(r)
}

func checkResume(r *backend.ResumeReply) error {
	resumed := r.Status == backend.Resumed && r.Holds > 0 && r.Holds <= maxHolds && r.Token > 0
	if resumed || r.Status == backend.NotThere || r.Status == backend.Overtaken {
		return nil
	}
	return impossible(r)
}

func checkReenter(r *backend.ReenterReply) error {
	if r.Gone || r.Holds > 0 && r.Holds <= maxHolds {
		return nil
	}
	return impossible(r)
}

func checkRelease(r backend.ReleaseResult) error {
	if r >= backend.Released && r <= backend.Freed {
		return nil
	}
	return impossible(&r)
}

func checkTicket(s backend.TicketStatus) error {
	if s >= backend.Waited && s <= backend.Gone {
		return nil
	}
	return impossible(&s)
}

func checkState(s *State) error {
	if s.Holds >= 0 {
		return nil
	}
	return impossible(s)
}

// impossible takes a pointer so that a valid reply is not moved to the heap.
func impossible[T any](reply *T) error {
	return backend.WithOutcomeUnknown(fmt.Errorf("the backend's reply cannot be right: %+v", *reply))
}
