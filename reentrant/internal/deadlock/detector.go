// Package deadlock finds cycles of owners that wait for each other's locks, in one session and across sessions.
package deadlock

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/petermattis/goid"

	"github.com/relock-go/relock/backend"
)

// An Owner is an owner of the detector's session.
type Owner interface {
	comparable
	fmt.Stringer
}

// A Session is what a detector asks about: its own session's holds, and what the other sessions have on record. Holds
// that end by themselves are no part of a deadlock, and left out.
type Session[O Owner] interface {
	ID() string
	Holder(lock string) (O, bool)                                            // who has a lock until it unlocks
	Held() map[O][][]byte                                                    // the locks that each owner has until it unlocks
	Inspect(ctx context.Context, lock string) (backend.State, error)         // asks the backend who has a lock
	Register(ctx context.Context, text string) error                         // puts this session's record where others read it
	Registered(ctx context.Context, session string) (text string, err error) // reads a session's record
}

// A Cycle is a deadlock, the owner in question first: each waits for a lock that the next holds, the last for one of the
// first's.
type Cycle []Link

// A Link is one owner of a cycle.
type Link struct {
	Session, Owner string
	Lock           string // that the owner waits for
	Stack          string // of its goroutine, if it is of this process
}

// A Detector finds cycles of owners that wait for each other.
//
// Within the session that is exact and at once: who is about to wait says so, and then looks whether its wait closes
// a cycle; the last one to begin its wait sees all the others'.
//
// Across sessions it takes a few heartbeats. Every heartbeat a session puts on record which of its owners have waited
// since the last one while they hold something, and follows each of them: who holds the lock that it waits for, what
// does that one wait for, and so on. What is on record may be over, so a cycle counts when it is seen again after
// every session in it has renewed its record. All of them see it; the wait that ends is that of the greatest session and
// owner. A session whose owners do not wait while they hold something sends nothing.
type Detector[O Owner] struct {
	s         Session[O]
	heartbeat time.Duration
	timeout   time.Duration // of a heartbeat's commands
	quit      chan struct{}
	done      sync.WaitGroup

	mu    sync.Mutex    // taken before all others
	waits map[O][]*Wait // those that have no time limit; goroutines that share an owner have one each
	last  uint64        // the latest one's id

	// The goroutine's own.
	beat       uint64
	registered bool             // there is a record of this session
	suspect    map[uint64]chain // what the last heartbeats saw, as it was at first, by the id of the wait
}

// A Wait is an owner that waits for a lock.
type Wait struct {
	id        uint64
	lock      string
	goroutine int64
	beats     int // heartbeats that it has lasted
	end       func(Cycle)
}

// New returns a detector for a session.
func New[O Owner](s Session[O], heartbeat, timeout time.Duration) *Detector[O] {
	return &Detector[O]{s: s, heartbeat: heartbeat, timeout: timeout, quit: make(chan struct{}), waits: make(map[O][]*Wait)}
}

// Start begins to look for cycles across sessions. It is called once at most, if the backend keeps records.
func (d *Detector[O]) Start() { d.done.Go(d.watch) }

// Stop ends what Start began.
func (d *Detector[O]) Stop() {
	close(d.quit)
	d.done.Wait()
}

// Begin notes that the calling goroutine is about to wait for a lock without a time limit, as an owner. If that would close
// a cycle in this session it returns the cycle, and notes nothing. end is called if the wait turns out to be part of a
// cycle across sessions that it is to break.
func (d *Detector[O]) Begin(owner O, lock string, end func(Cycle)) (*Wait, Cycle) {
	w := &Wait{lock: lock, goroutine: goid.Get(), end: end}
	if c := d.add(owner, w); c != nil {
		return nil, c.cycle()
	}
	return w, nil
}

func (d *Detector[O]) add(owner O, w *Wait) chain {
	d.mu.Lock()
	defer d.mu.Unlock()
	if cycle := d.cycleLocked(owner, w); len(cycle) > 1 {
		return cycle
	}
	d.last++
	w.id = d.last
	d.waits[owner] = append(d.waits[owner], w)
	return nil
}

// End takes a wait off. Begin returned it.
func (d *Detector[O]) End(owner O, w *Wait) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waits[owner] = slices.DeleteFunc(d.waits[owner], func(x *Wait) bool { return x == w })
	if len(d.waits[owner]) == 0 {
		delete(d.waits, owner)
	}
}

// cycleLocked is the chain from a wait that is about to begin back to its owner, nil if there is none. It is one link
// long for a lock that is the owner's own, which may re-enter it.
func (d *Detector[O]) cycleLocked(owner O, w *Wait) chain {
	seen := make(map[O]bool) // whose waits do not lead there
	var chase func(blocked O, w *Wait, c chain) chain
	chase = func(blocked O, w *Wait, c chain) chain {
		c = append(c, link{blocked: Link{Session: d.s.ID(), Owner: blocked.String(), Lock: w.lock}, goroutine: w.goroutine})
		holder, held := d.s.Holder(w.lock)
		if held && holder == owner {
			return c
		}
		if !held || seen[holder] {
			return nil
		}
		seen[holder] = true
		for _, next := range d.waits[holder] {
			if cycle := chase(holder, next, c); cycle != nil {
				return cycle
			}
		}
		return nil
	}
	return chase(owner, w, nil)
}

// goroutineStacks are the stacks of all goroutines, by id.
func goroutineStacks() map[int64]string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	stacks := make(map[int64]string)
	for text := range bytes.SplitSeq(buf, []byte("\n\n")) {
		fields := bytes.Fields(text[:min(len(text), 64)])
		if len(fields) > 1 {
			if id, err := strconv.ParseInt(string(fields[1]), 10, 64); err == nil {
				stacks[id] = string(text)
			}
		}
	}
	return stacks
}

// cycle describes a chain, with the stacks of this process's goroutines.
func (c chain) cycle() Cycle {
	stacks := goroutineStacks()
	var cycle Cycle
	for _, l := range c {
		l.blocked.Stack = stacks[l.goroutine]
		cycle = append(cycle, l.blocked)
	}
	return cycle
}
