package sharedqueue

import (
	"sync/atomic"
	"time"
)

// An RW is the part of a read-write lock that stays in the process. It admits readers and a writer as far as the units of the
// session allow. O identifies the owners.
//
// Methods report changed when the engine that talks to the server should call Look: since the latest Look, what the session
// should keep, or what the owners in line need, has changed.
type RW[O comparable] struct {
	queue[O]

	// The read holds are in shards. While the queue is open, readers come and go in their shards alone.

	key     func(O) (hash, number uint64) // immutable
	shards  []shard[O]                    // immutable
	open    bool                          // guarded by mu
	calm    int                           // readers admitted under mu since the queue was closed. Guarded by mu.
	readers int                           // owners with read holds; right only while the queue is closed. Guarded by mu.

	// The writer. Guarded by mu.

	writer O
	writes int    // 0 without a writer
	token  uint64 // the writer's token

	// Tokens. Guarded by mu.

	next, last uint64 // the block of tokens that is left: next, next+2 … last

	wanted notices[O] // the channels of Wanted, by owners inside. While there is one, the queue is closed. Guarded by mu.

	life atomic.Uint64 // how often Lose was called; written under mu, while the queue is closed

	// used is the last token that was used. It is 0 if that is not known: a session without units that gets All does not know
	// it. used is written under mu, while no owner reads, and read by readers without mu.
	used atomic.Uint64
}

// calmReads is how many readers are admitted under mu before the queue opens again. To open and close the queue for each writer
// would take more time than open queues save.
const calmReads = 8

// NewRW makes a queue for a session that has no units. now is the clock to which Terms.Until refers. key returns an owner's
// hash, whose lowest bits choose the owner's shard, and a number below 1<<63 that no other owner has. For an owner without a
// number, which takes a little longer to enter, key returns the number 0. owner returns the owner with a number; the function
// may be nil if no owner has one.
func NewRW[O comparable](now func() time.Duration, key func(O) (hash, number uint64), owner func(number uint64) O) *RW[O] {
	rw := &RW[O]{key: key, shards: newShards(owner), next: 1}
	rw.now = now
	return rw
}

// shard returns the shard of an owner, and the owner's number.
func (rw *RW[O]) shard(owner O) (s *shard[O], number uint64) {
	hash, number := rw.key(owner)
	return &rw.shards[hash&uint64(len(rw.shards)-1)], number
}

// TryRead gives owner a read hold if that needs no wait. It overtakes no owner in line, unless owner has a hold already. The
// outcome is [Admitted], [Reentered], [Busy], [TooMany] or, if the queue is shut, [Expelled]. life is the value of [RW.Life]
// when owner got the hold: once Life has changed, the hold is lost. For an owner with a number ([NewRW]), TryRead reads life
// after the hold has begun. If Lose takes the hold in between, life is the new value, but owner has no hold.
func (rw *RW[O]) TryRead(owner O) (o Outcome, life uint64, changed bool) {
	if o, life = rw.readOpen(owner); o != Busy {
		return o, life, false
	}
	rw.mu.Lock()
	o, life = rw.claimLocked(nil, owner, Read), rw.life.Load()
	return o, life, rw.unlock(o)
}

// readOpen gives owner a read hold if the queue is open. If the units are lost at the same time, Lose closes the queue first,
// and then finds the new hold and takes it.
func (rw *RW[O]) readOpen(owner O) (o Outcome, life uint64) {
	if !rw.trusted() {
		return Busy, 0
	}
	s, number := rw.shard(owner)
	if s.enterAlone(number) {
		return Admitted, rw.life.Load()
	}
	s.lock()
	if o = Busy; s.open {
		o, life = s.add(owner), rw.life.Load()
	}
	s.unlock()
	return o, life
}

// TryWrite gives owner a write hold if that needs no wait. It overtakes no owner in line, unless owner has a write hold
// already. The outcome is one of TryRead's or [Upgrade].
func (rw *RW[O]) TryWrite(owner O) (o Outcome, changed bool) {
	rw.mu.Lock()
	o = rw.claimLocked(nil, owner, Write)
	return o, rw.unlock(o)
}

// Enter gives owner a hold or, if owner has to wait for it, a place in line. If the outcome is [Waiting], the caller calls
// Wait. The other outcomes are those of TryRead and TryWrite, but [Busy] only in mode [Once], in which a claim does not wait
// for owners of this process. life has the meaning described at TryRead.
func (rw *RW[O]) Enter(owner O, mode Mode) (o Outcome, w *Waiter[O], life uint64, changed bool) {
	return rw.EnterFor(nil, owner, mode, 0)
}

