package sharedqueue

import (
	"sync/atomic"
	"time"
)

// An RW is the part of a read-write lock that stays in the process: readers and a writer, keyed by their owners, under
// the units that the session has. O identifies the owners.
//
// Methods report look when the engine that talks to the server should call Look: what the session should keep, or what
// those in line need, is not what it was at the latest Look.
type RW[O comparable] struct {
	terms[O]

	// The read holds are in shards. While the queue is open, readers come and go in their shards alone.

	key     func(O) (hash, number uint64) // immutable
	shards  []shard[O]                    // immutable
	open    bool                          // guarded by mu
	calm    int                           // readers admitted under mu since the queue was closed. Guarded by mu.
	readers int                           // owners with read holds; right only while closed. Guarded by mu.

	// The writer. Guarded by mu.

	writer O
	writes int    // 0 without a writer
	token  uint64 // of the writer

	// Tokens. Guarded by mu.

	next, last uint64 // the block of tokens that is left: next, next+2 … last

	life atomic.Uint64 // how often Lose was called; written under mu, while the queue is closed

	// used is the last token that was used, as far as it is known: 0 after All came to a session without units. Written
	// under mu, while no owner reads; read by readers without it.
	used atomic.Uint64
}

// calmReads is how many readers are admitted under mu before readers are let in through the shards again. Opening and
// closing for each writer would cost more than it saves.
const calmReads = 8

// NewRW makes a queue for a session that has no units. now is the clock of Terms. key returns a hash, whose lowest bits
// spread the owners, and a number that no other owner has, below 1<<63; or 0 for an owner without one, which takes a little
// longer to enter. owner returns the owner with a number; it may be nil if no owner has one.
func NewRW[O comparable](now func() time.Duration, key func(O) (hash, number uint64), owner func(number uint64) O) *RW[O] {
	q := &RW[O]{key: key, shards: newShards(owner), next: 1}
	q.now = now
	return q
}

// shard returns the shard of an owner, and the owner's number.
func (q *RW[O]) shard(owner O) (s *shard[O], number uint64) {
	hash, number := q.key(owner)
	return &q.shards[hash&uint64(len(q.shards)-1)], number
}

// TryRead gives owner a read hold if that needs no wait. It overtakes no other owner in line, unless owner has a hold
// already. The outcome is [Admitted], [Reentered], [Busy], [TooMany] or, of a queue that is shut, [Expelled]. life is what
// [RW.Life] was when owner got the hold: it is lost when that has changed. For an owner with a number it may be of a later
// moment; a hold that is lost by then is no longer among its holds.
func (q *RW[O]) TryRead(owner O) (o Outcome, life uint64, look bool) {
	if o, life = q.readOpen(owner); o != Busy {
		return o, life, false
	}
	q.mu.Lock()
	o, life = q.claimLocked(nil, owner, Read), q.life.Load()
	return o, life, q.unlock(o)
}

// readOpen gives owner a read hold if the queue is open. Should the units be lost meanwhile, the queue is closed first.
func (q *RW[O]) readOpen(owner O) (o Outcome, life uint64) {
	if !q.trusted() {
		return Busy, 0
	}
	s, number := q.shard(owner)
	if s.enterAlone(number) {
		return Admitted, q.life.Load()
	}
	s.lock()
	if o = Busy; s.open {
		o, life = s.add(owner), q.life.Load()
	}
	s.unlock()
	return o, life
}

// TryWrite gives owner a write hold if that needs no wait. It overtakes no other owner in line, unless owner has a write
// hold already. The outcome is one of TryRead's or [Upgrade].
func (q *RW[O]) TryWrite(owner O) (o Outcome, look bool) {
	q.mu.Lock()
	o = q.claimLocked(nil, owner, Write)
	return o, q.unlock(o)
}

// Enter gives owner a hold or, if that needs a wait, a place in line. With the outcome [Waiting] the caller goes on with
// Wait; the other outcomes are those of TryRead and TryWrite. It is [Busy] only in mode [Once], which does not wait for
// owners of this process. life is that of TryRead.
func (q *RW[O]) Enter(owner O, mode Mode) (o Outcome, w *Waiter[O], life uint64, look bool) {
	return q.EnterFor(nil, owner, mode)
}

// EnterFor is Enter for a call, which the report of the admission has ([Change]).
func (q *RW[O]) EnterFor(call any, owner O, mode Mode) (o Outcome, w *Waiter[O], life uint64, look bool) {
	if mode&Write == 0 {
		if o, life = q.readOpen(owner); o != Busy {
			return o, nil, life, false
		}
	}
	q.mu.Lock()
	o, life = q.claimLocked(call, owner, mode), q.life.Load()
	if o == Busy && (mode&Once == 0 || !q.blockedLocked(mode)) {
		w, o = q.lineUpLocked(call, owner, mode)
	}
	return o, w, life, q.unlock(o)
}

