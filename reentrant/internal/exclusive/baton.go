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

// giveUp ends an attempt that got no hold. Baton.
func (st *State) giveUp() {
	st.mu.Lock()
	s := st.m.GiveUp()
	st.mu.Unlock()
	st.leave(s)
}

// leave carries out the step that ends what the goroutine with the baton does. Baton, which is passed on.
func (st *State) leave(s machine.Step) {
	if s.Do == machine.PassOn {
		st.passOn()
		return
	}
	st.Queue.Leave()
	st.s.putState(st)
}

// passOn passes the baton to the next owner, which takes over what Redis has for the session, such as its place among the
// waiters. If there is none, it passes the baton and its reference to a clean-up in the background, so that a caller whose
// context ended does not wait for Redis.
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

// occupyLocked notes that a clean-up has the baton: tries wait for its end. st.mu is held.
func (st *State) occupyLocked() {
	st.cleaning, st.cleaningSince = make(chan struct{}), st.s.core.Age()
}

// vacateLocked undoes occupyLocked. The caller closes the channel. st.mu is held.
func (st *State) vacateLocked() (done chan struct{}) {
	done, st.cleaning = st.cleaning, nil
	return done
}

// cleanUp releases what given-up attempts have in Redis, then passes the baton on. It owns the baton and a reference.
// It waits no longer than ReleaseTime: the epoch of the next attempt is higher than that of anything left.
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

// checkCleanUp returns an error if the baton is with a clean-up to which Redis has not replied for so long: then no owner of
// this process has the lock, and it is not known whether another process has it.
func (st *State) checkCleanUp(silent time.Duration) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.cleaning == nil || st.s.core.Age()-st.cleaningSince < silent {
		return nil
	}
	return fmt.Errorf("%w: what an earlier caller left behind is not given back yet", backend.ErrUnavailable)
}

// evict takes the baton from the owner of a lost hold and passes it to the next, unless the owner is giving it up
// itself. If there is no next owner to take over what Redis may still have, the session gives that back. The caller has
// a reference to the lock state.
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
	remote, name := st.remote, st.name
	st.mu.Unlock()
	if !evicted {
		return
	}
	if mayBeThere && st.Queue.Idle() {
		st.s.core.Cleaner.Do(func() { st.s.ReleaseOrphan(remote, name, epoch) })
	}
	st.s.putState(st)
}
