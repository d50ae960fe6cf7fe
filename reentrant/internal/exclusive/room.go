// Package exclusive is the engine of the lock that one owner holds at a time: for each name a queue of the session's owners,
// what the session has in Redis, and who may act.
//
// Its callers are the handles of package reentrant, which check a call and say what it does, and what the backend pushes to
// the session.
package exclusive

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/condition"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive/machine"
	"github.com/relock-go/relock/reentrant/internal/keeper"
)

// A Room has the locks of one session.
//
// Lock order: Room.mu, State.mu, then the mutex inside localqueue.Queue. Nothing slow is done under any of them.
type Room struct {
	core    *core.Session
	options machine.Options

	mu      sync.Mutex
	states  map[string]*State // refs > 0
	spares  []*State          // lock states to be used again, with their nodes, timers and channels
	closed  bool              // no new lock states
	drained chan struct{}     // closed when closed and states is empty

	keeper     *keeper.Keeper
	conditions *condition.Room

	abandonedHolds atomic.Int64 // how many holds AbandonAll gave up
	leftHolds      atomic.Int64 // how many it left in Redis, to be resumed
}

// NewRoom returns a room without locks.
func NewRoom(s *core.Session, k *keeper.Keeper, conditions *condition.Room) *Room {
	return &Room{core: s, options: optionsOf(s), states: make(map[string]*State), drained: make(chan struct{}), keeper: k, conditions: conditions}
}

// optionsOf returns what the machines of a session need of its options.
func optionsOf(s *core.Session) machine.Options {
	c := &s.Config
	return machine.Options{
		Opened: s.Opened,
		Lease:  c.Lease, Heartbeat: c.Heartbeat, CommandTimeout: c.CommandTimeout, Patience: c.Patience, GrantTTL: c.GrantTTL,
		Spin: c.Spin, Handoffs: c.Handoffs, HandoffTime: c.HandoffTime, Generation: core.GenerationTime, Linger: c.Linger,
		Block: c.Block(), CohortOwner: c.CohortOwner(),
	}
}

// Drained returns a channel that is closed when the room is closed and no lock is in use.
func (s *Room) Drained() <-chan struct{} { return s.drained }

// GivenUp returns how many holds AbandonAll gave up, and how many it left to be resumed.
func (s *Room) GivenUp() (abandoned, left int) {
	return int(s.abandonedHolds.Load()), int(s.leftHolds.Load())
}

// UnboundedHolder returns the owner that has a lock until it unlocks.
func (s *Room) UnboundedHolder(name string) (owner core.Owner, held bool) {
	s.with(name, func(st *State) { owner, held = st.unboundedHolder() })
	return owner, held
}

// UnboundedHolders returns the locks that each owner has until it unlocks.
func (s *Room) UnboundedHolders() map[core.Owner][][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(map[core.Owner][][]byte)
	for name, st := range s.states {
		if owner, ok := st.unboundedHolder(); ok {
			held[owner] = append(held[owner], []byte(name))
		}
	}
	return held
}

// unboundedHolder returns the owner that has the lock until it unlocks. A hold of a fixed lease and a lost one end by
// themselves: a wait for them is no part of a deadlock.
func (st *State) unboundedHolder() (core.Owner, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	owner, held := st.Queue.Holder()
	h := st.m.Hold()
	return owner, held && h.Owned() && !h.Lease.Fixed()
}

// HoldOf returns the hold on a lock, without a reference to its lock state.
func (s *Room) HoldOf(name string) Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.states[name]
	if st == nil {
		return Hold{}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.holdLocked()
}

// holderOf returns who has a lock: an owner of this session, or whom the server names within limit.
func (s *Room) holderOf(name string, remote backend.Remote, limit time.Duration) core.Sighting {
	if seen, held := s.localHolder(name); held {
		return seen
	}
	return s.core.AskForHolder(remote, limit)
}

// Holder is holderOf for the lock of the handle.
func (h *Handle) Holder(limit time.Duration) core.Sighting {
	return h.Room.holderOf(h.Name, h.Remote, limit)
}

// LocalHolder returns the owner of this session that has the lock, if one has.
func (h *Handle) LocalHolder() []core.Holder {
	seen, _ := h.Room.localHolder(h.Name)
	return seen.Holders
}

// localHolder returns which owner of this session has a lock, and whether one has.
func (s *Room) localHolder(name string) (seen core.Sighting, held bool) {
	h := s.HoldOf(name)
	if !h.Owned() {
		return seen, false
	}
	st := backend.State{
		Locked: true, Session: s.core.ID, Owner: h.Owner.String(), TTL: time.Until(h.Lease.Until()), Epoch: h.Epoch, Token: h.Token, Note: h.note.String(), Since: h.since,
	}
	seen = core.Sighting{State: &st, Holders: core.HoldersOf(&st)}
	return seen, true
}

