package faults

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/relock-go/relock/faults/history"
	"github.com/relock-go/relock/reentrant"
)

// The terms of locks that are taken with options.
const (
	simFixed   = 2 * simHeartbeat
	simAtLeast = simHeartbeat * 3 / 4
	simWaiting = 2
)

// What hands do with several locks, and with locks on special terms.

// lockWith returns the part that a lock with options is.
func (h *hand) lockWith(name string, t terms) *part {
	p := lockPart(h.own, h.session.NewLock(name, t.options()...))
	p.terms = t
	return p
}

// useBoth takes two locks together. The judges count this as a hold of each lock.
func (h *hand) useBoth(ctx context.Context) {
	north, south := h.session.NewLock(simNorth), h.session.NewLock(simSouth)
	both := reentrant.NewMultiLock(south, north)
	parts := []*part{lockPart(h.own, north), lockPart(h.own, south)}
	if !h.acquireBoth(ctx, both, parts) {
		return
	}
	h.dwell(parts[h.random.IntN(2)])
	for _, p := range parts {
		h.look(p)
		h.leave(p)
	}
	h.recordAll([]call{{Op: parts[0].op(history.Unlock)}, {Op: parts[1].op(history.Unlock)}}, func([]call) []error {
		err := both.Unlock(h.own)
		return []error{errorOf(err, simNorth), errorOf(err, simSouth)}
	})
}

func (h *hand) acquireBoth(ctx context.Context, both *reentrant.MultiLock, parts []*part) bool {
	c := h.asks(parts[0])
	other := c
	other.Lock = parts[1].name
	whole := &part{take: both.Lock, try: both.TryLock, tryFor: both.TryLockFor}
	all := h.recordAll([]call{c, other}, func(all []call) []error {
		err := c.way.take(ctx, whole, c.limit)
		if err == nil {
			all[0].Token, _ = parts[0].held()
			all[1].Token, _ = parts[1].held()
		}
		return []error{err, err}
	})
	if all[0].Outcome != history.OK {
		return false
	}
	for i, p := range parts {
		p.lost = p.signal()
		h.enter(p)
		if all[i].Token == 0 {
			h.look(p)
		}
	}
	return true
}

// errorOf returns the part of a joined error that names a lock.
func errorOf(err error, name string) error {
	if err == nil || !strings.Contains(err.Error(), name) {
		return nil
	}
	var joined interface{ Unwrap() []error }
	if strings.Contains(err.Error(), "\n") && errors.As(err, &joined) {
		for _, part := range joined.Unwrap() {
			if of := errorOf(part, name); of != nil {
				return of
			}
		}
	}
	return err
}

// useEither takes one of two locks.
func (h *hand) useEither(ctx context.Context) {
	locks := []*reentrant.Lock{h.session.NewLock(simNorth), h.session.NewLock(simSouth)}
	h.random.Shuffle(2, func(i, j int) { locks[i], locks[j] = locks[j], locks[i] })
	c := call{Op: history.Op{Lock: simEither, Kind: history.Acquire}, way: within, limit: between(h.random, 0, 8*h.pace())}
	if h.random.IntN(2) == 0 {
		c.way, c.limit = atOnce, 0
	}
	var p *part
	c = h.record(c, func(done *call) error {
		l, err := c.way.either(ctx, c.limit, locks)
		if err == nil {
			p = lockPart(h.own, l)
			done.Lock = l.Name()
			done.Token, _ = p.held()
		}
		return err
	})
	if c.Outcome != history.OK {
		return
	}
	p.lost = p.signal()
	h.enter(p)
	h.dwell(p)
	h.giveAll(p, 1)
}

func (w way) either(ctx context.Context, limit time.Duration, locks []*reentrant.Lock) (l *reentrant.Lock, err error) {
	if w == atOnce {
		l, err = reentrant.TryAny(ctx, locks...)
	} else {
		l, err = reentrant.TryAnyFor(ctx, limit, locks...)
	}
	if errors.Is(err, reentrant.ErrNotAcquired) {
		err = errNot
	}
	return l, err
}

