package sharedqueue

import "time"

// Settle replaces what the session has, and ends what Ask began. Those in line are admitted, in order, as they fit. The
// units must not be fewer than those in use. If the session had units, and now has All, the last token that was used is
// the one known before; if it had All, it goes on where it is in its block of tokens.
func (q *RW[O]) Settle(t Terms) {
	q.mu.Lock()
	q.closeLocked()
	if t.Units < q.inUseLocked() {
		q.mu.Unlock()
		panic("sharedqueue: bug: Settle with fewer units than are in use")
	}
	if t.Units < All {
		q.endBlockLocked()
		q.used.Store(t.Token)
	} else {
		q.blockLocked(t.First, t.Last)
	}
	lapsed := !q.trusted()
	q.settleLocked(t.Units, t.Until)
	q.resumeLocked(lapsed)
	q.unlock(0)
}

// blockLocked sets the block of tokens. A session that kept All has used some of it already. q.mu is held.
func (q *RW[O]) blockLocked(first, last uint64) {
	switch q.units {
	case All:
		first = max(first, q.next)
	case 0:
		q.used.Store(0)
	}
	q.next, q.last = first, last
}

// Trust prolongs the trust in the units that the session has. Owners that are inside, and stand in line since it had
// lapsed, enter again.
func (q *RW[O]) Trust(until time.Duration) {
	q.mu.Lock()
	lapsed := !q.trusted()
	q.until.Store(int64(until))
	q.resumeLocked(lapsed)
	q.unlock(0)
}

// resumeLocked goes on admitting after a change of the trust in the units. If that had lapsed, owners that are inside may
// stand in line to enter again. q.mu is held.
func (q *RW[O]) resumeLocked(lapsed bool) {
	if lapsed && q.inUseLocked() > 0 {
		q.admitInsideLocked(func(*request[O]) bool { return true })
	}
	q.admitLocked()
}

// Ask says that another session waits. A session with one unit admits no owner any more, except those that are inside.
// A session with All has a turn: it goes on admitting in order as long as a writer is inside or in line, for the given
// number of writers, until turnEnd. A writer that goes on as a reader ends the turn, and the readers at the head of the
// line are admitted with it. The next Settle, or Unask, ends all this; to be asked again changes nothing. may does not
// matter to an RW.
func (q *RW[O]) Ask(may, passes int, turnEnd time.Duration) {
	q.mu.Lock()
	q.closeLocked()
	q.askLocked(may, passes, turnEnd)
	q.unlock(0)
}

// Unask says that no other session waits any more.
func (q *RW[O]) Unask() {
	q.mu.Lock()
	q.closeLocked()
	q.unaskLocked()
	q.admitLocked()
	q.unlock(0)
}

// Keep lowers the units to the given number or, if more are in use, to those. It returns what is left, and the last token
// that was used, 0 if none is known. The block of tokens is gone unless All is left.
func (q *RW[O]) Keep(units int) (kept int, token uint64) {
	q.mu.Lock()
	q.closeLocked()
	q.units = min(q.units, max(units, q.inUseLocked()))
	kept, token = q.units, q.used.Load()
	if kept < All {
		q.endBlockLocked()
	}
	if kept == 0 {
		q.used.Store(0)
	}
	q.unlock(0)
	return kept, token
}

// endBlockLocked drops what is left of the block of tokens. q.mu is held.
func (q *RW[O]) endBlockLocked() { q.next, q.last = 1, 0 }

// A Loss is what an owner was inside of when the units were lost.
type Loss[O comparable] struct {
	Owner         O
	Reads, Writes int
}

// Lose takes the units and all holds away, and returns the holds. Those in line stay there.
func (q *RW[O]) Lose() []Loss[O] {
	q.mu.Lock()
	q.closeLocked()
	q.life.Add(1)
	var lost []Loss[O]
	if q.writes > 0 {
		lost = append(lost, Loss[O]{Owner: q.writer, Reads: q.readsLocked(q.writer), Writes: q.writes})
	}
	for i := range q.shards {
		s := &q.shards[i]
		s.lock()
		s.each(func(owner O, holds int) {
			if q.writes == 0 || owner != q.writer {
				lost = append(lost, Loss[O]{Owner: owner, Reads: holds})
			}
		})
		s.clear()
		s.unlock()
	}
	var none O
	q.writer, q.writes, q.token, q.readers = none, 0, 0, 0
	q.units = 0
	q.used.Store(0)
	q.endBlockLocked()
	q.unlock(0)
	return lost
}

// EndTries ends the claims in mode [Once] that need as many units as this or more, with [Busy].
func (q *RW[O]) EndTries(need int) {
	q.mu.Lock()
	for w := range q.line.All() {
		if w.Value().mode&Once != 0 && needs(w) >= need {
			q.line.end(w, Busy)
		}
	}
	q.admitLocked()
	q.unlock(0)
}

// needs is the number of units of an RW that a waiter needs.
func needs[O comparable](w *node[O]) int {
	if w.Value().mode&Write != 0 {
		return All
	}
	return 1
}

// Shut sends away those in line, and from now on all that have no hold. Re-entries and exits go on.
func (q *RW[O]) Shut() {
	q.mu.Lock()
	q.closeLocked()
	q.shut = true
	q.line.endAll(Expelled)
	q.unlock(0)
}

// Expel sends away those in line. Later claims are not affected.
func (q *RW[O]) Expel() {
	q.mu.Lock()
	q.line.endAll(Expelled)
	q.unlock(0)
}

// Rest reports whether no owner is inside or in line, and none came since the previous Rest.
func (q *RW[O]) Rest() bool {
	q.mu.Lock()
	rest := q.writes == 0 && q.line.Len == 0
	for i := range q.shards {
		s := &q.shards[i]
		s.lock()
		came := s.came.Swap(false)
		rest = rest && s.n == 0 && !came
		s.unlock()
	}
	q.unlock(0)
	return rest
}

// setOpenLocked lets readers in through the shards, or only under mu. q.mu is held.
func (q *RW[O]) setOpenLocked(open bool) {
	q.open, q.calm, q.readers = open, 0, 0
	for i := range q.shards {
		s := &q.shards[i]
		s.lock()
		s.open = open
		q.readers += s.n
		s.unlock()
	}
}

// closeLocked lets readers in only under mu. q.mu is held.
func (q *RW[O]) closeLocked() {
	q.calm = 0
	if q.open {
		q.setOpenLocked(false)
	}
}

// unlock ends a critical section of a call with the given outcome, and reports whether the engine should look. A claim
// that was turned down because the trust in the units has ended is also a reason.
func (q *RW[O]) unlock(o Outcome) (look bool) {
	if invariants {
		q.check()
	}
	look = q.demandLocked() != q.seen || (o == Busy || o == Waiting) && q.units > 0 && !q.trusted()
	q.mu.Unlock()
	return look
}
