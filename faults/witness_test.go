package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/relock-go/relock/faults/history"
	"github.com/relock-go/relock/reentrant"
)

// A witness is the observer of a session. It checks that the events describe a lock: one holder at a time, and an end for each
// hold.
type witness struct {
	*process
	mu    sync.Mutex
	uses  map[use]int
	token map[use]reentrant.Token // the tokens with which holds of Locks began
	ended map[use]bool            // true if the latest end of a use was EventReleased: a loss may still be reported after that
	locks uint64                  // the number of Locks that were acquired
}

// A use is what an owner has under a name, according to its events. Permits have no owner.
type use struct {
	lock  string
	mode  reentrant.Mode
	owner reentrant.Owner
}

func newWitness(p *process) *witness {
	return &witness{process: p, uses: make(map[use]int), token: make(map[use]reentrant.Token), ended: make(map[use]bool)}
}

func (v *witness) Observe(_ context.Context, e reentrant.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	u, units := use{lock: e.Lock, mode: e.Mode, owner: e.Owner}, 1
	if e.Mode == reentrant.ModePermits {
		u.owner, units = reentrant.Owner{}, e.Permits
	}
	switch e.Kind {
	case reentrant.EventAcquired:
		v.begins(u, units, uint64(e.Token))
		v.token[u] = e.Token
	case reentrant.EventReleased:
		v.stops(u, units, e)
		v.ended[u] = true
	case reentrant.EventRenewalFailing:
		if v.stillCalm() && !errors.Is(e.Err, reentrant.ErrUnavailable) { // slow parcels make Redis unavailable
			v.find("%s observed that %s cannot be renewed: %v", v.name, e.Lock, e.Err)
		}
	case reentrant.EventLost:
		if v.uses[u] > 0 || !v.ended[u] {
			v.stops(u, units, e)
		}
		v.ended[u] = false
	}
}

// begins checks that nothing of the session excludes a use that begins.
func (v *witness) begins(u use, units int, token uint64) {
	for other, n := range v.uses {
		if n > 0 && other.lock == u.lock && (u.mode != reentrant.ModeRead || other.mode != reentrant.ModeRead) && u.mode != reentrant.ModePermits {
			v.find("%s observed that %v got %s (%v) while %v had it (%v)", v.name, u.owner, u.lock, u.mode, other.owner, other.mode)
		}
	}
	v.uses[u] += units
	if limit := map[string]int{simSeats: simSeatsFree, simDesks: simDesksFree}[u.lock]; u.mode == reentrant.ModePermits && v.uses[u] > limit {
		v.find("%s observed that %d permits of %s are in use", v.name, v.uses[u], u.lock)
	}
	if u.mode == reentrant.ModeLock {
		v.locks++
		v.world.mu.Lock()
		defer v.world.mu.Unlock()
		v.seen[fmt.Sprint(v.name, u.lock, token)] = true
	}
}

func (v *witness) stops(u use, units int, e reentrant.Event) {
	if v.uses[u] < units {
		v.find("%s observed the end of what had not begun: %v of %s (%v) by %v", v.name, e.Kind, u.lock, u.mode, u.owner)
	}
	if e.Mode == reentrant.ModeLock && e.Token != v.token[u] {
		v.find("%s observed the end of a hold of %s by %v with token %d, which began with %d", v.name, u.lock, u.owner, e.Token, v.token[u])
	}
	if v.uses[u] -= units; v.uses[u] <= 0 {
		delete(v.uses, u)
	}
}

// ends checks that each use has ended when the session has ended, and that the session and its observer count the same.
func (v *witness) ends(session *reentrant.Session) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := session.Stats(); s.Held != 0 || s.Waiting != 0 || s.Acquired != v.locks || s.Dropped != 0 {
		v.find("%s ended with %+v, and observed %d locks", v.name, s, v.locks)
	}
	for u, n := range v.uses {
		v.find("%s ended, and observed no end of %d of %s (%v) by %v", v.name, n, u.lock, u.mode, u.owner)
	}
}

// unobserved finds holds about which the observer has not heard.
func (w *world) unobserved() (findings []string) {
	for _, c := range w.calls {
		got := c.Outcome == history.OK && (c.Kind == history.Acquire && !c.again || c.Kind == history.Await) && c.Token > 0
		if got && slices.Contains(simLocks, c.Lock) && !strings.HasPrefix(c.Lock, simDesks) && !w.seen[fmt.Sprint(c.Process, c.Lock, c.Token)] {
			findings = append(findings, fmt.Sprintf("%s got %s with token %d, called %d, and no event said so", c.Client, c.Lock, c.Token, c.Call))
		}
	}
	return findings
}
