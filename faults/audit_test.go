package faults

import (
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// A process must not have anything at the server for long that none of its workers uses or asks for. Audits check that, so far
// apart.

const auditEvery = 7 * time.Second

// A stake is what a process may have at the server under a name.
type stake struct{ process, name string }

// stakeOf returns the stake of a process in a lock. Locks that are taken together count as one stake, and so do all slots.
func stakeOf(process, lock string) stake {
	if strings.HasPrefix(lock, simDesks) {
		lock = simDesks
	}
	return stake{process, queueOf(lock)}
}

// audit checks that the server has nothing for a session whose workers have not used it or asked for it lately.
func (w *world) audit() {
	if w.blind() {
		return
	}
	kept := simLinger
	if w.storm > 0 {
		kept += simLease // a late copy of an attempt takes the lock for a lease, after another session has released the lock
	}
	for _, lock := range simLocks {
		if lock == simFerry || strings.HasPrefix(lock, simDesks) { // the holder may have changed; slots are audited as permits
			continue
		}
		state, err := w.asker.NewLock(lock).Inspect(w.t.Context())
		require.NoError(w.t, err)
		if state.Locked && !state.Unlocked {
			w.audits(lock, "the lock", state.Session, kept)
		}
		for _, session := range state.Waiting {
			w.audits(lock, "a place", session, 0)
		}
	}
	for _, name := range []string{simBook, simSeats, simDesks} {
		state, err := w.inspect(name)
		require.NoError(w.t, err)
		rest := time.Duration(0)
		if name == simBook {
			rest = 2 * simHeartbeat // readers may come again within this time
		}
		for _, holder := range state.Holders {
			w.audits(name, "units", holder.Session, rest)
		}
		for _, waiter := range state.Waiting {
			w.audits(name, "a place", waiter.Session, 0)
		}
	}
}

// audits checks that a session to which the server gives something under a name has had a reason for it lately.
func (w *world) audits(name, what, session string, rest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	mine := stakeOf(w.sessions[session], name)
	if w.excused(mine.process) || w.busy(mine) || what != "a place" && w.broughtBack(mine) {
		return
	}
	most := rest + 2*prompt + w.lateness()
	if w.storm > 0 {
		most += 3 * simHeartbeat // messages are late and come twice, and the session has to give back what a late copy got
	}
	if idle := time.Duration(w.nowLocked() - w.used[mine]); idle > most {
		w.findLocked("the server has %s of %s for %s, where no worker has used it, or asked for it, for %v", what, name, mine.process, idle)
	}
}

// excused reports whether a process cannot give back what the server has for it, or lately could not. w.mu is held.
func (w *world) excused(process string) bool {
	return w.deaths[process] != 0 || w.repaired[process] > 0 && w.nowLocked() < w.repaired[process]+simLease.Nanoseconds()
}

// broughtBack reports whether a failover may have brought back what a process had already given back. That ends with its lease,
// which the second copy of a renewal may prolong once. w.mu is held.
func (w *world) broughtBack(mine stake) bool {
	return w.restored > 0 && w.used[mine] <= w.restored && w.nowLocked() < w.restored+2*simLease.Nanoseconds()
}

// busy reports whether workers use a stake, or ask for it. w.mu is held.
func (w *world) busy(mine stake) bool {
	for _, c := range w.open {
		if stakeOf(c.Process, c.Lock) == mine {
			return true
		}
	}
	for p, h := range w.inside {
		if h != nil && stakeOf(h.process.name, p.name) == mine {
			return true
		}
	}
	return false
}

// use notes that a process had something to do with a name. w.mu is held.
func (w *world) use(c *call) { w.used[stakeOf(c.Process, c.Lock)] = w.nowLocked() }
