package sharedqueue

import "time"

// Settle replaces the units that the session has, and ends what Ask began. The claims in line are admitted, in order, as they
// fit. The units must not be fewer than those in use. If the session had units and now has All, the last token that was used
// stays the one known before. If it had All before, it goes on where it is in its block of tokens.
func (rw *RW[O]) Settle(t Terms) {
	rw.mu.Lock()
	rw.closeLocked()
	if t.Units < rw.inUseLocked() {
		rw.mu.Unlock()
		panic("sharedqueue: bug: Settle with fewer units than are in use")
	}
	if t.Units < All {
		rw.endBlockLocked()
		rw.used.Store(t.Token)
	} else {
		rw.blockLocked(t.First, t.Last)
	}
	lapsed := !rw.trusted()
	rw.settleLocked(t.Units, t.Until)
	rw.resumeLocked(lapsed)
	rw.unlock(0)
}

// blockLocked sets the block of tokens. A session that kept All has used some of it already. rw.mu is held.
func (rw *RW[O]) blockLocked(first, last uint64) {
	switch rw.units {
	case All:
		first = max(first, rw.next)
	case 0:
		rw.used.Store(0)
	}
	rw.next, rw.last = first, last
}

// Trust sets when the trust in the session's units ends. Owners that are inside, and stand in line because the trust had
// lapsed, enter again.
func (rw *RW[O]) Trust(until time.Duration) {
	rw.mu.Lock()
	lapsed := !rw.trusted()
	rw.until.Store(int64(until))
	rw.resumeLocked(lapsed)
	rw.unlock(0)
}

// resumeLocked goes on admitting after a change of the trust in the units. lapsed says that the trust had lapsed: then owners
// that are inside may stand in line to enter again. rw.mu is held.
func (rw *RW[O]) resumeLocked(lapsed bool) {
	if lapsed && rw.inUseLocked() > 0 {
		rw.admitInsideLocked(func(*request[O]) bool { return true })
	}
	rw.admitLocked()
}

// Ask says that another session waits, or tries. A session with one unit admits no owner any more, except those that are
// inside. A session with All has a turn: it goes on admitting in order as long as a writer is inside or in line, until it has
// admitted the given number of writers, or until turnEnd. A writer that goes on as a reader ends the turn, and the readers at
// the head of the line are admitted with it. The next Settle or Unask ends what Ask began; a further Ask changes only
// keepAtMost. Only [RW.Wanted] uses keepAtMost: if it is 0, the other session asks to write.
func (rw *RW[O]) Ask(keepAtMost, admissions int, turnEnd time.Duration) {
	rw.mu.Lock()
	rw.closeLocked()
	rw.askLocked(keepAtMost, admissions, turnEnd)
	rw.unlock(0)
}

// Unask says that no other session waits any more.
func (rw *RW[O]) Unask() {
	rw.mu.Lock()
	rw.closeLocked()
	rw.unaskLocked()
	rw.admitLocked()
	rw.unlock(0)
}

// Keep lowers the session's units to the given number or, if more are in use, to the number in use. It returns how many are
// left, and the last token that was used, 0 if none is known. The block of tokens is gone unless All is left.
func (rw *RW[O]) Keep(units int) (kept int, token uint64) {
	rw.mu.Lock()
	rw.closeLocked()
	rw.units = min(rw.units, max(units, rw.inUseLocked()))
	kept, token = rw.units, rw.used.Load()
	if kept < All {
		rw.endBlockLocked()
	}
	if kept == 0 {
		rw.used.Store(0)
	}
	rw.unlock(0)
	return kept, token
}

// endBlockLocked drops what is left of the block of tokens. rw.mu is held.
func (rw *RW[O]) endBlockLocked() { rw.next, rw.last = 1, 0 }

// A Loss has the holds of an owner that was inside when the units were lost.
type Loss[O comparable] struct {
	Owner         O
	Reads, Writes int
}

