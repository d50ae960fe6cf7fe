package sharedqueue

// The results of these methods were true at one moment during the call.

// Look returns the state, and remembers it: later calls report changed when the engine should look again.
func (rw *RW[O]) Look() State {
	rw.mu.Lock()
	rw.seen = rw.needLocked()
	s := State{
		Units: rw.units, InUse: rw.inUseLocked(), Waiting: rw.line.Len, Writers: rw.line.writers, Limit: All,
		Asked: rw.contended, TurnOver: rw.overLocked() || rw.contended && rw.units < All, Spent: rw.next > rw.last, Used: rw.used.Load(),
	}
	if w := rw.line.First; w != nil {
		s.Head, s.Once = needs(w), w.Value().mode&Once != 0
		s.Want = max(s.InUse, s.Head)
	}
	rw.unlock(0)
	return s
}

// Idle reports whether no owner is inside or in line.
func (rw *RW[O]) Idle() bool {
	rw.mu.Lock()
	idle := rw.line.Len == 0 && rw.inUseLocked() == 0
	rw.unlock(0)
	return idle
}

// Usage reports whether an owner is inside, and returns the number of claims in line. Unlike Look, it does not remember the
// state.
func (rw *RW[O]) Usage() (inside bool, waiting int) {
	rw.mu.Lock()
	inside, waiting = rw.inUseLocked() > 0, rw.line.Len
	rw.unlock(0)
	return inside, waiting
}

// Holds returns the number of owner's holds on each side. token is the writer's token if owner writes, the last token that was
// used if owner reads, and otherwise 0.
func (rw *RW[O]) Holds(owner O) (reads, writes int, token uint64) {
	rw.mu.Lock()
	reads, writes = rw.readsLocked(owner), rw.writesLocked(owner)
	switch {
	case writes > 0:
		token = rw.token
	case reads > 0:
		token = rw.used.Load()
	}
	rw.unlock(0)
	return reads, writes, token
}

// ReadToken returns the last token that was used, for an owner that reads. It takes no mutex that all owners share.
func (rw *RW[O]) ReadToken(owner O) (token uint64, ok bool) {
	s, number := rw.shard(owner)
	if token = rw.used.Load(); s.isAlone(number) { // owner was inside when used was read, too: only its goroutine enters for it
		return token, true
	}
	s.lock()
	token = 0
	if ok = s.holds(owner) > 0; ok {
		token = rw.used.Load()
	}
	s.unlock()
	return token, ok
}

// Used returns the last token that was used, 0 if none is known. Unlike Look, it remembers no state, and takes no mutex.
func (rw *RW[O]) Used() uint64 { return rw.used.Load() }

// Readers returns the number of read holds of all owners together.
func (rw *RW[O]) Readers() (holds int) {
	rw.mu.Lock()
	for i := range rw.shards {
		s := &rw.shards[i]
		s.lock()
		s.each(func(_ O, n int) { holds += n })
		s.unlock()
	}
	rw.unlock(0)
	return holds
}

// Writer returns the owner that writes, if one does.
func (rw *RW[O]) Writer() (owner O, ok bool) {
	rw.mu.Lock()
	owner, ok = rw.writer, rw.writes > 0
	rw.unlock(0)
	return owner, ok
}

// Waiters returns the owners in line and what they ask for, longest waiter first.
func (rw *RW[O]) Waiters() (readers, writers, all []O) {
	rw.mu.Lock()
	for w := range rw.line.All() {
		r := w.Value()
		all = append(all, r.owner)
		if r.mode&Write == 0 {
			readers = append(readers, r.owner)
		} else {
			writers = append(writers, r.owner)
		}
	}
	rw.unlock(0)
	return readers, writers, all
}

// readsLocked returns the number of owner's read holds. rw.mu is held.
func (rw *RW[O]) readsLocked(owner O) int {
	s, number := rw.shard(owner)
	if s.isAlone(number) {
		return 1
	}
	s.lock()
	holds := s.holds(owner)
	s.unlock()
	return holds
}

// writesLocked returns the number of owner's write holds. rw.mu is held.
func (rw *RW[O]) writesLocked(owner O) int {
	if rw.writes == 0 || rw.writer != owner {
		return 0
	}
	return rw.writes
}

// readersLocked returns the number of owners with read holds. rw.mu is held.
func (rw *RW[O]) readersLocked() int {
	if !rw.open {
		return rw.readers
	}
	readers := 0
	for i := range rw.shards {
		s := &rw.shards[i]
		s.lock()
		readers += s.n
		s.unlock()
	}
	return readers
}

// inUseLocked returns the number of units in use: 0, 1 or All. rw.mu is held.
func (rw *RW[O]) inUseLocked() int {
	switch {
	case rw.writes > 0:
		return All
	case rw.readersLocked() > 0:
		return 1
	}
	return 0
}

// needLocked returns what the engine should act on. The readers of an open queue need one unit. rw.mu is held.
func (rw *RW[O]) needLocked() need {
	if rw.open {
		return need{keep: min(rw.units, 1)}
	}
	used := rw.inUseLocked()
	w := rw.line.First
	over := rw.overLocked() || rw.contended && rw.units < All
	switch {
	case w != nil && (over || rw.shortLocked(w)):
		return need{keep: min(rw.units, used), want: max(used, needs(w)), once: w.Value().mode&Once != 0}
	case over, w == nil && used < All && (rw.units == All || rw.shut): // readers need one unit
		return need{keep: min(rw.units, used)}
	}
	return need{keep: rw.units}
}

// shortLocked reports whether the session's units do not suffice for w. rw.mu is held.
func (rw *RW[O]) shortLocked(w *node[O]) bool {
	if w.Value().mode&Write == 0 {
		return rw.units == 0
	}
	return rw.units < All || rw.next > rw.last
}
