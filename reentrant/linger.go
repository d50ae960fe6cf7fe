package reentrant

import (
	"context"
	"time"

	"github.com/relock-go/relock/localqueue"
)

// A hold lingers when it was handed on and there was nobody to take it: the session keeps it, and the baton is free.
// It ends when an owner takes the baton and inherits it; or when the time is up, another session asks or this one is
// closed: then stopLingering takes the baton and gives the hold back.

// linger keeps a hold that the owner with the baton has just left, and frees the baton. False: it is not to be kept,
// and the baton is still the caller's.
func (e *lockState) linger(ctx context.Context, h *hold, now time.Time) bool {
	if e.s.config.linger == 0 || h.token >= h.last || !e.lingerLocked(ctx, h, now) {
		return false
	}
	e.s.watchdog.wakeBy(now.Add(e.s.config.linger))
	return true
}

func (e *lockState) lingerLocked(ctx context.Context, h *hold, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.s.closing: // closed before Close looks for those that linger, so it sees this one or this sees it
		return false
	default:
	}
	if e.hold.phase != phaseHanded || e.wantedEpoch >= e.hold.epoch {
		return false
	}
	e.idleLocked(now.Add(e.s.config.linger))
	e.reportRelease(ctx, h, false, nil)
	e.queue.Leave() // from now on the lock state may be another lock's
	return true
}

// startDismissal reports whether the hold lingers and no clean-up is on its way to it. The caller then sends one: stopLingering,
// with a reference to the lock state.
func (e *lockState) startDismissal() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.startDismissalLocked()
}

func (e *lockState) startDismissalLocked() bool {
	if e.hold.phase != phaseIdle || e.dismissed {
		return false
	}
	e.dismissed = true
	return true
}

// stopLingering gives back a hold that nobody has. It comes with a reference to the lock state.
func (e *lockState) stopLingering() {
	if e.claimLingering() {
		e.cleanUp() // with the reference of the hold
	}
	e.s.putState(e, 1)
}

// claimLingering takes the baton if the hold still lingers: then it is a clean-up's.
func (e *lockState) claimLingering() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dismissed = false
	if e.hold.phase != phaseIdle || e.queue.TryClaim(Owner{}, localqueue.Fair) != localqueue.Claimed {
		return false // an owner is about to inherit it
	}
	e.clearLocked()
	e.startCleaningLocked()
	return true
}

// noteWanted notes that another session waits for the hold with an epoch. It reports what startDismissal does.
func (e *lockState) noteWanted(epoch uint64) (dismissed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wantedEpoch = max(e.wantedEpoch, epoch)
	if e.hold.owned() && e.hold.epoch <= epoch {
		e.answerWantedLocked()
	}
	return e.startDismissalLocked()
}
