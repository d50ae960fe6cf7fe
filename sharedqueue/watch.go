package sharedqueue

// A Change is an admission or a departure, as a queue reports it to the function given to Watch.
type Change[O comparable] struct {
	Outcome Outcome // [Admitted] or [Reentered]; 0 for a departure
	Owner   O       // of an RW
	Mode    Mode    // of an RW: Read or Write
	Permits int     // of Permits
	Token   uint64  // of an RW: the writer's, or the last that was used
	Call    any     // of an admission: what EnterFor was given
}

// Watch has the queue report every change to f, in the order in which they happen. f is called with the queue's mutex
// held: it must not block, nor call the queue. Watch is called before the queue is used.
//
// To f an owner is inside of one side at a time. A writer that reads too re-enters, and reports no departure of that
// side; when it goes on as a reader, it departs from the write side and is admitted to the read side. Lose reports
// nothing, as it returns what was lost.
//
// A queue that is watched is never open: readers come and go under its mutex.
func (q *RW[O]) Watch(f func(Change[O])) { q.watch = f }

// Watch has the queue report every change to f, as [RW.Watch] does.
func (q *Permits) Watch(f func(Change[struct{}])) { q.watch = f }

// letInLocked gives owner a hold, and reports that. q.mu is held.
func (q *RW[O]) letInLocked(call any, owner O, mode Mode) Outcome {
	o := q.enterLocked(owner, mode)
	if o != TooMany {
		q.changedLocked(o, call, owner, mode)
	}
	return o
}

// changedLocked reports a change of a side. q.mu is held.
func (q *RW[O]) changedLocked(o Outcome, call any, owner O, mode Mode) {
	if q.watch == nil {
		return
	}
	c := Change[O]{Outcome: o, Owner: owner, Mode: mode & Write, Token: q.used.Load(), Call: call}
	if owner == q.writer && q.token > 0 {
		c.Token = q.token
	}
	q.watch(c)
}

// writerLeftLocked reports that the writer has given up its last hold of the write side, and goes on as a reader if it
// reads. q.mu is held.
func (q *RW[O]) writerLeftLocked() {
	if q.watch == nil {
		return
	}
	q.changedLocked(0, nil, q.writer, Write)
	if q.readsLocked(q.writer) > 0 {
		q.changedLocked(Admitted, nil, q.writer, Read)
	}
}

// changedLocked reports that n permits were taken, or given back. q.mu is held.
func (q *Permits) changedLocked(o Outcome, call any, n int) {
	if q.watch != nil {
		q.watch(Change[struct{}]{Outcome: o, Permits: n, Call: call})
	}
}
