// Package share is the session's part in shared holds: read-write locks and semaphores.
//
// A session holds units of a name: a reader 1, a writer all of them, a semaphore's user as many as it wants. It has them
// once for all its goroutines, hands them out in the local tier (package sharedqueue) without a command, and gives them
// back when another session waits.
//
//	users ──▶ Tier ── look ──▶ Name.run ── Share ──▶ server
//	  ▲        ▲                  │ plan               │
//	  │        └──── settle ◀─────┴──── answer, push ◀─┘
//	  └── lost ◀──── keeper: renewals, and the end of trust
//
// One goroutine per name sends its commands, one at a time, while there is something to send. What it says next is decided
// in one place, [Name.plan], from what the session has and what its users want. A later epoch takes the place of one that
// waits; from then on nothing that is said about the earlier one counts.
package share

import (
	"context"
	"sync"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/sharedqueue"
)

// A Tier is the local tier of one name: who is inside and who waits, in one session. It has a mutex of its own, a leaf
// below the name's.
type Tier interface {
	// Settle replaces what the session has and admits those who fit.
	Settle(t sharedqueue.Terms)
	// Trust prolongs the lease of what it has.
	Trust(until time.Duration)
	// Ask begins a turn: another session waits, and this one may keep so many units.
	Ask(may, passes int, turnEnd time.Duration)
	// Keep takes units out of use, all but so many or those that are in use, and returns how many are left. used is the
	// last token that a writer used of the present block, 0 if none.
	Keep(units int) (kept int, used backend.Token)
	// Lose takes everything from all users. The returned function tells them; it is called without any mutex.
	Lose(why string) (tell func())
	// EndTries ends those waits which last for one attempt only and need so many units or more.
	EndTries(need int)
	// Expel ends the present waits; Shut those of the future too.
	Expel()
	Shut()
	Look() sharedqueue.State
	// Rest reports whether nothing was inside or came since the last call.
	Rest() bool
	Idle() bool
	// Usage reports whether users are inside, and returns how many wait.
	Usage() (inside bool, waiting int)
}

// An Env is what the rooms's session provides. All functions can be called from any goroutine and do not block.
type Env struct {
	Lease, Heartbeat, Patience, GrantTTL, Command time.Duration

	Passes int           // the most local admissions of a turn
	Turn   time.Duration // and its length

	Opened time.Time                                  // the zero of Terms.Until
	Jitter func(most time.Duration) time.Duration     //
	Ahead  func() time.Duration                       // how far the wall clock is ahead of the monotonic one
	Epoch  func(above uint64) uint64                  // a new epoch, above that one
	Seen   func() backend.Token                       // the highest token got
	Saw    func(backend.Token)                        //
	Asked  func(err error) error                      // wraps what a command failed with
	Renew  func(context.Context, []backend.Renewal)   // of the connection
	Notice func(name string, failing bool, err error) // a renewal failed, or works again
	Count  func(commands, renewals int)               //
}

// A Room is all shared names of a session.
//
// Lock order: Room.mu, Name.mu, the tier's own.
type Room struct {
	env    Env
	keeper *keeper
	quit   context.Context // ends when nothing is sent any more
	stop   context.CancelFunc

	mu      sync.Mutex
	names   map[string]*Name
	known   map[string]backend.Token // of names that were retired: Name.known, of some at least
	closed  bool                     // no new names
	drained chan struct{}            // closed when closed and no name is left

	actors sync.WaitGroup
}

// NewRoom returns a room without names. Nothing runs in it until a name is joined.
func NewRoom(env Env) *Room {
	r := &Room{env: env, names: make(map[string]*Name), known: make(map[string]backend.Token), drained: make(chan struct{})}
	r.quit, r.stop = context.WithCancel(context.Background())
	r.keeper = newKeeper(r)
	return r
}

// Join returns the name with one more reference, and makes it if there is none. It returns nil if there is none and the
// room is closed. The caller calls Leave.
func (r *Room) Join(name string, kind backend.ShareKind, remote backend.Remote, tier func() Tier) *Name {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.names[name]
	if n == nil {
		if r.closed {
			return nil
		}
		n = &Name{room: r, name: name, kind: kind, remote: remote, sharer: remote.(backend.Sharer), limit: backend.AllUnits,
			wake: make(chan struct{}, 1), tier: tier()}
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

// retireLocked forgets a name that the session has nothing of. r.mu is held.
func (r *Room) retireLocked(n *Name) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refs > 0 || n.retired.Load() || n.running || n.units > 0 || n.claim != nil || n.owes || !n.tier.Idle() {
		return
	}
	n.retired.Store(true)
	delete(r.names, n.name)
	r.rememberLocked(n)
	if r.closed && len(r.names) == 0 {
		close(r.drained)
	}
}

// mostKnown is of how many retired names a room remembers the highest token.
const mostKnown = 1024

// rememberLocked keeps what a name that is retired has known, and forgets another one if there are too many. r.mu and n.mu
// are held.
func (r *Room) rememberLocked(n *Name) {
	if n.known == 0 || n.kind != backend.ReadWrite {
		return
	}
	for other := range r.known {
		if len(r.known) < mostKnown {
			break
		}
		delete(r.known, other)
	}
	r.known[n.name] = n.known
}

// recallLocked gives a new name what it has known. r.mu is held, and the name is not shared yet.
func (r *Room) recallLocked(n *Name) {
	if n.kind == backend.ReadWrite {
		n.known = r.known[n.name]
		delete(r.known, n.name)
	}
}

// Find returns the name if the session has something about it, without a reference.
func (r *Room) Find(name string) *Name {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.names[name]
}

// Len is how many names the session has something about.
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

// Usage returns how many names users are inside of, and how many users wait.
func (r *Room) Usage() (held, waiting int) {
	for _, n := range r.all() {
		inside, waits := n.tier.Usage()
		if waiting += waits; inside {
			held++
		}
	}
	return held, waiting
}

// Granted takes in a push.
func (r *Room) Granted(g backend.ShareGrant) {
	if n := r.Find(g.Name); n != nil {
		n.pushed(g)
	}
}

// Wanted takes in that another session waits for units of a name.
func (r *Room) Wanted(name string, may int) {
	if n := r.Find(name); n != nil {
		n.wanted(may)
	}
}

// Reconnected has every claim sent again and every lease renewed: what was pushed meanwhile is lost, and there may be another
// server now.
func (r *Room) Reconnected() {
	for _, n := range r.all() {
		n.repeat()
	}
	r.keeper.refresh()
}

// Close turns away all who have nothing, and reports whether no one had. Users who are inside go on; what falls free goes
// back.
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

// Drained is closed when the room is closed and has nothing of any name.
func (r *Room) Drained() <-chan struct{} { return r.drained }

// Abandon takes from all users what they have. It returns how many names had some.
func (r *Room) Abandon() (names int) {
	for _, n := range r.all() {
		if n.abandon() {
			names++
		}
	}
	return names
}

// Stop ends everything in a room that was closed. It waits for commands that are under way.
func (r *Room) Stop() {
	r.stop()
	for _, n := range r.all() {
		n.halt() // so that none starts beside the Wait
	}
	r.actors.Wait()
	r.keeper.wait()
}