// lineUpLocked puts a claim in line. It refuses one to write behind another of the same owner to read: once that is
// admitted, the owner would wait for itself. q.mu is held.
func (q *RW[O]) lineUpLocked(call any, owner O, mode Mode) (*Waiter[O], Outcome) {
	if mode&Write != 0 && q.line.shared[owner].wouldUpgrade() {
		return nil, Upgrade
	}
	q.closeLocked()
	return (*Waiter[O])(q.line.add(call, owner, 0, mode)), Waiting
}

// blockedLocked reports whether other owners of this process stand in the way of a claim. q.mu is held.
func (q *RW[O]) blockedLocked(mode Mode) bool {
	return q.line.Len > 0 || q.writes > 0 || mode&Write != 0 && q.readersLocked() > 0
}

// Wait waits until w is admitted or sent away, done is closed or timeout delivers; either may be nil. Being admitted or
// sent away wins over a cancellation or timeout that comes at the same moment. life is what [RW.Life] was when w was admitted.
func (q *RW[O]) Wait(w *Waiter[O], done <-chan struct{}, timeout <-chan time.Time) (o Outcome, life uint64, look bool) {
	why := w.await(done, timeout)
	q.mu.Lock()
	if o, life = q.endWaitLocked(w, why); o == why {
		q.admitLocked()
	}
	return o, life, q.unlock(o)
}

// Life returns how often all holds were lost.
func (q *RW[O]) Life() uint64 { return q.life.Load() }

// ExitRead takes one of owner's read holds. left is how many it has left. ok is false if it had none.
func (q *RW[O]) ExitRead(owner O) (left int, ok, look bool) {
	s, number := q.shard(owner)
	if s.leaveAlone(number) {
		return 0, true, false
	}
	s.lock()
	if s.open {
		left, ok = s.drop(owner)
		s.unlock()
		return left, ok, false
	}
	s.unlock()
	q.mu.Lock()
	s.lock()
	left, ok = s.drop(owner)
	s.unlock()
	if ok && left == 0 {
		q.readers--
		if q.writesLocked(owner) == 0 {
			q.changedLocked(0, nil, owner, Read)
		}
		q.admitLocked()
	}
	return left, ok, q.unlock(0)
}

// ExitWrite takes one of owner's write holds. left is how many it has left. ok is false if it had none.
func (q *RW[O]) ExitWrite(owner O) (left int, ok, look bool) {
	q.mu.Lock()
	if q.writesLocked(owner) > 0 {
		ok, left = true, q.writes-1
		q.leaveLocked(left)
	}
	return left, ok, q.unlock(0)
}

// ExitAll takes all holds of the writer, of both sides, and returns how many they were. Without a write hold it takes
// nothing.
func (q *RW[O]) ExitAll(owner O) (reads, writes int, look bool) {
	q.mu.Lock()
	if writes = q.writesLocked(owner); writes > 0 {
		s, _ := q.shard(owner)
		s.lock()
		was := s.n
		reads = s.take(owner)
		q.readers += s.n - was
		s.unlock()
		q.leaveLocked(0)
	}
	return reads, writes, q.unlock(0)
}

// AddHolds gives the writer more holds of both sides. It reports false, and changes nothing, if owner is not the writer or
// would have more than [MaxHolds] of a side.
func (q *RW[O]) AddHolds(owner O, reads, writes int) bool {
	q.mu.Lock()
	ok := q.writesLocked(owner) > 0 && writes <= MaxHolds-q.writes
	if ok {
		s, _ := q.shard(owner)
		s.lock()
		was := s.n
		ok = s.addSome(owner, reads)
		q.readers += s.n - was
		s.unlock()
	}
	if ok {
		q.writes += writes
	}
	q.unlock(0)
	return ok
}

// claimLocked gives owner a hold if that needs no wait, and returns Busy otherwise. q.mu is held.
func (q *RW[O]) claimLocked(call any, owner O, mode Mode) Outcome {
	if mode&Write != 0 {
		q.closeLocked() // or a reader could enter while the readers are counted
	}
	reads := q.readsLocked(owner)
	inside := reads > 0 || q.writesLocked(owner) > 0
	switch {
	case mode&Write != 0 && reads > 0 && q.writesLocked(owner) == 0:
		return Upgrade
	case inside && q.trusted():
		return q.letInLocked(call, owner, mode)
	case inside:
		return Busy
	case q.shut:
		return Expelled
	case q.line.Len > 0 || !q.fitsLocked(mode):
		return Busy
	}
	return q.letInLocked(call, owner, mode)
}

