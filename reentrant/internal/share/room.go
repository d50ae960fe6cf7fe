// Package share is the session's side of shared holds: read-write locks and semaphores.
// A session holds units of a name: 1 for its readers, all of them for a writer, any number for the users of a
// semaphore. It hands them out to its goroutines in the local tier (package sharedqueue), without a command, and gives
// them back when another session waits.
//
//	users ──▶ Tier ── look ──▶ Name.run ── Share ──▶ server
//	  ▲        ▲                  │ plan               │
//	  │        └──── settle ◀─────┴───── reply, push ◀─┘
//	  └── lost ◀──── keeper: renewals, and the end of trust
//
// One goroutine per name sends its commands, one at a time, while there is something to send. [plan.Plan] alone decides
// what to send next, from the units that the session has and those that its users want. A claim with a later epoch replaces
// one that waits; from then on replies to the earlier claim are ignored.
package share

import (
	"context"
	"sync"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/keeper"
	"github.com/relock-go/relock/reentrant/internal/share/plan"
)

// A Tier is the local tier of one name: the users of one session that are inside or wait. It has a mutex of its own,
// which may be locked while the mutex of the Name is held.
type Tier interface {
	plan.Tier
	// Shut ends the present waits, and later ones too.
	Shut()
	Idle() bool
	// Usage reports whether users are inside, and returns how many wait.
	Usage() (inside bool, waiting int)
	// Note returns the note of the user inside that came last with one, "" if none has one.
	Note() string
}

// A Room has all shared names of a session.
//
// Lock order: Room.mu, Name.mu, the tier's own.
type Room struct {
	session *core.Session
	options plan.Options
	keeper  *keeper.Keeper
	quit    context.Context // ends when the room sends no more commands
	stop    context.CancelFunc

	mu      sync.Mutex
	names   map[string]*Name
	known   map[string]backend.Token // the highest tokens of retired read-write locks, of mostKnown at most
	closed  bool                     // no new names
	drained chan struct{}            // closed when the room is closed and has no name left

	actors sync.WaitGroup
}

// NewRoom returns a room without names, whose turns have the given length. Nothing runs in it until a name is joined.
func NewRoom(s *core.Session, k *keeper.Keeper, turn time.Duration) *Room {
	r := &Room{session: s, keeper: k, options: optionsOf(s, turn), names: make(map[string]*Name), known: make(map[string]backend.Token), drained: make(chan struct{})}
	r.quit, r.stop = context.WithCancel(context.Background())
	return r
}

func optionsOf(s *core.Session, turn time.Duration) plan.Options {
	c := &s.Config
	return plan.Options{
		Opened: s.Opened, Lease: c.Lease, Heartbeat: c.Heartbeat, CommandTimeout: c.CommandTimeout, Patience: c.Patience, GrantTTL: c.GrantTTL,
		Turn: turn, Jitter: c.Jitter, Pause: core.RetryPause, EpochAbove: s.EpochAbove, Saw: s.SawToken,
		Seen: func() backend.Token { return backend.Token(s.SeenToken.Load()) },
	}
}

// Join returns the name with one more reference, and creates it if necessary. If the room is closed and does not have the name,
// Join returns nil. The caller calls Leave later.
func (r *Room) Join(name string, kind backend.ShareKind, remote backend.Remote, tier func() Tier) *Name {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.names[name]
	if n == nil {
		if r.closed {
			return nil
		}
		n = &Name{room: r, name: name, kind: kind, remote: remote, sharer: remote.(backend.Sharer),
			plan: plan.New(kind), wake: make(chan struct{}, 1), tier: tier(), ref: new(Ref)}
		n.ref.name.Store(n)
		r.recallLocked(n)
		r.names[name] = n
	}
	n.refs++
	return n
}

// Leave drops a reference.
func (n *Name) Leave() {
	r := n.room
	r.mu.Lock()
	defer r.mu.Unlock()
	n.refs--
	r.retireLocked(n)
}

