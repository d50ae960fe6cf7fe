package localqueue

// Reenter adds a hold to owner's settled hold, in one critical section. ok is false, and nothing changes, if owner is
// not the holder or has an operation under way (holds is then 0), or if it has [MaxHolds] holds already (holds is then
// MaxHolds).
func (q *Queue[K]) Reenter(owner K) (holds int, ok bool) {
	q.mu.Lock()
	if q.isSettledLocked(owner) {
		if ok = q.holds < MaxHolds; ok {
			q.holds++
		}
		holds = q.holds
	}
	q.unlock()
	return holds, ok
}

// ExitOrBegin takes one of owner's holds, or begins an operation if owner has only one, in one critical section. If ok,
// holds is how many are left. With 0 left the last hold is still there, and the caller has the baton, busy, as after
// [Queue.Begin]. ok is false, and nothing changes, if owner is not the holder or has an operation under way.
func (q *Queue[K]) ExitOrBegin(owner K) (holds int, ok bool) {
	q.mu.Lock()
	if ok = q.isSettledLocked(owner); ok {
		if q.holds > 1 {
			q.holds--
			holds = q.holds
		} else {
			q.state = busy
		}
	}
	q.unlock()
	return holds, ok
}

// Begin starts an operation on owner's hold: the caller has the baton, busy, and holds is the hold count. While another
// goroutine has an operation under way for the same owner, Begin waits for its end. That wait cannot be cancelled, and
// it ends before any re-entry is let in, because the operation may be an unlock that all of those wait for. ok is false
// if owner has no hold, or has none left when the other operation ends.
func (q *Queue[K]) Begin(owner K) (holds int, ok bool) {
	q.mu.Lock()
	if q.owner != owner || q.holds == 0 {
		q.unlock()
		return 0, false
	}
	if q.state == settled {
		q.state = busy
		holds = q.holds
		q.unlock()
		return holds, true
	}
	w := q.nodeLocked(owner)
	q.ops.Push(w)
	q.unlock()
	w.Wait()
	holds = int(w.Value().holds)
	return holds, holds > 0
}

// Settle ends a claim or an operation of the caller. The owner then has the given number of holds, from 1 to [MaxHolds],
// and no operation is under way. If other goroutines of the same owner wait, one of them gets the baton at once, for its
// operation or for its re-entry.
func (q *Queue[K]) Settle(holds int) {
	if holds < 1 || holds > MaxHolds {
		panic("localqueue: bug: Settle with an impossible hold count")
	}
	q.lockBusy("Settle")
	q.state, q.holds, q.arriving = settled, holds, false
	if q.ops.First != nil || len(q.siblings) > 0 {
		q.resumeLocked()
	}
	q.unlock()
}

// isSettledLocked reports whether owner is the holder and no operation is under way. q.mu is held.
func (q *Queue[K]) isSettledLocked(owner K) bool {
	return q.state == settled && q.owner == owner
}

// resumeLocked gives a baton that has just been settled to the next goroutine of the same owner, if one waits.
// q.mu is held.
func (q *Queue[K]) resumeLocked() {
	if w := q.ops.First; w != nil {
		q.ops.Remove(w)
		q.grantLocked(w, q.holds)
		return
	}
	if w := q.siblings[q.owner]; w != nil {
		q.dequeueLocked(w)
		q.admitLocked(w, q.holds)
	}
}