// Lose takes the units and all holds away, and returns the holds. The claims in line stay there.
func (rw *RW[O]) Lose() []Loss[O] {
	rw.mu.Lock()
	rw.closeLocked()
	rw.life.Add(1)
	var lost []Loss[O]
	if rw.writes > 0 {
		lost = append(lost, Loss[O]{Owner: rw.writer, Reads: rw.readsLocked(rw.writer), Writes: rw.writes})
	}
	for i := range rw.shards {
		s := &rw.shards[i]
		s.lock()
		s.each(func(owner O, holds int) {
			if rw.writes == 0 || owner != rw.writer {
				lost = append(lost, Loss[O]{Owner: owner, Reads: holds})
			}
		})
		s.clear()
		s.unlock()
	}
	var none O
	rw.writer, rw.writes, rw.token, rw.readers = none, 0, 0, 0
	rw.units = 0
	rw.wanted.forgetAll()
	rw.used.Store(0)
	rw.endBlockLocked()
	rw.unlock(0)
	return lost
}

// EndTries ends, with [Busy], the claims in mode [Once] that need this many units or more.
func (rw *RW[O]) EndTries(need int) {
	rw.mu.Lock()
	for w := range rw.line.All() {
		if w.Value().mode&Once != 0 && needs(w) >= need {
			rw.line.end(w, Busy)
		}
	}
	rw.admitLocked()
	rw.unlock(0)
}

// FailTries ends all claims in mode [Once], with [Unanswered].
func (rw *RW[O]) FailTries() {
	rw.mu.Lock()
	rw.line.failTries()
	rw.admitLocked()
	rw.unlock(0)
}

// needs returns the number of units of an RW that a waiter needs.
func needs[O comparable](w *node[O]) int {
	if w.Value().mode&Write != 0 {
		return All
	}
	return 1
}

// Shut sends away, with [Expelled], the claims in line and all later claims of owners without a hold. Owners that are inside
// can still re-enter and leave.
func (rw *RW[O]) Shut() {
	rw.mu.Lock()
	rw.closeLocked()
	rw.shut = true
	rw.line.endAll(Expelled)
	rw.unlock(0)
}

// Expel sends away the claims in line, with [Expelled]. Later claims are not affected.
func (rw *RW[O]) Expel() {
	rw.mu.Lock()
	rw.line.endAll(Expelled)
	rw.unlock(0)
}

// Rest reports whether no owner is inside or in line, and no reader was admitted since the previous Rest.
func (rw *RW[O]) Rest() bool {
	rw.mu.Lock()
	rest := rw.writes == 0 && rw.line.Len == 0
	for i := range rw.shards {
		s := &rw.shards[i]
		s.lock()
		came := s.came.Swap(false)
		rest = rest && s.n == 0 && !came
		s.unlock()
	}
	rw.unlock(0)
	return rest
}

// setOpenLocked opens the queue, so that readers come and go in their shards alone, or closes it, so that they need rw.mu.
// rw.mu is held.
func (rw *RW[O]) setOpenLocked(open bool) {
	rw.open, rw.calm, rw.readers = open, 0, 0
	for i := range rw.shards {
		s := &rw.shards[i]
		s.lock()
		s.open = open
		rw.readers += s.n
		s.unlock()
	}
}

// closeLocked closes the queue, if it is open. rw.mu is held.
func (rw *RW[O]) closeLocked() {
	rw.calm = 0
	if rw.open {
		rw.setOpenLocked(false)
	}
}

// unlock ends a critical section of a call with the given outcome, and reports whether the engine should look: the need has
// changed since the latest Look, or the claim could not be admitted because the trust in the units has ended.
func (rw *RW[O]) unlock(o Outcome) (changed bool) {
	if rw.wanted.open > 0 {
		rw.noticeLocked()
	}
	if invariants {
		rw.check()
	}
	changed = rw.needLocked() != rw.seen || (o == Busy || o == Waiting) && rw.units > 0 && !rw.trusted()
	rw.mu.Unlock()
	return changed
}