// retireLocked forgets a name that has no users, no units and no claim. The goroutine of the Name, if there is one, finds
// nothing to do and ends. Before it has ended, the name can be in use again, also as another kind. r.mu is held.
func (r *Room) retireLocked(n *Name) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refs > 0 || n.retired.Load() || !n.plan.Idle() || !n.tier.Idle() {
		return
	}
	n.retired.Store(true)
	delete(r.names, n.name)
	r.rememberLocked(n)
	if r.closed && len(r.names) == 0 {
		close(r.drained)
	}
	n.ref.name.Store(nil)
	n.wakeLocked()
}

// mostKnown is how many retired names' highest tokens a room remembers.
const mostKnown = 1024

// rememberLocked keeps the highest token of a name that is retired, and forgets the tokens of other names if there are too
// many. r.mu and n.mu are held.
func (r *Room) rememberLocked(n *Name) {
	known := n.plan.Known()
	if known == 0 || n.kind != backend.ReadWrite {
		return
	}
	for other := range r.known {
		if len(r.known) < mostKnown {
			break
		}
		delete(r.known, other)
	}
	r.known[n.name] = known
}

// recallLocked gives a new name the highest token that was remembered for it. r.mu is held, and no other goroutine has
// n yet.
func (r *Room) recallLocked(n *Name) {
	if n.kind == backend.ReadWrite {
		n.plan.Recall(r.known[n.name])
		delete(r.known, n.name)
	}
}

// Find returns the name, without a reference, or nil if the room has none.
func (r *Room) Find(name string) *Name {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.names[name]
}

// Len returns the number of names in the room.
func (r *Room) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.names)
}

func (r *Room) all() []*Name {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*Name, 0, len(r.names))
	for _, n := range r.names {
		all = append(all, n)
	}
	return all
}

// Held returns the names with users inside.
func (r *Room) Held() (names []string) {
	for _, n := range r.all() {
		if inside, _ := n.tier.Usage(); inside {
			names = append(names, n.name)
		}
	}
	return names
}

// Usage returns the number of names with users inside, and the number of users that wait.
func (r *Room) Usage() (held, waiting int) {
	for _, n := range r.all() {
		inside, waits := n.tier.Usage()
		if waiting += waits; inside {
			held++
		}
	}
	return held, waiting
}

// Granted handles a grant that the server pushed.
func (r *Room) Granted(g backend.ShareGrant) {
	if n := r.Find(g.Name); n != nil {
		n.pushed(g)
	}
}

// Wanted handles the message that another session waits for units of a name, or tries to get some.
func (r *Room) Wanted(name string, keepAtMost int, try uint64) {
	if n := r.Find(name); n != nil {
		n.wanted(keepAtMost, try)
	}
}

// Reconnected sends every claim again, since messages may have been lost, and the server may be another one now.
func (r *Room) Reconnected() {
	for _, n := range r.all() {
		n.repeat()
	}
}

// Close expels the waiters and later claims, and reports whether no user was inside or waited. Users that are inside go
// on; the units go back to the server as they leave.
func (r *Room) Close() (idle bool) {
	r.mu.Lock()
	r.closed = true
	if len(r.names) == 0 {
		close(r.drained)
	}
	r.mu.Unlock()
	idle = true
	for _, n := range r.all() {
		idle = n.shut() && idle
	}
	return idle
}

// Drained returns a channel that is closed when the room is closed and has no name left.
func (r *Room) Drained() <-chan struct{} { return r.drained }

// Abandon takes the units from all users, and returns how many names had units in use.
func (r *Room) Abandon() (names int) {
	for _, n := range r.all() {
		if n.abandon() {
			names++
		}
	}
	return names
}

// Refusal returns the server's refusal of the latest command about a name, nil if none was refused.
func (r *Room) Refusal() error {
	for _, n := range r.all() {
		if err := n.refusal(); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends the goroutines of a room that was closed. It waits for commands that are under way.
func (r *Room) Stop() {
	r.stop()
	for _, n := range r.all() {
		n.halt() // so that no goroutine starts during the Wait
	}
	r.actors.Wait()
}
