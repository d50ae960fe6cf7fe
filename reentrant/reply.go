package reentrant

import "fmt"

// What a Backend answers is looked at where it comes in: an answer that cannot be is an error whose outcome is unknown, as
// if none had come, and nothing is built on it.

func checkAcquire(r *AcquireReply) error {
	switch r.Status {
	case Granted:
		return possible(r, r.First > 0 && r.Last >= r.First)
	case Waiting, Stale:
		return nil
	}
	return possible(r, false)
}

func checkResume(r *ResumeReply) error {
	switch r.Status {
	case Resumed:
		return possible(r, r.Holds > 0 && r.Holds <= maxHolds && r.Token > 0)
	case NotThere, Overtaken:
		return nil
	}
	return possible(r, false)
}

func checkReenter(r *ReenterReply) error {
	return possible(r, r.Gone || r.Holds > 0 && r.Holds <= maxHolds)
}

func checkRelease(r ReleaseResult) error { return possible(r, r >= Released && r <= Nothing) }

func checkTicket(s TicketStatus) error { return possible(s, s >= Waited && s <= Gone) }

func checkState(s *State) error { return possible(s, s.Holds >= 0) }

func possible(reply any, ok bool) error {
	if ok || fault == faultBelieveReplies {
		return nil
	}
	return WithOutcomeUnknown(fmt.Errorf("the backend's answer cannot be: %+v", reply))
}
