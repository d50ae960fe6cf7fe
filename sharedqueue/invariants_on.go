//go:build invariants || race

package sharedqueue

const invariants = true

func must(ok bool, what string) {
	if !ok {
		panic("sharedqueue: bug: " + what)
	}
}

// check panics unless every invariant holds. q.mu is held.
func (q *RW[O]) check() {
	q.checkHolds()
	q.line.check()
	must(!q.open || !q.asked && !q.shut && q.writes == 0 && q.line.Len == 0, "open to readers who must wait")
	if w := q.line.First; w != nil {
		must(!q.fitsLocked(w.Value().mode), "the first in line fits, and waits")
	}
}

func (q *RW[O]) checkHolds() {
	readers := 0
	for i := range q.shards {
		s := &q.shards[i]
		s.lock()
		n := 0
		s.each(func(owner O, holds int) {
			home, _ := q.shard(owner)
			must(holds > 0 && home == s, "a hold in the wrong shard")
			must(q.writes == 0 || owner == q.writer, "a reader beside a writer")
			n++
		})
		must(n == s.n && s.open == q.open && s.lone.Load() == sealed, "a shard disagrees with itself or the queue")
		readers += n
		s.unlock()
	}
	must(q.open || readers == q.readers, "readers and their number disagree")
	must(q.open || q.inUseLocked() <= q.units, "more units in use than the session has")
	var none O
	must(q.writes >= 0 && (q.writes > 0 || q.writer == none), "an owner without holds writes")
	must(q.units == All || q.next > q.last, "a block of tokens without All")
}

// check panics unless every invariant holds. q.mu is held.
func (q *Permits) check() {
	must(q.inUse >= 0 && q.inUse <= q.units, "more permits in use than the session has")
	q.line.check()
	if w := q.line.First; w != nil {
		must(!q.fitsLocked(w.Value().n), "the first in line fits, and waits")
	}
}

// check panics unless every invariant of the line holds.
func (l *line[O]) check() {
	l.Check(func(w *node[O]) { must(!w.Woken(), "admitted, and still in line") })
	must(l.writers <= l.Len, "the line and its length disagree")
	var none O
	l.spares.Check(func(w *node[O]) { must(w.Value().owner == none && w.Value().call == nil, "a spare is in use") })
}