// EnterFor is Enter with two more parameters. call is any value: the report of the admission has it ([Change]). most is how
// many claims may be in line, or 0 for any number: if the claim would have to wait and the line has that many, the outcome is
// [Full].
func (rw *RW[O]) EnterFor(call any, owner O, mode Mode, most int) (o Outcome, w *Waiter[O], life uint64, changed bool) {
	if mode&Write == 0 {
		if o, life = rw.readOpen(owner); o != Busy {
			return o, nil, life, false
		}
	}
	rw.mu.Lock()
	o, life = rw.claimLocked(call, owner, mode), rw.life.Load()
	switch {
	case o != Busy || mode&Once != 0 && rw.blockedLocked(mode):
	case most > 0 && rw.line.Len >= most:
		o = Full
	default:
		w, o = rw.lineUpLocked(call, owner, mode)
	}
	return o, w, life, rw.unlock(o)
}

// lineUpLocked puts a claim in line. It refuses a claim to write if the same owner already waits to read: once the read is
// admitted, the owner would wait for itself. rw.mu is held.
func (rw *RW[O]) lineUpLocked(call any, owner O, mode Mode) (*Waiter[O], Outcome) {
	if mode&Write != 0 && rw.line.shared[owner].wouldUpgrade() {
		return nil, Upgrade
	}
	rw.closeLocked()
	return (*Waiter[O])(rw.line.add(call, owner, 0, mode)), Waiting
}

// blockedLocked reports whether other owners of this process stand in the way of a claim. rw.mu is held.
func (rw *RW[O]) blockedLocked(mode Mode) bool {
	return rw.line.Len > 0 || rw.writes > 0 || mode&Write != 0 && rw.readersLocked() > 0
}

// Wait waits until w is admitted or sent away, done is closed or timeout delivers; either channel may be nil. If two of these
// happen at once, the admission or dismissal counts. life is the value of [RW.Life] when w was admitted.
func (rw *RW[O]) Wait(w *Waiter[O], done <-chan struct{}, timeout <-chan time.Time) (o Outcome, life uint64, changed bool) {
	why := w.await(done, timeout)
	rw.mu.Lock()
	if o, life = rw.endWaitLocked(w, why); o == why {
		rw.admitLocked()
	}
	return o, life, rw.unlock(o)
}

// Life returns how often all holds were lost.
func (rw *RW[O]) Life() uint64 { return rw.life.Load() }

// ExitRead takes one of owner's read holds. left is how many read holds owner still has. ok is false if owner had none.
func (rw *RW[O]) ExitRead(owner O) (left int, ok, changed bool) {
	s, number := rw.shard(owner)
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
	rw.mu.Lock()
	s.lock()
	left, ok = s.drop(owner)
	s.unlock()
	if ok && left == 0 {
		rw.readers--
		if rw.writesLocked(owner) == 0 {
			rw.changedLocked(0, nil, owner, Read)
			rw.wanted.forget(owner)
		}
		rw.admitLocked()
	}
	return left, ok, rw.unlock(0)
}

// ExitWrite takes one of owner's write holds. left is how many write holds owner still has. ok is false if owner had none.
func (rw *RW[O]) ExitWrite(owner O) (left int, ok, changed bool) {
	rw.mu.Lock()
	if rw.writesLocked(owner) > 0 {
		ok, left = true, rw.writes-1
		rw.leaveLocked(left)
	}
	return left, ok, rw.unlock(0)
}

// ExitAll takes all holds of the writer, of both sides, and returns how many they were. If owner is not the writer, ExitAll
// takes nothing.
func (rw *RW[O]) ExitAll(owner O) (reads, writes int, changed bool) {
	rw.mu.Lock()
	if writes = rw.writesLocked(owner); writes > 0 {
		s, _ := rw.shard(owner)
		s.lock()
		was := s.n
		reads = s.take(owner)
		rw.readers += s.n - was
		s.unlock()
		rw.leaveLocked(0)
	}
	return reads, writes, rw.unlock(0)
}

// AddHolds gives the writer more holds of both sides. It returns false, and changes nothing, if owner is not the writer or
// would have more than [MaxHolds] of a side.
func (rw *RW[O]) AddHolds(owner O, reads, writes int) bool {
	rw.mu.Lock()
	ok := rw.writesLocked(owner) > 0 && writes <= MaxHolds-rw.writes
	if ok {
		s, _ := rw.shard(owner)
		s.lock()
		was := s.n
		ok = s.addSome(owner, reads)
		rw.readers += s.n - was
		s.unlock()
	}
	if ok {
		rw.writes += writes
	}
	rw.unlock(0)
	return ok
}

// claimLocked gives owner a hold if that needs no wait, and returns Busy otherwise. rw.mu is held.
func (rw *RW[O]) claimLocked(call any, owner O, mode Mode) Outcome {
	if mode&Write != 0 {
		rw.closeLocked() // otherwise a reader could enter while the readers are counted
	}
	reads := rw.readsLocked(owner)
	inside := reads > 0 || rw.writesLocked(owner) > 0
	switch {
	case mode&Write != 0 && reads > 0 && rw.writesLocked(owner) == 0:
		return Upgrade
	case inside && rw.trusted():
		return rw.letInLocked(call, owner, mode)
	case inside:
		return Busy
	case rw.shut:
		return Expelled
	case rw.line.Len > 0 || !rw.fitsLocked(mode):
		return Busy
	}
	return rw.letInLocked(call, owner, mode)
}

