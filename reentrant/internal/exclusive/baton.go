package exclusive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive/machine"
)

// giveUp ends an attempt that got no hold. The caller has the baton, and giveUp passes it on.
func (st *State) giveUp() {
	st.mu.Lock()
	s := st.m.GiveUp()
	st.mu.Unlock()
	st.leave(s)
}

// leave carries out Leave or PassOn, the steps by which the caller gives the baton up.
func (st *State) leave(s machine.Step) {
	if s.Do == machine.PassOn {
		st.passOn()
		return
	}
	st.Queue.Leave()
	st.s.putState(st)
}

// passOnHold passes the baton on when a hold of the owner ends in this process. If Close has left the hold in Redis, the hold
// stays there.
func (st *State) passOnHold(owner core.Owner) {
	if st.s.leaves(owner) {
		st.mu.Lock()
		st.m.LeaveThere()
		st.mu.Unlock()
		st.leave(machine.Step{Do: machine.Leave})
		return
	}
	st.passOn()
}

// passOn passes the baton to the next owner in line, which takes over what Redis has for the session, such as the session's
// place among the waiters. If no owner is in line, passOn gives the baton and the caller's reference to a clean-up in the
// background, so that a caller whose context ended does not wait for Redis.
func (st *State) passOn() {
	st.mu.Lock()
	passed := st.Queue.Pass()
	if !passed {
		st.startCleaningLocked()
	}
	st.mu.Unlock()
	if passed {
		st.s.putState(st)
		return
	}
	st.s.core.Cleaner.Do(st.cleanUp)
}

// startCleaningLocked gives the baton to a clean-up. st.mu is held.
func (st *State) startCleaningLocked() {
	st.m.Clean()
	st.occupyLocked()
}

// occupyLocked notes that a clean-up has the baton: tries wait for the end of the clean-up. st.mu is held.
func (st *State) occupyLocked() {
	st.cleaning, st.cleaningSince = make(chan struct{}), st.s.core.Age()
}

// vacateLocked notes the end of the clean-up that occupyLocked noted. The caller closes the returned channel. st.mu is held.
func (st *State) vacateLocked() (done chan struct{}) {
	done, st.cleaning = st.cleaning, nil
	return done
}

// cleanUp releases what the session has of the lock in Redis, then passes the baton on. It owns the baton and a reference. It
// waits no longer than ReleaseTime. If something is left in Redis then, the next attempt has a higher epoch than that.
func (st *State) cleanUp() {
	st.mu.Lock()
	at := st.moment(st.s.core.Age())
	req := st.m.ReleaseRequest(&at)
	st.mu.Unlock()
	if err := st.release(context.Background(), req); err != nil && !errors.Is(err, core.ErrLost) && !st.s.core.Outages.Add(st.name) {
		st.s.core.Log(slog.LevelWarn, "could not give back yet a lock that the server may have granted", slog.String("lock", st.name), slog.Any("error", err))
	}
	st.endCleaning()
}

// endCleaning ends a clean-up: it passes the baton on, and drops the reference.
func (st *State) endCleaning() {
	st.mu.Lock()
	done := st.vacateLocked()
	st.Queue.Leave()
	st.mu.Unlock()
	close(done)
	st.s.putState(st)
}

// isCleaning reports whether a clean-up has the baton.
func (st *State) isCleaning() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.cleaning != nil
}

// checkCleanUp returns an error if a clean-up has had the baton for at least the given time, so that Redis has been silent for
// so long. No owner of this process has the lock then, and it is not known whether another process has it.
func (st *State) checkCleanUp(silent time.Duration) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.cleaning == nil || st.s.core.Age()-st.cleaningSince < silent {
		return nil
	}
	return fmt.Errorf("%w: what an earlier caller left behind is not given back yet", backend.ErrUnavailable)
}

// evict takes the baton from the owner of a lost hold and passes it to the next owner, unless the owner of the hold is using
// the baton itself. mayBeThere says whether Redis may still have a hold under the epoch: if so, and if there is no next owner
// to take that hold over, the session releases it. The caller has a reference to the lock state.
func (st *State) evict(epoch uint64, mayBeThere bool) {
	st.mu.Lock()
	h := st.m.Hold()
	holds := st.Queue.HoldCount(h.Owner)
	evicted := h.Phase == machine.Lost && h.Epoch == epoch && st.Queue.Evict(h.Owner)
	if evicted {
		st.oweLocked(&h, holds)
		st.m.Evicted()
		st.disownLocked()
	}
	at := st.moment(st.s.core.Age())
	remote, name, pendingUntil := st.remote, st.name, st.m.PendingUntil(&at)
	st.mu.Unlock()
	if !evicted {
		return
	}
	if mayBeThere && st.Queue.Idle() {
		st.s.core.Cleaner.Do(func() { st.s.ReleaseOrphan(remote, name, epoch, pendingUntil) })
	}
	st.s.putState(st)
}
