//go:build invariants || race

package sharedqueue

const invariants = true

func must(ok bool, what string) {
	if !ok {
		panic("sharedqueue: bug: " + what)
	}
}

// check panics unless every invariant holds. rw.mu is held.
func (rw *RW[O]) check() {
	rw.checkHolds()
	rw.line.check()
	must(!rw.open || !rw.contended && !rw.shut && rw.writes == 0 && rw.line.Len == 0, "open to readers who must wait")
	must(!rw.open || len(rw.wanted.of) == 0, "open, and a hold ends without its channel")
	for owner := range rw.wanted.of {
		must(rw.readsLocked(owner)+rw.writesLocked(owner) > 0, "a channel outlives its hold")
	}
	if w := rw.line.First; w != nil {
		must(!rw.fitsLocked(w.Value().mode), "the first in line fits, and waits")
	}
}

func (rw *RW[O]) checkHolds() {
	readers := 0
	for i := range rw.shards {
		s := &rw.shards[i]
		s.lock()
		n := 0
		s.each(func(owner O, holds int) {
			home, _ := rw.shard(owner)
			must(holds > 0 && home == s, "a hold in the wrong shard")
			must(rw.writes == 0 || owner == rw.writer, "a reader beside a writer")
			n++
		})
		must(n == s.n && s.open == rw.open && s.lone.Load() == sealed, "a shard disagrees with itself or the queue")
		readers += n
		s.unlock()
	}
	must(rw.open || readers == rw.readers, "readers and their number disagree")
	must(rw.open || rw.inUseLocked() <= rw.units, "more units in use than the session has")
	var none O
	must(rw.writes >= 0 && (rw.writes > 0 || rw.writer == none), "an owner without holds writes")
	must(rw.units == All || rw.next > rw.last, "a block of tokens without All")
}

// check panics unless every invariant holds. p.mu is held.
func (p *Permits) check() {
	must(p.inUse >= 0 && p.inUse <= p.units, "more permits in use than the session has")
	must(p.inUse > 0 || len(p.wanted.of) == 0, "a channel outlives the permits")
	p.line.check()
	if w := p.line.First; w != nil {
		must(!p.fitsLocked(w.Value().n), "the first in line fits, and waits")
	}
}

// check panics unless every invariant of the line holds.
func (l *line[O]) check() {
	l.Check(func(w *node[O]) { must(!w.Woken(), "admitted, and still in line") })
	must(l.writers <= l.Len, "the line and its length disagree")
	var none O
	l.spares.Check(func(w *node[O]) { must(w.Value().owner == none && w.Value().call == nil, "a spare is in use") })
}
