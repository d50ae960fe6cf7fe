package reentrant

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/petermattis/goid"

	"github.com/relock-go/relock/backend"
)

// A DeadlockError ends the wait of an owner that would wait for ever: for a lock whose holder waits for a lock whose
// holder … waits for one that the owner holds. The caller still holds what it held: to let the others go on it must
// give that up. A cycle that a hold with a fixed lease is part of ends by itself, and is not reported.
type DeadlockError struct {
	Cycle []Blocked // the caller first; each waits for a lock that the next holds, the last for one of the caller's
	_     struct{}
}

// Blocked is one owner of a cycle.
type Blocked struct {
	Session string
	Owner   string // as Owner.String prints it
	Lock    string // that it waits for
	Stack   string // of its goroutine, if it is of this process
	_       struct{}
}

func (e *DeadlockError) Error() string {
	var text strings.Builder
	text.WriteString("deadlock")
	for i, b := range e.Cycle {
		next := e.Cycle[(i+1)%len(e.Cycle)]
		fmt.Fprintf(&text, "; owner %s of session %s waits for %q, which owner %s of session %s holds",
			b.Owner, b.Session, b.Lock, next.Owner, next.Session)
	}
	return text.String()
}

// A detector finds cycles of owners that wait for each other.
//
// Within the session that is exact and at once: who is about to wait says so, and then looks whether its wait closes
// a cycle; the last one to begin its wait sees all the others'.
//
// Across sessions it takes a few heartbeats. Every heartbeat a session puts on record which of its owners have waited
// since the last one while they hold something, and follows each of them: who holds the lock that it waits for, what
// does that one wait for, and so on. What is on record may be over, so a cycle counts when it is seen again after
// everybody in it has renewed its record. All of them see it; the wait that ends is that of the greatest session and
// owner. A session whose owners do not wait while they hold something sends nothing.
type detector struct {
	s        *session
	registry backend.Registry
	quit     chan struct{}
	done     sync.WaitGroup

	mu    sync.Mutex        // taken before all others
	waits map[Owner][]*wait // those that have no time limit; goroutines that share an owner have one each
	last  uint64            // the latest one's id

	// The goroutine's own.
	beat       uint64
	registered bool             // there is a record of this session
	suspect    map[uint64]chain // what the last heartbeats saw, as it was at first, by the id of the wait
}

// A wait is an owner that is in Lock.
type wait struct {
	id        uint64
	lock      string
	goroutine int64
	beats     int // heartbeats that it has lasted
	end       context.CancelCauseFunc
}

// maxChain bounds how many owners a cycle over several sessions may have.
const maxChain = 16

func newDetector(s *session) *detector {
	registry, _ := s.conn.(backend.Registry)
	return &detector{s: s, registry: registry, quit: make(chan struct{}), waits: make(map[Owner][]*wait)}
}

func (d *detector) start() {
	if d.registry != nil {
		d.done.Go(d.watch)
	}
}

func (d *detector) stop() {
	close(d.quit)
	d.done.Wait()
}

// takeWatched is take for a wait that nothing but its end can end.
func (d *detector) takeWatched(ctx context.Context, l *Lock, t try) (bool, error) {
	owner, err := l.admit(ctx)
	if err != nil {
		return false, err
	}
	watched, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &wait{lock: l.name, goroutine: goid.Get(), end: cancel}
	if err := d.begin(owner, w); err != nil {
		return false, err
	}
	ok, err := l.take(watched, t)
	d.remove(owner, w)
	if deadlock, ok := errors.AsType[*DeadlockError](context.Cause(watched)); ok && err != nil && ctx.Err() == nil {
		err = deadlock
	}
	return ok, err
}

// begin notes a wait, unless it would close a cycle.
func (d *detector) begin(owner Owner, w *wait) error {
	if cycle := d.add(owner, w); cycle != nil {
		return d.error(cycle)
	}
	return nil
}

func (d *detector) add(owner Owner, w *wait) chain {
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

func (d *detector) remove(owner Owner, w *wait) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waits[owner] = slices.DeleteFunc(d.waits[owner], func(x *wait) bool { return x == w })
	if len(d.waits[owner]) == 0 {
		delete(d.waits, owner)
	}
}

