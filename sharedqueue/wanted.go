package sharedqueue

import "time"

// A notice is a channel for a user that is inside and asks whether others need what it has. The queue's mu guards it.
type notice struct {
	channel chan struct{}
	closed  bool
}

// notices are the channels of the users that asked for one, by user. While there are none, notices cost a comparison.
type notices[K comparable] struct {
	of   map[K]*notice
	open int // how many channels are not closed yet
}

// get returns the channel of a user, which is new if there was none.
func (n *notices[K]) get(user K) *notice {
	x := n.of[user]
	if x == nil {
		if n.of == nil {
			n.of = make(map[K]*notice)
		}
		x = &notice{channel: make(chan struct{})}
		n.of[user] = x
		n.open++
	}
	return x
}

// close closes the channel.
func (n *notices[K]) close(x *notice) {
	x.closed = true
	n.open--
	close(x.channel)
}

// forget drops the channel of a user that has left, without closing it.
func (n *notices[K]) forget(user K) {
	if x := n.of[user]; x != nil {
		if !x.closed {
			n.open--
		}
		delete(n.of, user)
	}
}

// forgetAll drops all channels.
func (n *notices[K]) forgetAll() {
	clear(n.of)
	n.open = 0
}

// Wanted returns a channel that is closed when another claim waits for what owner holds: if owner reads, a claim to write;
// if owner writes, any claim. The channel is closed already if such a claim waits now. Claims of the owner itself, and those
// in mode [Once], do not count; the claim of another session does ([RW.NoteWaiter]). The channel belongs to the hold:
// it is not closed after the owner has left, or lost its holds. Wanted returns nil for an owner without holds.
//
// While a channel belongs to a hold the queue is not open: readers come and go under its mutex.
func (rw *RW[O]) Wanted(owner O) (c <-chan struct{}) {
	rw.mu.Lock()
	rw.closeLocked()
	if rw.readsLocked(owner)+rw.writesLocked(owner) > 0 {
		c = rw.wanted.get(owner).channel
	}
	rw.unlock(0)
	return c
}

// forgetLocked drops the channel of Wanted if owner is no longer inside. rw.mu is held.
func (rw *RW[O]) forgetLocked(owner O) {
	if len(rw.wanted.of) > 0 && rw.readsLocked(owner)+rw.writesLocked(owner) == 0 {
		rw.wanted.forget(owner)
	}
}

// noticeLocked closes the channels that Wanted returned to owners for whose holds another claim waits. rw.mu is held.
func (rw *RW[O]) noticeLocked() {
	rw.lapseLocked()
	if rw.line.Len == 0 && !rw.awaited {
		return
	}
	for owner, x := range rw.wanted.of {
		if !x.closed && rw.wantedLocked(owner) {
			rw.wanted.close(x)
		}
	}
}

// wantedLocked reports whether another claim waits for what owner holds. rw.mu is held.
func (rw *RW[O]) wantedLocked(owner O) bool {
	writes := rw.writesLocked(owner) > 0
	if rw.awaited && (writes || rw.keepAtMost == 0) { // if the other session waits to read, readers may stay
		return true
	}
	for w := range rw.line.All() {
		if r := w.Value(); r.owner != owner && r.mode&Once == 0 && (writes || r.mode&Write != 0) {
			return true
		}
	}
	return false
}

// NoteWaiter says that the session for which Ask was called waits, and does not only try. The queue believes so until the next
// Settle or Unask, and no longer than until the given time: if the session still waits then, NoteWaiter is called again.
func (rw *RW[O]) NoteWaiter(until time.Duration) {
	rw.mu.Lock()
	rw.noteWaiterLocked(until)
	rw.unlock(0)
}

// NotePlaced says that the first in line waits at the server. It changes nothing: a claim of an RW is in line only if
// owners of this process, or other sessions, have what it needs.
func (rw *RW[O]) NotePlaced() {}

// Wanted returns a channel that is closed when another claim waits for permits that are not free: the first in line asks for
// more than the limit leaves, or waits at the server ([Permits.NotePlaced]), or another session waits ([Permits.NoteWaiter]).
// The channel is closed already if such a claim waits now; claims in mode [Once] do not count. user is any value that
// identifies the user of the permits. A user has one channel at a time: once that is closed, the next call makes a new one. No
// channel is closed after [Permits.Forget], or after all permits have been given back or lost. Wanted returns nil if no permit
// is in use.
func (p *Permits) Wanted(user any) (c <-chan struct{}) {
	p.mu.Lock()
	if p.inUse > 0 {
		c = p.wanted.get(user).channel
	}
	p.unlock(0)
	return c
}

// Forget drops the channel of Wanted for a user that has given its permits back.
func (p *Permits) Forget(user any) {
	p.mu.Lock()
	p.wanted.forget(user)
	p.unlock(0)
}

// noticeLocked closes the channels of Wanted if another claim waits for permits. p.mu is held.
func (p *Permits) noticeLocked() {
	p.lapseLocked()
	if !p.wantedLocked() {
		return
	}
	for user, x := range p.wanted.of {
		p.wanted.close(x)
		delete(p.wanted.of, user)
	}
}

// wantedLocked reports whether another claim waits for permits that are not free. p.mu is held.
func (p *Permits) wantedLocked() bool {
	w := p.line.First
	return p.awaited || w != nil && w.Value().mode&Once == 0 && (p.placed || !p.withinLocked(w.Value().n))
}

// NoteWaiter says that the session for which Ask was called waits, and does not only try. It counts as in [RW.NoteWaiter].
func (p *Permits) NoteWaiter(until time.Duration) {
	p.mu.Lock()
	p.noteWaiterLocked(until)
	p.unlock(0)
}

// NotePlaced says that the server has no permits for the first in line, and that the session waits for them at the server. That
// counts until the next Settle or Expel. After Lose it does not matter: no permit is in use before the next Settle.
func (p *Permits) NotePlaced() {
	p.mu.Lock()
	p.placed = true
	p.unlock(0)
}
