package reentrant

import (
	"fmt"

	"github.com/relock-go/relock/backend"
)

// What a Backend answers is looked at where it comes in: an answer that cannot be is an error whose outcome is unknown, as
// if none had come, and nothing is built on it.

func checkAcquire(r *backend.AcquireReply) error {
	switch r.Status {
	case backend.Granted:
		return possible(r, r.First > 0 && r.Last >= r.First)
	case backend.Waiting, backend.Stale:
		return nil
	}
	return possible(r, false)
}

func checkResume(r *backend.ResumeReply) error {
	switch r.Status {
	case backend.Resumed:
		return possible(r, r.Holds > 0 && r.Holds <= maxHolds && r.Token > 0)
	case backend.NotThere, backend.Overtaken:
		return nil
	}
	return possible(r, false)
}

func checkReenter(r *backend.ReenterReply) error {
	return possible(r, r.Gone || r.Holds > 0 && r.Holds <= maxHolds)
}

func checkRelease(r backend.ReleaseResult) error {
	return possible(&r, r >= backend.Released && r <= backend.Freed)
}

func checkTicket(s backend.TicketStatus) error {
	return possible(&s, s >= backend.Waited && s <= backend.Gone)
}

func checkState(s *State) error { return possible(s, s.Holds >= 0) }

// possible takes a pointer so that an answer which is right is not moved to the heap.
func possible[T any](reply *T, ok bool) error {
	if ok {
		return nil
	}
	return backend.WithOutcomeUnknown(fmt.Errorf("the backend's answer cannot be: %+v", *reply))
}