// fitsLocked reports whether an owner without holds can be admitted as the next. q.mu is held.
func (q *RW[O]) fitsLocked(mode Mode) bool {
	switch {
	case q.writes > 0 || q.overLocked() || q.asked && q.units < All:
		return false
	case mode&Write == 0:
		return q.units > 0 && q.trusted()
	}
	return q.units == All && q.next <= q.last && q.readersLocked() == 0 && q.trusted()
}

// overLocked reports whether another session waits and the turn is over. A turn goes on only while a writer is inside or
// waits in line. q.mu is held.
func (q *RW[O]) overLocked() bool {
	if q.writes == 0 && q.line.writers == 0 {
		q.turn = false
	}
	return q.terms.overLocked()
}

// enterLocked gives owner a hold. q.mu is held.
func (q *RW[O]) enterLocked(owner O, mode Mode) Outcome {
	if mode&Write == 0 {
		return q.readLocked(owner)
	}
	if q.writes > 0 {
		return increment(&q.writes)
	}
	q.closeLocked()
	q.passLocked()
	q.writer, q.writes = owner, 1
	q.token = q.takeTokenLocked()
	return Admitted
}

// takeTokenLocked uses the next token of the block. q.mu is held.
func (q *RW[O]) takeTokenLocked() uint64 {
	token := q.next
	q.next += 2
	q.used.Store(token)
	return token
}

// readLocked gives owner a read hold. q.mu is held.
func (q *RW[O]) readLocked(owner O) Outcome {
	if q.units == All && q.used.Load() == 0 {
		q.takeTokenLocked() // what is read now must differ from what is read after the first writer
	}
	s, _ := q.shard(owner)
	s.lock()
	was := s.n
	o := s.add(owner)
	q.readers += s.n - was
	s.unlock()
	if o == Admitted && q.writes > 0 {
		return Reentered // the writer reads too
	}
	if !q.open && q.writes == 0 && q.line.Len == 0 && !q.asked && !q.shut && q.watch == nil {
		q.calm++
		if q.calm == calmReads {
			q.setOpenLocked(true)
		}
	}
	return o
}

// leaveLocked leaves the writer with writes holds. q.mu is held.
func (q *RW[O]) leaveLocked(writes int) {
	if q.writes = writes; writes > 0 {
		return
	}
	q.writerLeftLocked()
	var none O
	q.writer, q.token = none, 0
	if q.asked && q.readersLocked() > 0 { // only its own: it goes on as a reader, which ends the turn
		q.admitReadersLocked()
		q.turn = false
	}
	q.admitLocked()
}

// admitReadersLocked admits the readers at the head of the line, up to the first writer. q.mu is held.
func (q *RW[O]) admitReadersLocked() {
	for w := q.line.First; w != nil && w.Value().mode&Write == 0 && q.trusted(); w = q.line.First {
		q.admitWaiterLocked(w)
	}
}

// admitLocked admits waiters from the head of the line as long as they fit. q.mu is held.
func (q *RW[O]) admitLocked() {
	for w := q.line.First; w != nil && q.fitsLocked(w.Value().mode); w = q.line.First {
		q.admitWaiterLocked(w)
	}
}

// admitWaiterLocked admits w, and with it those in line for the same owner who then re-enter. q.mu is held.
func (q *RW[O]) admitWaiterLocked(w *node[O]) {
	r := w.Value()
	owner := r.owner
	q.endLocked(w, q.letInLocked(r.call, owner, r.mode))
	if q.line.shared[owner].all > 0 {
		q.admitInsideLocked(func(r *request[O]) bool { return r.owner == owner && r.mode&Shared != 0 })
	}
}

// admitInsideLocked ends the waits in line of owners that are inside: they enter again or, if they read and ask to write,
// would wait for themselves. q.mu is held.
func (q *RW[O]) admitInsideLocked(concerns func(*request[O]) bool) {
	for w := range q.line.All() {
		if r := w.Value(); concerns(r) {
			if o := q.claimLocked(r.call, r.owner, r.mode); o != Busy {
				q.endLocked(w, o)
			}
		}
	}
}

// endLocked ends the wait of w, whose owner has its hold with some outcomes. q.mu is held.
func (q *RW[O]) endLocked(w *node[O], o Outcome) {
	w.Value().life = q.life.Load()
	q.line.end(w, o)
}
