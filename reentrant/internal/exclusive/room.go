// Package exclusive is the engine of the lock that one owner holds at a time. For each name it has a queue of the session's
// owners, and it records what the session has in Redis and which goroutine may act.
//
// Its callers are the locks of package reentrant, which check the arguments of a call first, and the session, which passes on
// the messages that the backend pushes.
package exclusive

import (
	"context"
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
	states  map[string]*State // the lock states in use, by name; each has refs > 0
	spares  []*State          // lock states to be used again, with their nodes, timers and channels
	closed  bool              // no new lock states are made
	drained chan struct{}     // closed when the room is closed and states is empty

	keeper     *keeper.Keeper
	conditions *condition.Room

	abandonedHolds atomic.Int64 // how many holds AbandonAll gave up
	leftHolds      atomic.Int64 // how many holds AbandonAll left in Redis, to be resumed
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

// GivenUp returns how many holds AbandonAll gave up, and how many it left in Redis to be resumed.
func (s *Room) GivenUp() (abandoned, left int) {
	return int(s.abandonedHolds.Load()), int(s.leftHolds.Load())
}

// UnboundedHolder returns the owner of a lock's hold, if the hold ends only when that owner unlocks.
func (s *Room) UnboundedHolder(name string) (owner core.Owner, held bool) {
	s.with(name, func(st *State) { owner, held = st.unboundedHolder() })
	return owner, held
}

// UnboundedHolders returns the owners that UnboundedHolder returns for all locks, each with the names of these locks.
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

// unboundedHolder returns the owner of the hold, if the hold ends only when that owner unlocks. A hold with a fixed lease
// and a lost hold end by themselves: a wait for such a hold is no part of a deadlock.
func (st *State) unboundedHolder() (core.Owner, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	owner, held := st.Queue.Holder()
	h := st.m.Hold()
	return owner, held && h.Owned() && !h.Lease.Fixed()
}

// HoldOf returns a copy of the hold on a lock, the zero Hold if there is none. It takes no reference to the lock state.
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

// holderOf returns who has a lock: an owner of this session, or otherwise the holder that the server names within limit.
func (s *Room) holderOf(name string, remote backend.Remote, limit time.Duration) core.Sighting {
	if seen, held := s.localHolder(name); held {
		return seen
	}
	return s.core.AskForHolder(context.Background(), remote, limit)
}

// Holder returns who has the handle's lock: an owner of this session, or the holder that the server names within limit.
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

// Granted hands a grant to the lock that was granted. It returns false if no attempt needs the grant, so that the lock must be
// released.
func (s *Room) Granted(g backend.Grant) (wanted bool) {
	s.with(g.Name, func(st *State) { wanted = st.granted(g) })
	return wanted
}

// Signalled wakes the owner of a ticket. placed says whether Redis has also queued the session for the lock. Signalled returns
// false if the session does not use a lock of that name.
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

// Reconnected makes up for the messages that were lost while the channel was closed.
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

// StartClosing makes all calls fail but those of holders. first reports whether this is the first call of StartClosing. If so,
// idle reports whether no lock was in use.
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