// fitsLocked reports whether an owner without holds can be admitted as the next. rw.mu is held.
func (rw *RW[O]) fitsLocked(mode Mode) bool {
	switch {
	case rw.writes > 0 || rw.overLocked() || rw.contended && rw.units < All:
		return false
	case mode&Write == 0:
		return rw.units > 0 && rw.trusted()
	}
	return rw.units == All && rw.next <= rw.last && rw.readersLocked() == 0 && rw.trusted()
}

// overLocked reports whether another session waits and the turn is over. A turn goes on only while a writer is inside or
// waits in line. rw.mu is held.
func (rw *RW[O]) overLocked() bool {
	if rw.writes == 0 && rw.line.writers == 0 {
		rw.inTurn = false
	}
	return rw.queue.overLocked()
}

// enterLocked gives owner a hold. rw.mu is held.
func (rw *RW[O]) enterLocked(owner O, mode Mode) Outcome {
	if mode&Write == 0 {
		return rw.readLocked(owner)
	}
	if rw.writes > 0 {
		return increment(&rw.writes)
	}
	rw.closeLocked()
	rw.countAdmissionLocked()
	rw.writer, rw.writes = owner, 1
	rw.token = rw.takeTokenLocked()
	return Admitted
}

// takeTokenLocked uses the next token of the block. rw.mu is held.
func (rw *RW[O]) takeTokenLocked() uint64 {
	token := rw.next
	rw.next += 2
	rw.used.Store(token)
	return token
}

// readLocked gives owner a read hold. rw.mu is held.
func (rw *RW[O]) readLocked(owner O) Outcome {
	if rw.units == All && rw.used.Load() == 0 {
		rw.takeTokenLocked() // so that the version of this read differs from the version after the first writer
	}
	s, _ := rw.shard(owner)
	s.lock()
	was := s.n
	o := s.add(owner)
	rw.readers += s.n - was
	s.unlock()
	if o == Admitted && rw.writes > 0 {
		return Reentered // the writer reads too
	}
	if !rw.open && rw.writes == 0 && rw.line.Len == 0 && !rw.contended && !rw.shut && rw.watch == nil && len(rw.wanted.of) == 0 {
		rw.calm++
		if rw.calm == calmReads {
			rw.setOpenLocked(true)
		}
	}
	return o
}

// leaveLocked leaves the writer with the given number of write holds. rw.mu is held.
func (rw *RW[O]) leaveLocked(writes int) {
	if rw.writes = writes; writes > 0 {
		return
	}
	rw.writerLeftLocked()
	rw.forgetLocked(rw.writer)
	var none O
	rw.writer, rw.token = none, 0
	if rw.contended && rw.readersLocked() > 0 { // the writer was the only reader: it goes on as a reader, which ends the turn
		rw.admitReadersLocked()
		rw.inTurn = false
	}
	rw.admitLocked()
}

// admitReadersLocked admits the readers at the head of the line, up to the first writer. rw.mu is held.
func (rw *RW[O]) admitReadersLocked() {
	for w := rw.line.First; w != nil && w.Value().mode&Write == 0 && rw.trusted(); w = rw.line.First {
		rw.admitWaiterLocked(w)
	}
}

// admitLocked admits waiters from the head of the line as long as they fit. rw.mu is held.
func (rw *RW[O]) admitLocked() {
	for w := rw.line.First; w != nil && rw.fitsLocked(w.Value().mode); w = rw.line.First {
		rw.admitWaiterLocked(w)
	}
}

// admitWaiterLocked admits w, and then the claims in line of the same owner in mode Shared, which re-enter. rw.mu is held.
func (rw *RW[O]) admitWaiterLocked(w *node[O]) {
	r := w.Value()
	owner := r.owner
	rw.endLocked(w, rw.letInLocked(r.call, owner, r.mode))
	if rw.line.shared[owner].all > 0 {
		rw.admitInsideLocked(func(r *request[O]) bool { return r.owner == owner && r.mode&Shared != 0 })
	}
}

// admitInsideLocked ends the waits of the claims for which concerns returns true and whose owners are inside: they enter again
// or, if the owner reads and the claim asks to write, get the outcome Upgrade. rw.mu is held.
func (rw *RW[O]) admitInsideLocked(concerns func(*request[O]) bool) {
	for w := range rw.line.All() {
		if r := w.Value(); concerns(r) {
			if o := rw.claimLocked(r.call, r.owner, r.mode); o != Busy {
				rw.endLocked(w, o)
			}
		}
	}
}

// endLocked ends the wait of w with an outcome, and stores the present life in w: once the queue's life has changed, the hold
// is lost. rw.mu is held.
func (rw *RW[O]) endLocked(w *node[O], o Outcome) {
	w.Value().life = rw.life.Load()
	rw.line.end(w, o)
}
