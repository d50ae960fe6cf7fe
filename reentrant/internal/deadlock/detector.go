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

// A Session gives a detector its own session's holds and the other sessions' records. Holds with a fixed lease are left
// out: they end by themselves, so they cannot keep a deadlock alive.
type Session[O Owner] interface {
	ID() string
	Holder(lock string) (O, bool)                                            // the owner that holds a lock until it unlocks
	Held() map[O][][]byte                                                    // the locks that each owner holds until it unlocks
	Inspect(ctx context.Context, lock string) (backend.State, error)         // reads a lock's state from the backend
	Register(ctx context.Context, text string) error                         // publishes this session's record
	Registered(ctx context.Context, session string) (text string, err error) // reads a session's record
}

// A Cycle is a deadlock, as its owners in order: each waits for a lock that the next holds, and the last for one that
// the first holds. The owner whose wait revealed it comes first.
type Cycle []Link

// A Link is one owner of a cycle.
type Link struct {
	Session, Owner string
	Lock           string // the lock that the owner waits for
	Stack          string // of the goroutine that waits; "" if the owner is another session's
}

// A Detector finds cycles of owners that wait for each other.
// Within a session it finds them exactly and at once: each owner records its wait and checks in the same step whether
// the wait closes a cycle, so the last owner to begin its wait sees all the others.
//
// Across sessions it takes a few heartbeats. At every heartbeat a session publishes which of its owners have waited
// since the last heartbeat while holding a lock, and follows each of these waits: which owner holds the lock, which lock that
// owner waits for, and so on. A recorded wait may be over, so a cycle counts only when it is seen again after every session in
// it has renewed its record. All sessions of a cycle see it. The wait that ends is that of the owner whose "session:owner"
// sorts last. A session whose owners do not wait while they hold a lock sends nothing.
type Detector[O Owner] struct {
	s         Session[O]
	heartbeat time.Duration
	timeout   time.Duration // of a heartbeat's commands
	quit      chan struct{}
	done      sync.WaitGroup

	mu    sync.Mutex    // taken before all others
	waits map[O][]*Wait // waits without a time limit; goroutines that share an owner have one each
	last  uint64        // id of the latest wait

	// Used by the goroutine of run alone.
	beat       uint64
	registered bool             // there is a record of this session
	suspect    map[uint64]chain // by wait id: a cycle that was seen and is not confirmed yet, as first seen
}

// A Wait is an owner that waits for a lock.
type Wait struct {
	id        uint64
	lock      string
	goroutine int64
	beats     int // heartbeats since it began
	end       func(Cycle)
}

// New returns a detector for a session.
func New[O Owner](s Session[O], heartbeat, timeout time.Duration) *Detector[O] {
	return &Detector[O]{s: s, heartbeat: heartbeat, timeout: timeout, quit: make(chan struct{}), waits: make(map[O][]*Wait)}
}

// Start begins to look for cycles across sessions. It is called at most once, and only if the backend keeps records.
func (d *Detector[O]) Start() { d.done.Go(d.run) }

// Stop ends what Start began.
func (d *Detector[O]) Stop() {
	close(d.quit)
	d.done.Wait()
}

// Begin records that the calling goroutine is about to wait for a lock, for owner and without a time limit. If the wait
// would close a cycle in this session, Begin records nothing and returns the cycle. end is called later if the wait is
// part of a cycle across sessions and is the one to end.
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

// End removes a wait that Begin returned.
func (d *Detector[O]) End(owner O, w *Wait) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waits[owner] = slices.DeleteFunc(d.waits[owner], func(x *Wait) bool { return x == w })
	if len(d.waits[owner]) == 0 {
		delete(d.waits, owner)
	}
}

// cycleLocked returns the cycle that a wait would close, nil if there is none. A cycle of one link means that owner
// holds the lock itself; that is a re-entry and no deadlock. d.mu is held.
func (d *Detector[O]) cycleLocked(owner O, w *Wait) chain {
	seen := make(map[O]bool) // owners whose waits do not lead back to owner
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

// goroutineStacks returns the stacks of all goroutines, by id.
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
