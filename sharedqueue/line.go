package sharedqueue

import "time"

// A Mode says what a claim asks for and how it waits. Modes can be combined with |.
type Mode uint8

const (
	// Write asks for the write side. Without it a claim on an [RW] asks for the read side.
	Write Mode = 1 << iota
	// Once says that the claim waits for at most one reply of the server: it does not wait behind other claims, and
	// EndTries ends it.
	Once
	// Shared says that several goroutines may act for the owner. Those that wait are let in when one of them is.
	Shared

	// Read asks for the read side.
	Read Mode = 0
)

// A Waiter is a claim in line. Its goroutine passes it to Wait, once.
type Waiter[O comparable] struct {
	// turn is made with the node and never closed. The wait ends with one value in it or, if cancelled, with none. The
	// sender holds the queue's mu and never blocks, thanks to the buffer; only the waiter receives.
	turn chan struct{}

	owner O    // immutable while queued
	n     int  // permits; immutable while queued
	mode  Mode // immutable while queued
	call  any  // for the report of its admission; immutable while queued

	// outcome is written under mu before the send, and read by the waiter after the receive.
	outcome Outcome
	life    uint64 // when it was admitted; written and read under mu

	queued     bool       // in the line. Guarded by mu.
	prev, next *Waiter[O] // in the line; next also among the spares. Guarded by mu.
}

// await waits until w is woken, done is closed or timeout delivers. It returns 0 if w was woken.
func (w *Waiter[O]) await(done <-chan struct{}, timeout <-chan time.Time) Outcome {
	select {
	case <-w.turn:
		return 0
	case <-done:
		return Cancelled
	case <-timeout:
		return TimedOut
	}
}

// maxSpares is how many nodes a line keeps for later waiters.
const maxSpares = 64

// A line is a list of waiters in order of arrival. The queue's mu guards it.
type line[O comparable] struct {
	first, last *Waiter[O]

	waiting int            // waiters
	writers int            // waiters that ask to write
	permits int            // the sum of what all waiters ask for
	since   time.Duration  // when first became the first, by the clock of Terms; right only of Permits
	shared  map[O]siblings // owner -> its waiters in mode Shared

	spare  *Waiter[O]
	spares int
}

// siblings are the waiters of one owner in mode Shared.
type siblings struct {
	all     int
	writers int // that ask to write
	readers int // that ask to read, and are no tries
}

// wouldUpgrade reports whether a claim to write behind them would wait for one to read.
func (s siblings) wouldUpgrade() bool { return s.readers > 0 && s.writers == 0 }

// add puts a claim at the end of the line.
func (l *line[O]) add(owner O, n int, mode Mode) *Waiter[O] {
	w := l.node()
	w.owner, w.n, w.mode, w.queued = owner, n, mode, true
	w.prev = l.last
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
	l.count(w, 1)
	return w
}

// take unlinks w.
func (l *line[O]) take(w *Waiter[O]) {
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.queued = nil, nil, false
	l.count(w, -1)
}

// count adds w to the totals, or subtracts it with sign -1.
func (l *line[O]) count(w *Waiter[O], sign int) {
	l.waiting += sign
	l.permits += sign * w.n
	if w.mode&Write != 0 {
		l.writers += sign
	}
	if w.mode&Shared == 0 {
		return
	}
	s := l.shared[w.owner]
	s.all += sign
	switch w.mode & (Write | Once) {
	case Read:
		s.readers += sign
	case Write, Write | Once:
		s.writers += sign
	}
	if s.all == 0 {
		delete(l.shared, w.owner)
		return
	}
	if l.shared == nil {
		l.shared = make(map[O]siblings)
	}
	l.shared[w.owner] = s
}

// end takes w out of the line and ends its wait.
func (l *line[O]) end(w *Waiter[O], o Outcome) {
	l.take(w)
	w.outcome = o
	w.turn <- struct{}{}
}

// endAll ends all waits.
func (l *line[O]) endAll(o Outcome) {
	for l.first != nil {
		l.end(l.first, o)
	}
}

// node takes a spare node, or makes one.
func (l *line[O]) node() *Waiter[O] {
	w := l.spare
	if w == nil {
		return &Waiter[O]{turn: make(chan struct{}, 1)}
	}
	l.spare, w.next = w.next, nil
	l.spares--
	return w
}

// recycle keeps w for a later waiter. Its goroutine must have ended its wait.
func (l *line[O]) recycle(w *Waiter[O]) {
	if l.spares == maxSpares {
		return
	}
	var none O
	w.owner, w.call = none, nil // what they refer to is not kept alive
	w.next, l.spare = l.spare, w
	l.spares++
}