// cycleLocked is the chain from a wait that is about to begin back to its owner, nil if there is none. It is one link
// long for a lock that is the owner's own, which may re-enter it.
func (d *detector) cycleLocked(owner Owner, w *wait) chain {
	seen := make(map[Owner]bool) // whose waits do not lead there
	var chase func(blocked Owner, w *wait, c chain) chain
	chase = func(blocked Owner, w *wait, c chain) chain {
		c = append(c, link{blocked: Blocked{Session: d.s.id, Owner: blocked.String(), Lock: w.lock}, goroutine: w.goroutine})
		holder, held := d.s.holder(w.lock)
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

// holder is the owner of this session that has a lock, unless its hold ends by itself.
func (s *session) holder(name string) (owner Owner, held bool) {
	if e := s.findState(name); e != nil {
		owner, held = e.unboundedHolder()
		s.putState(e, 1)
	}
	return owner, held
}

// unboundedHolder is the owner that has the lock until it unlocks. A hold of a fixed lease and a lost one end by
// themselves: a wait for them is no part of a deadlock.
func (e *lockState) unboundedHolder() (Owner, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	owner, held := e.queue.Holder()
	return owner, held && e.hold.owned() && !e.hold.lease.Fixed()
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

// ---- across sessions

// A record is what a session tells the others: those of its owners that wait and hold something.
type record struct {
	Beat  uint64
	Waits []recorded
}

type recorded struct {
	Owner, Lock []byte
	Number      uint64 // of the wait
	Holds       [][]byte

	goroutine int64
}

// A chain is what leads from an owner back to itself, link by link.
type chain []link

type link struct {
	blocked   Blocked
	goroutine int64 // if it is of this session
	wait      uint64
	beat      uint64 // of its session's record; 0 for this session
}

// same tells whether a chain leads over the same waits as before.
func (c chain) same(before chain) bool {
	return slices.EqualFunc(c, before, func(now, then link) bool {
		return now.blocked == then.blocked && now.wait == then.wait
	})
}

// renewed tells whether every record on the way of the same chain has been renewed since.
func (c chain) renewed(before chain) bool {
	return slices.EqualFunc(c, before, func(now, then link) bool { return now.beat == 0 || now.beat > then.beat })
}

// victim is the link whose wait ends, so that all sessions agree.
func (c chain) victim() Blocked {
	return slices.MaxFunc(c, func(a, b link) int {
		return strings.Compare(a.blocked.Session+":"+a.blocked.Owner, b.blocked.Session+":"+b.blocked.Owner)
	}).blocked
}

func (d *detector) watch() {
	ticker := time.NewTicker(d.s.config.heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			d.look()
		case <-d.quit:
			return
		}
	}
}

// look is one heartbeat: it renews the record, and follows everybody on it.
func (d *detector) look() {
	own, waits := d.own()
	if len(own.Waits) == 0 && !d.registered {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.s.config.commandTimeout())
	defer cancel()
	if !d.register(ctx, own) {
		return
	}
	suspect := make(map[uint64]chain)
	v := view{records: map[string]record{d.s.id: own}, holders: make(map[string]holder)}
	for w, owner := range waits {
		c, before := d.follow(ctx, owner, w, &v), d.suspect[w.id]
		switch {
		case len(c) == 0:
		case !c.same(before):
			suspect[w.id] = c
		case !c.renewed(before): // sessions do not renew at the same moment of each heartbeat
			suspect[w.id] = before
		case c.victim().Session == d.s.id && c.victim().Owner == owner.String():
			w.end(d.error(c))
		}
	}
	d.suspect = suspect
}

// own is this session's record, and the waits that are on it.
func (d *detector) own() (record, map[*wait]Owner) {
	held := d.s.heldLocks()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.beat++
	r := record{Beat: d.beat}
	waits := make(map[*wait]Owner)
	for owner, list := range d.waits {
		for _, w := range list {
			if w.beats++; w.beats > 1 && len(held[owner]) > 0 {
				waits[w] = owner
				r.Waits = append(r.Waits, recorded{[]byte(owner.String()), []byte(w.lock), w.id, held[owner], w.goroutine})
			}
		}
	}
	return r, waits
}

// heldLocks is what each owner of the session holds until it unlocks.
func (s *session) heldLocks() map[Owner][][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(map[Owner][][]byte)
	for name, e := range s.states {
		if owner, ok := e.unboundedHolder(); ok {
			held[owner] = append(held[owner], []byte(name))
		}
	}
	return held
}

// register puts the record where others can read it, or takes it away when it has become empty.
func (d *detector) register(ctx context.Context, own record) bool {
	text := ""
	if len(own.Waits) > 0 {
		data, _ := json.Marshal(own) // of strings and numbers: it cannot fail
		text = string(data)
	}
	d.s.stats.commands.Add(1)
	err := d.registry.Register(ctx, text, d.s.config.patience())
	d.registered = text != "" || err != nil
	return err == nil
}

// A view is what a session has read, at one heartbeat, of who waits for whom: each lock and each record once.
type view struct {
	records map[string]record
	holders map[string]holder
	seen    map[string]bool // locks that do not lead back to the wait that is followed
}

// A holder is who holds a lock: the session, and those of its owner's waits that are on record.
type holder struct {
	session string
	waits   []recorded
}

// follow is the chain from a wait back to its owner, nil if it does not lead there.
func (d *detector) follow(ctx context.Context, owner Owner, w *wait, v *view) chain {
	v.seen = make(map[string]bool)
	first := link{blocked: Blocked{Session: d.s.id, Owner: owner.String(), Lock: w.lock}, wait: w.id, goroutine: w.goroutine}
	return d.extend(ctx, chain{first}, v)
}

// extend is the cycle that begins with a chain, nil if there is none.
func (d *detector) extend(ctx context.Context, c chain, v *view) chain {
	lock := c[len(c)-1].blocked.Lock
	if len(c) > maxChain || v.seen[lock] {
		return nil
	}
	v.seen[lock] = true
	h := d.holder(ctx, lock, v)
	for _, r := range h.waits {
		b := Blocked{Session: h.session, Owner: string(r.Owner), Lock: string(r.Lock)}
		if b == c[0].blocked {
			return c
		}
		next := link{blocked: b, wait: r.Number, beat: v.records[h.session].Beat}
		if h.session == d.s.id {
			next.beat, next.goroutine = 0, r.goroutine
		}
		if cycle := d.extend(ctx, append(c, next), v); cycle != nil {
			return cycle
		}
	}
	return nil
}

// holder is who holds a lock, as far as that is on record.
func (d *detector) holder(ctx context.Context, lock string, v *view) holder {
	h, known := v.holders[lock]
	if !known {
		h = d.ask(ctx, lock, v)
		v.holders[lock] = h
	}
	return h
}

// ask asks Redis who holds a lock.
func (d *detector) ask(ctx context.Context, lock string, v *view) (h holder) {
	remote, err := d.s.conn.Bind(lock)
	if err != nil {
		return h
	}
	d.s.stats.commands.Add(1)
	st, err := remote.Inspect(ctx)
	if err != nil || !st.Locked {
		return h
	}
	r, known := v.records[st.Session]
	if !known {
		d.s.stats.commands.Add(1)
		text, err := d.registry.Registered(ctx, st.Session)
		if err != nil || text == "" || json.Unmarshal([]byte(text), &r) != nil {
			return h
		}
		v.records[st.Session] = r
	}
	// Redis does not know which owner of a cohort has the lock; its session does.
	h.session = st.Session
	for _, w := range r.Waits {
		if slices.ContainsFunc(w.Holds, func(name []byte) bool { return string(name) == lock }) {
			h.waits = append(h.waits, w)
		}
	}
	return h
}

// error describes a chain, the caller's link first.
func (d *detector) error(c chain) error {
	stacks := goroutineStacks()
	e := &DeadlockError{}
	for _, l := range c {
		l.blocked.Stack = stacks[l.goroutine]
		e.Cycle = append(e.Cycle, l.blocked)
	}
	return e
}
