package sharedqueue

import (
	"time"

	"github.com/relock-go/relock/internal/waitline"
)

// A Mode says what a claim asks for and how it waits. Modes can be combined with |.
type Mode uint8

const (
	// Write asks for the write side. Without it a claim on an [RW] asks for the read side.
	Write Mode = 1 << iota
	// Once says that the claim waits for at most one reply of the server. Such a claim does not wait behind other claims, and
	// EndTries or FailTries ends its wait.
	Once
	// Shared says that several goroutines may act for the owner. When one of them is admitted, the others in line re-enter.
	Shared

	// Read asks for the read side.
	Read Mode = 0
)

// A Waiter is a claim in line. Its goroutine passes it to Wait, once.
type Waiter[O comparable] waitline.Node[request[O]]

// A node is a Waiter, with the methods that are for the queue alone.
type node[O comparable] = waitline.Node[request[O]]

// await waits until w is woken, done is closed or timeout delivers. It returns 0 if w was woken.
func (w *Waiter[O]) await(done <-chan struct{}, timeout <-chan time.Time) Outcome {
	return waitline.Await((*node[O])(w), done, timeout, Cancelled, TimedOut)
}

// A request is what the queue knows of a claim in line.
type request[O comparable] struct {
	owner O    // immutable while queued
	n     int  // permits; immutable while queued
	mode  Mode // immutable while queued
	call  any  // what the report of the admission has as Call; immutable while queued

	// Guarded by the queue's mu.

	outcome Outcome
	life    uint64 // how often Lose had been called when the claim was admitted
}

// A line is the claims in order of arrival. The queue's mu guards it.
type line[O comparable] struct {
	waitline.Line[request[O]]
	spares waitline.Spares[request[O]]

	writers int            // waiters that ask to write
	permits int            // the sum of what all waiters ask for
	since   time.Duration  // when the present First became the first, by the caller's clock; right only in Permits
	shared  map[O]siblings // owner -> its waiters in mode Shared
}

// siblings are the waiters of one owner in mode Shared.
type siblings struct {
	all     int
	writers int // how many ask to write
	readers int // how many ask to read, and are not in mode Once
}

// wouldUpgrade reports whether the owner waits to read but not to write. Then a claim to write would wait behind the read.
func (s siblings) wouldUpgrade() bool { return s.readers > 0 && s.writers == 0 }

// add puts a claim at the end of the line.
func (l *line[O]) add(call any, owner O, n int, mode Mode) *node[O] {
	w := l.spares.Take()
	r := w.Value()
	r.call, r.owner, r.n, r.mode = call, owner, n, mode
	l.Push(w)
	l.count(r, 1)
	return w
}

// take takes w out of the line.
func (l *line[O]) take(w *node[O]) {
	l.Remove(w)
	l.count(w.Value(), -1)
}

// count adds r to the totals if sign is 1, and subtracts r if sign is -1.
func (l *line[O]) count(r *request[O], sign int) {
	l.permits += sign * r.n
	if r.mode&Write != 0 {
		l.writers += sign
	}
	if r.mode&Shared == 0 {
		return
	}
	s := l.shared[r.owner]
	s.all += sign
	switch r.mode & (Write | Once) {
	case Read:
		s.readers += sign
	case Write, Write | Once:
		s.writers += sign
	}
	if s.all == 0 {
		delete(l.shared, r.owner)
		return
	}
	if l.shared == nil {
		l.shared = make(map[O]siblings)
	}
	l.shared[r.owner] = s
}

// end takes w out of the line and ends its wait.
func (l *line[O]) end(w *node[O], o Outcome) {
	l.take(w)
	w.Value().outcome = o
	w.Wake()
}

// failTries ends the claims that wait for one reply of the server, since no reply comes.
func (l *line[O]) failTries() {
	for w := range l.All() {
		if w.Value().mode&Once != 0 {
			l.end(w, Unanswered)
		}
	}
}

// endAll ends all waits.
func (l *line[O]) endAll(o Outcome) {
	for w := range l.All() {
		l.end(w, o)
	}
}
