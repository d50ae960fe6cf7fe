package sharedqueue

// The results of these methods were true at one moment during the call.

// Look returns the state, and takes note of it: later calls report look when the engine should look again.
func (q *RW[O]) Look() State {
	q.mu.Lock()
	q.seen = q.demandLocked()
	s := State{
		Units: q.units, InUse: q.inUseLocked(), Waiting: q.line.Len, Writers: q.line.writers, Limit: All,
		Asked: q.asked, TurnOver: q.overLocked() || q.asked && q.units < All, Spent: q.next > q.last, Used: q.used.Load(),
	}
	if w := q.line.First; w != nil {
		s.Head, s.Once = needs(w), w.Value().mode&Once != 0
		s.Want = max(s.InUse, s.Head)
	}
	q.unlock(0)
	return s
}

// Idle reports whether no owner is inside or in line.
func (q *RW[O]) Idle() bool {
	q.mu.Lock()
	idle := q.line.Len == 0 && q.inUseLocked() == 0
	q.unlock(0)
	return idle
}

// Usage reports whether an owner is inside, and returns the number of claims in line. It takes no note, as Look does.
func (q *RW[O]) Usage() (inside bool, waiting int) {
	q.mu.Lock()
	inside, waiting = q.inUseLocked() > 0, q.line.Len
	q.unlock(0)
	return inside, waiting
}

// Holds returns the number of owner's holds on each side. token is, for the writer, its own; for a reader, the last that was
// used; otherwise 0.
func (q *RW[O]) Holds(owner O) (reads, writes int, token uint64) {
	q.mu.Lock()
	reads, writes = q.readsLocked(owner), q.writesLocked(owner)
	switch {
	case writes > 0:
		token = q.token
	case reads > 0:
		token = q.used.Load()
	}
	q.unlock(0)
	return reads, writes, token
}

// ReadToken returns the last token that was used, for an owner that reads. It takes no mutex that all owners share.
func (q *RW[O]) ReadToken(owner O) (token uint64, ok bool) {
	s, number := q.shard(owner)
	if token = q.used.Load(); s.isAlone(number) { // and was when the token was loaded: only its own goroutine lets it in
		return token, true
	}
	s.lock()
	token = 0
	if ok = s.holds(owner) > 0; ok {
		token = q.used.Load()
	}
	s.unlock()
	return token, ok
}

// Used returns the last token that was used, 0 if none is known. It takes no note, as Look does, and no mutex.
func (q *RW[O]) Used() uint64 { return q.used.Load() }

// Readers returns the number of read holds of all owners together.
func (q *RW[O]) Readers() (holds int) {
	q.mu.Lock()
	for i := range q.shards {
		s := &q.shards[i]
		s.lock()
		s.each(func(_ O, n int) { holds += n })
		s.unlock()
	}
	q.unlock(0)
	return holds
}

// Writer returns the owner that writes, if one does.
func (q *RW[O]) Writer() (owner O, ok bool) {
	q.mu.Lock()
	owner, ok = q.writer, q.writes > 0
	q.unlock(0)
	return owner, ok
}

// Waiters returns the owners in line and what they ask for, longest waiter first.
func (q *RW[O]) Waiters() (readers, writers, all []O) {
	q.mu.Lock()
	for w := range q.line.All() {
		r := w.Value()
		all = append(all, r.owner)
		if r.mode&Write == 0 {
			readers = append(readers, r.owner)
		} else {
			writers = append(writers, r.owner)
		}
	}
	q.unlock(0)
	return readers, writers, all
}

// readsLocked returns the number of owner's read holds. q.mu is held.
func (q *RW[O]) readsLocked(owner O) int {
	s, number := q.shard(owner)
	if s.isAlone(number) {
		return 1
	}
	s.lock()
	holds := s.holds(owner)
	s.unlock()
	return holds
}

// writesLocked returns the number of owner's write holds. q.mu is held.
func (q *RW[O]) writesLocked(owner O) int {
	if q.writes == 0 || q.writer != owner {
		return 0
	}
	return q.writes
}

// readersLocked returns the number of owners with read holds. q.mu is held.
func (q *RW[O]) readersLocked() int {
	if !q.open {
		return q.readers
	}
	readers := 0
	for i := range q.shards {
		s := &q.shards[i]
		s.lock()
		readers += s.n
		s.unlock()
	}
	return readers
}

// inUseLocked returns the number of units that users are inside of. q.mu is held.
func (q *RW[O]) inUseLocked() int {
	switch {
	case q.writes > 0:
		return All
	case q.readersLocked() > 0:
		return 1
	}
	return 0
}

// demandLocked returns what the engine should act on. The readers of an open queue need one unit. q.mu is held.
func (q *RW[O]) demandLocked() demand {
	if q.open {
		return demand{keep: min(q.units, 1)}
	}
	used := q.inUseLocked()
	w := q.line.First
	over := q.overLocked() || q.asked && q.units < All
	switch {
	case w != nil && (over || q.shortLocked(w)):
		return demand{keep: min(q.units, used), want: max(used, needs(w)), once: w.Value().mode&Once != 0}
	case over, w == nil && used < All && (q.units == All || q.shut): // readers need one unit
		return demand{keep: min(q.units, used)}
	}
	return demand{keep: q.units}
}

// shortLocked reports whether the session's units do not suffice for w. q.mu is held.
func (q *RW[O]) shortLocked(w *node[O]) bool {
	if w.Value().mode&Write == 0 {
		return q.units == 0
	}
	return q.units < All || q.next > q.last
}