// useKiln takes a lock with a fixed lease, and sometimes lets it end.
func (h *hand) useKiln(ctx context.Context) {
	p := h.lockWith(simKiln, terms{fixed: simFixed})
	if !h.acquire(ctx, p) {
		return
	}
	holds := 1 + h.reenters(ctx, p)
	time.Sleep(between(h.random, 0, h.pace()))
	if h.random.IntN(4) == 0 {
		for end := time.Now().Add(simFixed * 3 / 2); time.Now().Before(end) && h.look(p); {
			time.Sleep(simHeartbeat / 2)
		}
	}
	h.giveAll(p, holds)
}

// useBell takes a lock that stays taken for a while.
func (h *hand) useBell(ctx context.Context) {
	p := h.lockWith(simBell, terms{atLeast: simAtLeast})
	if h.acquire(ctx, p) {
		holds := 1 + h.reenters(ctx, p)
		h.dwell(p)
		h.giveAll(p, holds)
	}
}

// useGate takes a lock. Some of its waiters do not keep to the order.
func (h *hand) useGate(ctx context.Context) {
	p := h.lockWith(simGate, terms{unfair: h.random.IntN(2) == 0, most: h.random.IntN(2) * simWaiting})
	if h.acquire(ctx, p) {
		holds := 1 + h.reenters(ctx, p)
		h.dwell(p)
		h.giveAll(p, holds)
	}
}

// useNoted takes a lock with a note, and asks the server about it.
func (h *hand) useNoted(ctx context.Context) {
	l := h.session.NewLock(simRight)
	p := lockPart(h.own, l)
	note := ""
	if h.random.IntN(3) > 0 {
		note = h.name + " was here"
		ctx = reentrant.WithNote(ctx, note)
	}
	if !h.acquire(ctx, p) {
		return
	}
	holds := 1 + h.reenters(ctx, p)
	time.Sleep(between(h.random, prompt, prompt+h.pace()))
	h.inspects(l, p, note)
	h.giveAll(p, holds)
}

// inspects checks that the server shows a hold to all, with its note and no other.
func (h *hand) inspects(l *reentrant.Lock, p *part, note string) {
	calm := h.stillCalm()
	token, _ := p.held()
	var state reentrant.State
	c := h.record(call{Op: p.op(inspected)}, func(*call) (err error) {
		asking, cancel := context.WithTimeout(h.own, simLease)
		defer cancel()
		state, err = l.Inspect(asking)
		return err
	})
	if again, _ := p.held(); c.Outcome != history.OK || !p.inUse() || again != token || h.blind() {
		return
	}
	if !state.Locked || state.Unlocked || state.Session != h.session.ID() {
		h.find("%s has %s, and the server shows %+v", h.name, p.name, state)
	}
	if h.inCohort() {
		return
	}
	if uint64(state.Token) != token || state.Note != note && (state.Note != "" || calm && h.stillCalm()) {
		h.find("%s has %s with token %d and the note %q, and the server shows %+v", h.name, p.name, token, note, state)
	}
}

// tooSoon finds locks that other owners got before the least time of a hold was over.
func (w *world) tooSoon() (findings []string) {
	for _, c := range w.calls {
		if c.Kind != history.Unlock || c.Outcome != history.OK || c.held.depth > 0 || c.held.terms.atLeast == 0 {
			continue
		}
		findings = append(findings, w.tooSoonAfter(c)...)
	}
	return findings
}

// tooSoonAfter finds calls that got the lock of c too soon after c's Unlock. The server may have forgotten the rest of the
// least time.
func (w *world) tooSoonAfter(c call) (findings []string) {
	ends := c.held.got + (c.held.terms.atLeast - 5*time.Millisecond).Nanoseconds()
	for _, f := range w.forgets {
		if f.From <= ends && f.To+simLease.Nanoseconds() >= c.held.since {
			return nil
		}
	}
	for _, other := range w.calls {
		if other.Kind == history.Acquire && other.Outcome == history.OK && other.Lock == c.Lock && other.Return > c.Call && other.Return < ends && !other.again {
			findings = append(findings, other.Client+" got "+c.Lock+" at "+time.Duration(other.Return).String()+", though "+c.Client+
				", which has unlocked it, got it at "+time.Duration(c.held.got).String())
		}
	}
	return findings
}
