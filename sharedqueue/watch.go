package sharedqueue

// A Change is an admission or a departure, as a queue reports it to the function given to Watch.
type Change[O comparable] struct {
	Outcome Outcome // [Admitted] or [Reentered]; 0 for a departure
	Owner   O       // of an RW
	Mode    Mode    // of an RW: Read or Write
	Permits int     // of Permits
	Token   uint64  // of an RW: the writer's token or, without a writer, the last token that was used
	Call    any     // of an admission: the call that EnterFor was given
}

// Watch has the queue report every change to f, in the order in which they happen. f is called with the queue's mutex
// held: it must not block, nor call the queue. Watch is called before the queue is used.
//
// In the reports an owner is on one side at a time. If the writer takes the read side too, that is reported as
// [Reentered], and its departure from the read side is not reported. If the writer goes on as a reader, its departure from the
// write side and its admission to the read side are reported. Lose reports nothing, since it returns what was lost.
//
// A queue that is watched is never open: readers come and go under its mutex.
func (rw *RW[O]) Watch(f func(Change[O])) { rw.watch = f }

// Watch has the queue report every change to f, as [RW.Watch] does.
func (p *Permits) Watch(f func(Change[struct{}])) { p.watch = f }

// letInLocked gives owner a hold, and reports that. rw.mu is held.
func (rw *RW[O]) letInLocked(call any, owner O, mode Mode) Outcome {
	o := rw.enterLocked(owner, mode)
	if o != TooMany {
		rw.changedLocked(o, call, owner, mode)
	}
	return o
}

// changedLocked reports that owner came to a side, or left it. rw.mu is held.
func (rw *RW[O]) changedLocked(o Outcome, call any, owner O, mode Mode) {
	if rw.watch == nil {
		return
	}
	c := Change[O]{Outcome: o, Owner: owner, Mode: mode & Write, Token: rw.used.Load(), Call: call}
	if owner == rw.writer && rw.token > 0 {
		c.Token = rw.token
	}
	rw.watch(c)
}

// writerLeftLocked reports that the writer has given up its last hold of the write side, and goes on as a reader if it
// reads. rw.mu is held.
func (rw *RW[O]) writerLeftLocked() {
	if rw.watch == nil {
		return
	}
	rw.changedLocked(0, nil, rw.writer, Write)
	if rw.readsLocked(rw.writer) > 0 {
		rw.changedLocked(Admitted, nil, rw.writer, Read)
	}
}

// changedLocked reports that n permits were taken, or given back. p.mu is held.
func (p *Permits) changedLocked(o Outcome, call any, n int) {
	if p.watch != nil {
		p.watch(Change[struct{}]{Outcome: o, Permits: n, Call: call})
	}
}
