// Package condition is the session's part in the conditions of locks and of write sides: the tickets of owners that wait,
// the beats that show Redis that they are alive, the wait itself, and the lock that goes with the conditions of a write side.
package condition

import (
	"sync"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
)

// A Room has the waiters of one session.
type Room struct {
	core      *core.Session
	heartbeat *heartbeat

	mu       sync.Mutex          // a leaf: no other mutex is locked under it
	monitors map[string]*Monitor // the monitors in use, by the names of their locks
	drained  chan struct{}       // closed when no monitor is in use any more; nil before Drained is called
}

// NewRoom returns a room without waiters. Nothing runs in it until Start.
func NewRoom(s *core.Session) *Room {
	return &Room{core: s, heartbeat: newHeartbeat(s), monitors: make(map[string]*Monitor)}
}

// Start starts the heartbeat. The session has a connection by now.
func (r *Room) Start() { r.heartbeat.start() }

// Stop ends the heartbeat, after a last beat.
func (r *Room) Stop() { r.heartbeat.stop() }

// Reconnected makes up for the signals whose messages were lost while the channel was closed.
func (r *Room) Reconnected() { r.heartbeat.beatNow() }

// Monitor returns the monitor of a read-write lock, and counts a reference to it. The caller drops the reference by Leave.
func (r *Room) Monitor(name string) (*Monitor, error) {
	name = backend.ConditionsOf(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.monitors[name]
	if m == nil {
		remote, err := r.core.Conn.Bind(name)
		if err != nil {
			return nil, err
		}
		m = &Monitor{room: r, remote: remote, conditions: remote.(backend.Conditions), turn: make(chan struct{}, 1), grant: make(chan struct{}, 1)}
		r.monitors[name] = m
	}
	m.refs++
	return m, nil
}

// Leave drops a reference to the monitor. A monitor without references is no longer in use.
func (m *Monitor) Leave() {
	r := m.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.refs--; m.refs > 0 {
		return
	}
	delete(r.monitors, m.remote.Name())
	if r.drained != nil && len(r.monitors) == 0 {
		close(r.drained)
		r.drained = nil
	}
}

// find returns the monitor whose lock has a name, nil if none is in use.
func (r *Room) find(name string) *Monitor {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.monitors[name]
}

// Drained returns a channel that is closed when no monitor is in use. It is called by one goroutine.
func (r *Room) Drained() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	drained := make(chan struct{})
	if len(r.monitors) == 0 {
		close(drained)
	} else {
		r.drained = drained
	}
	return drained
}

// Granted hands a grant to the monitor whose lock was granted. It returns false if nothing needs the grant, so that it must
// be released.
func (r *Room) Granted(g backend.Grant) (wanted bool) {
	m := r.find(g.Name)
	return m != nil && m.granted(g.Epoch)
}

// Signalled wakes the owner of a ticket, if a monitor whose lock has that name has the ticket. placed says that the server has
// also queued the session for the lock.
func (r *Room) Signalled(name string, ticket uint64, placed bool) {
	if m := r.find(name); m != nil {
		m.signalled(ticket, placed)
	}
}

// Waiting returns the owners that wait for a condition of a read-write lock, longest first.
func (r *Room) Waiting(lock, condition string) []core.Owner {
	if m := r.find(backend.ConditionsOf(lock)); m != nil {
		return m.waiting(condition)
	}
	return nil
}
