// Package condition is the session's part in the conditions of locks and of write sides: the tickets of owners that wait,
// the beats that show Redis that they are alive, and the wait itself.
package condition

import "github.com/relock-go/relock/reentrant/internal/core"

// A Room has the waiters of one session.
type Room struct {
	core      *core.Session
	heartbeat *heartbeat
}

// NewRoom returns a room without waiters. Nothing runs in it until Start.
func NewRoom(s *core.Session) *Room {
	return &Room{core: s, heartbeat: newHeartbeat(s)}
}

// Start starts the heartbeat. The session has a connection by now.
func (r *Room) Start() { r.heartbeat.start() }

// Stop ends it. It waits for commands that are under way.
func (r *Room) Stop() { r.heartbeat.stop() }

// Reconnected makes up for the signals whose messages were lost while the channel was closed.
func (r *Room) Reconnected() { r.heartbeat.beatNow() }

// Add beats for a ticket from now on.
func (r *Room) Add(t *Ticket) { r.heartbeat.add(t) }

// Acknowledge acknowledges a ticket's signal with the next beat.
func (r *Room) Acknowledge(t *Ticket) { r.heartbeat.acknowledge(t) }

// Remove forgets a ticket: it was withdrawn, or its owner could not come back, and the signal goes to another waiter.
func (r *Room) Remove(t *Ticket) { r.heartbeat.remove(t) }
