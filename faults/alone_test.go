package faults

import (
	"strings"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/faults/history"
	"github.com/relock-go/relock/reentrant"
)

// The judges see what hands did. In this file a world looks at all its sessions at one moment: what one session trusts, no
// other session may trust, and the server must have it.

// enter notes that a hand uses a part, and checks that it may.
func (h *hand) enter(p *part) {
	h.mu.Lock()
	h.inside[p] = h
	h.mu.Unlock()
	if h.recorder != nil {
		h.recorder.got(h, p)
	}
	h.alone(p)
}

// leave notes that a hand is about to release a part.
func (h *hand) leave(p *part) {
	if h.recorder != nil {
		h.recorder.left(h, p)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.inside, p)
}

// inUse reports whether a part is trusted at this moment.
func (p *part) inUse() bool {
	_, held := p.held()
	select {
	case <-p.lost:
		return false
	default:
		return held
	}
}

// alone checks that no other hand uses a part that excludes p at this moment.
func (h *hand) alone(p *part) {
	if h.blind() || !p.inUse() {
		return
	}
	h.mu.Lock()
	var others []*part
	names := ""
	for other, hand := range h.inside {
		if other.name == p.name && other.user(hand) != p.user(h) {
			others = append(others, other)
		}
	}
	h.mu.Unlock()
	units := p.units
	for _, other := range others {
		if excludes(p, other) && other.inUse() {
			units += other.units
			h.mu.Lock()
			names += " " + other.user(h.inside[other]) + other.side
			h.mu.Unlock()
		}
	}
	limit := map[string]int{simSeats: simSeatsFree, simDesks: simDesksFree}[p.name]
	if names != "" && units >= limit+min(p.units, 1) && p.inUse() {
		h.find("%s has %s%s, and at the same time%s", p.user(h), p.name, p.side, names)
	}
	h.backed(p)
}

// user is the client of a part.
func (p *part) user(h *hand) string {
	if p.client != "" || h == nil {
		return p.client
	}
	return h.name
}

func excludes(a, b *part) bool { return a.side != readSide || b.side != readSide }

// backed checks that the server has a lock for as long as its owner trusts it.
func (h *hand) backed(p *part) {
	if !p.exclusive {
		h.backedUnits(p)
		return
	}
	if p.until == nil {
		return
	}
	until, err := p.until()
	if err != nil {
		return
	}
	c := h.server.Client()
	holder, err := c.Do(h.t.Context(), c.B().Hkeys().Key(p.name).Build()).AsStrSlice()
	if err != nil {
		return // the world has ended
	}
	left, err := c.Do(h.t.Context(), c.B().Pttl().Key(p.name).Build()).AsInt64()
	if err != nil {
		return
	}
	if again, err := p.until(); err != nil || !again.Equal(until) || h.blind() {
		return
	}
	ours := len(holder) == 1 && strings.HasPrefix(holder[0], h.session.ID())
	if ends := time.Now().Add(time.Duration(left) * time.Millisecond); !ours || ends.Before(until) {
		h.find("%s trusts %s for %v, and the server has it for %d ms, for %v", p.user(h), p.name, time.Until(until), left, holder)
	}
	if most := h.lasts(p); time.Duration(left)*time.Millisecond > most {
		h.find("%s has %s for %d ms, and for %v at most", p.user(h), p.name, left, most)
	}
	if least := h.renewed(p); time.Duration(left)*time.Millisecond < least {
		h.find("%s has %s for %d ms, and it should have been renewed until %v were left", p.user(h), p.name, left, least)
	}
}

// lasts returns how long the lease of a Lock can last. A fixed lease began before the acquire returned.
func (h *hand) lasts(p *part) time.Duration {
	if h.lags() {
		return broken
	}
	c := call{Op: p.op(history.Look)}
	c.Client = p.user(h)
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.holds[c.key()]
	if held.depth == 0 || held.terms.fixed == 0 {
		return simLease
	}
	return held.terms.fixed - time.Duration(h.nowLocked()-held.got) + time.Second
}

// renewed returns how long the lease of a Lock must at least last while nothing goes wrong. A lease is renewed when a third of
// it is over. The first lease of a lock that was pushed is shorter, and is renewed sooner. A session that keeps a Lock does not
// renew it.
func (h *hand) renewed(p *part) time.Duration {
	c := call{Op: p.op(history.Look)}
	c.Client = p.user(h)
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.holds[c.key()]
	if h.storm > 0 || held.depth == 0 || held.terms.fixed > 0 {
		return 0
	}
	late := 3 * prompt
	if h.inCohort() {
		late += simLinger
	}
	if h.nowLocked() < held.got+(simHeartbeat+late).Nanoseconds() {
		return 2*simHeartbeat - late
	}
	return simLease*2/3 - late
}

// backedUnits checks that the server has the units that a session's owners use, for as long as the owners trust the units. The
// check runs a script, so only about one call in four makes it.
func (h *hand) backedUnits(p *part) {
	if h.now()%4 != 0 {
		return
	}
	var until time.Time
	if p.until != nil {
		until, _ = p.until()
	}
	units := h.units(p)
	state, err := h.inspect(p.name)
	if err != nil || !p.inUse() || h.blind() {
		return
	}
	units = min(units, h.units(p))
	for _, holder := range state.Holders {
		if holder.TTL > simLease && !h.lags() {
			break
		}
		if holder.Session == h.session.ID() && holder.Units >= units && !time.Now().Add(holder.TTL+time.Millisecond).Before(until) {
			return
		}
	}
	h.find("%s uses %d units of %s and trusts them for %v, and the server shows %v", p.user(h), units, p.name, time.Until(until), state)
}

// units returns how many units a hand and the other hands of its process use. Hands that have lost their units do not count.
func (h *hand) units(p *part) (n int) {
	switch p.side {
	case writeSide:
		return backend.AllUnits
	case readSide:
		return 1
	}
	h.mu.Lock()
	var all []*part
	for other, hand := range h.inside {
		if hand.process == h.process && other.name == p.name {
			all = append(all, other)
		}
	}
	h.mu.Unlock()
	for _, other := range all {
		if other.inUse() {
			n += other.units
		}
	}
	return n
}

func (w *world) inspect(name string) (reentrant.SharedState, error) {
	if name == simBook {
		return w.asker.NewRWLock(name).Inspect(w.t.Context())
	}
	return w.asker.NewSemaphore(name, simSeatsFree).Inspect(w.t.Context())
}

// blind reports whether the server has forgotten something while the sessions may not know that yet.
func (w *world) blind() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.nowLocked()
	for _, f := range w.forgets {
		if now <= f.To+simLease.Nanoseconds() {
			return true
		}
	}
	return false
}
