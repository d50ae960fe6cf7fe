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
	must(!q.open || !q.asked && !q.shut && q.writes == 0 && q.line.waiting == 0, "open to readers who must wait")
	if w := q.line.first; w != nil {
		must(!q.fitsLocked(w.mode), "the first in line fits, and waits")
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
	if w := q.line.first; w != nil {
		must(!q.fitsLocked(w.n), "the first in line fits, and waits")
	}
}

// checkWalk is how many nodes of a list check looks at. Whole lists would make a test with ten thousand waiters quadratic.
const checkWalk = 128

// check walks the line from its front.
func (l *line[O]) check() {
	n := 0
	var prev *Waiter[O]
	for w := l.first; w != nil && n < checkWalk; w = w.next {
		must(w.prev == prev && (w.next != nil || w == l.last), "a link of the line is wrong")
		must(w.queued && len(w.turn) == 0, "admitted, and still in line")
		prev = w
		n++
	}
	must(n == min(l.waiting, checkWalk) && l.writers <= l.waiting, "the line and its length disagree")
	n = 0
	for w := l.spare; w != nil && n <= maxSpares; w = w.next {
		must(!w.queued && len(w.turn) == 0, "a spare is in use")
		n++
	}
	must(n == l.spares && n <= maxSpares, "spares and their number disagree")
}