// maxSpare bounds the lock states kept for reuse, so that locking a free lock again and again allocates nothing.
const maxSpare = 64

// getState takes a reference to the lock state of a lock, and creates that if there is none.
func (s *Room) getState(l *Handle) (*State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, core.ErrClosed
	}
	st := l.lastState.Load()
	if st == nil || st.refs == 0 || st.name != l.Name { // it is no longer the lock's
		st = s.states[l.Name]
	}
	if st == nil {
		st = s.newStateLocked(l)
		s.states[l.Name] = st
	}
	st.refs++
	return st, nil
}

// findState takes a reference to the lock state of a lock if there is one.
func (s *Room) findState(name string) *State {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.states[name]
	if st != nil {
		st.refs++
	}
	return st
}

// with calls f with the lock state of a lock. It returns false if there is none.
func (s *Room) with(name string, f func(*State)) bool {
	st := s.findState(name)
	if st == nil {
		return false
	}
	defer s.putState(st)
	f(st)
	return true
}

// newStateLocked returns a spare lock state or a new one. The best spare is the one that served this lock before: it
// knows how the lock was left in Redis, and until when a copy may be under way. Otherwise it is the one that has been spare for longest, once there is no room
// for more. s.mu is held.
func (s *Room) newStateLocked(l *Handle) *State {
	i := len(s.spares) - 1
	for i >= 0 && s.spares[i].name != l.Name {
		i--
	}
	if i < 0 && len(s.spares) < maxSpare {
		return &State{s: s, wake: make(chan struct{}, 1), name: l.Name, remote: l.Remote}
	}
	i = max(i, 0)
	st := s.spares[i]
	s.spares = slices.Delete(s.spares, i, i+1)
	st.m.Reuse(st.name == l.Name)
	st.name, st.remote = l.Name, l.Remote
	return st
}

// putState drops a reference. A lock state without references is removed, and may become a spare.
func (s *Room) putState(st *State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.refs--; st.refs > 0 {
		return
	}
	if st.refs < 0 || invariants && !st.Queue.Idle() {
		panic("reentrant: bug: a lock state without references is in use")
	}
	if st.m.Phase() != machine.Vacant { // without a reference only a goroutine that has s.mu writes it
		panic("reentrant: bug: a lock state without references has a hold")
	}
	delete(s.states, st.name)
	if s.closed && len(s.states) == 0 {
		close(s.drained)
	}
	if len(s.spares) < maxSpare {
		st.remote = nil
		s.spares = append(s.spares, st)
	}
}

// Granted hands a grant to the lock that it is for. It returns false if no attempt needs it, so that it must be released.
func (s *Room) Granted(g backend.Grant) (wanted bool) {
	s.with(g.Name, func(st *State) { wanted = st.granted(g) })
	return wanted
}

// Signalled wakes the owner of a ticket. It returns false if the session does not use a lock of that name.
func (s *Room) Signalled(name string, ticket uint64, placed bool) bool {
	return s.with(name, func(st *State) { st.signalled(ticket, placed) })
}

// Taken asks Redis about a hold that another session is said to have resumed.
func (s *Room) Taken(name string, epoch uint64) {
	s.with(name, func(st *State) { st.markTaken(epoch) })
}

// Wanted notifies the holder of a lock that another session waits, and gives up a hold that lingers.
func (s *Room) Wanted(name string, epoch uint64) {
	st := s.findState(name)
	switch {
	case st == nil:
	case st.noteWanted(epoch):
		s.core.Cleaner.Do(st.stopLingering)
	default:
		s.putState(st)
	}
}

// Reconnected makes up for the messages about locks that were lost while the channel was closed.
func (s *Room) Reconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.states {
		st.reconnected()
	}
}

// Len returns how many locks have lock states.
func (s *Room) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.states)
}

// Usage returns how many locks are held, and how many owners wait.
func (s *Room) Usage() (held, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.states {
		if st.hasHolder() {
			held++
		}
		waiting += st.Queue.Queued()
	}
	return held, waiting
}

// HeldNames returns the names of the locks that are held, and whether the room is closed.
func (s *Room) HeldNames() (names []string, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, st := range s.states {
		if st.hasHolder() {
			names = append(names, name)
		}
	}
	return names, s.closed
}

// hasHolder reports whether an owner has holds, lost ones included, and has not left them to a clean-up.
func (st *State) hasHolder() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	_, has := st.Queue.Holder()
	return has && st.cleaning == nil
}

// StartClosing makes all calls fail but those of holders. It reports whether it is the first to do so, and whether no
// lock was in use then.
func (s *Room) StartClosing() (first, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, false
	}
	s.closed = true
	close(s.core.Closing)
	if len(s.states) == 0 {
		close(s.drained)
	}
	for _, st := range s.states {
		st.Queue.Shut()
		if st.startDismissal() {
			st.refs++
			s.core.Cleaner.Do(st.stopLingering)
		}
	}
	return true, len(s.states) == 0
}
