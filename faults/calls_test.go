package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relock-go/relock/faults/history"
	"github.com/relock-go/relock/reentrant"
)

// Kinds of calls that are no operations on a lock's state.
const (
	signalled history.Kind = "signal"
	waitedFor history.Kind = "wanted"
	inspected history.Kind = "inspect"
)

// A call is what a hand did.
type call struct {
	history.Op
	way   way
	limit time.Duration // how long it may wait
	woken bool          // an Await that was signalled
	all   bool          // a SignalAll
	again bool          // an acquire by a client that already has the part
	known bool          // the client knows that it has lost its hold
	terms terms         // of an acquire: what the hold is asked to be like
	extra bool          // an Unlock of what the client does not have
	held  held          // what the client had when the call returned, or what the call gave up
}

// Terms are what a Lock's options ask for.
type terms struct {
	fixed   time.Duration // WithFixedLease
	atLeast time.Duration // WithAtLeast
	unfair  bool          // WithFairness(false)
	most    int           // WithMaxWaiting
}

func (t terms) options() []reentrant.LockOption {
	return []reentrant.LockOption{
		reentrant.WithFixedLease(t.fixed), reentrant.WithAtLeast(t.atLeast), reentrant.WithFairness(!t.unfair),
		reentrant.WithMaxWaiting(t.most),
	}
}

// A way is a way to acquire.
type way int

const (
	patiently way = iota // with a context that is cancelled only if all else fails
	within               // with a time limit
	underDeadline
	atOnce
)

// lockPart returns the part that a lock is for the owner of ctx. Calls that wait have contexts of their own, with that owner.
func lockPart(ctx context.Context, l *reentrant.Lock) *part {
	return &part{
		name: l.Name(), exclusive: true,
		take: l.Lock, try: l.TryLock, tryFor: l.TryLockFor,
		release: func() error { return l.Unlock(ctx) },
		signal:  func() <-chan struct{} { return l.Lost(ctx) },
		wanted:  func() <-chan struct{} { return l.Wanted(ctx) },
		until:   func() (time.Time, error) { return l.TrustedUntil(ctx) },
		count:   func() int { return l.HoldCount(ctx) },
		held: func() (uint64, bool) {
			token, err := l.Token(ctx)
			return uint64(token), err == nil && l.IsHeldByCurrentOwner(ctx)
		},
	}
}

func (h *hand) acquire(ctx context.Context, p *part) bool {
	c := h.asks(p)
	c = h.record(c, func(done *call) error {
		err := c.way.take(ctx, p, c.limit)
		if err == nil && p.exclusive {
			done.Token, _ = p.held() // 0 if the lock has been lost by now
		}
		return err
	})
	if c.Outcome != history.OK {
		return false
	}
	if p.exclusive || p.lost == nil { // an owner that has lost a side, and enters it again, still has the lost one
		p.lost = p.signal()
	}
	h.enter(p)
	if p.exclusive && c.Token == 0 {
		h.look(p) // the worker learns of the loss, so its next acquire is not a re-entry
	}
	return true
}

// asks returns a call that acquires a part, in one of the ways.
func (h *hand) asks(p *part) call {
	c := call{Op: p.op(history.Acquire), terms: p.terms, way: way(h.random.IntN(4)), limit: between(h.random, 0, 8*h.pace())}
	if p.timed && c.way != atOnce {
		c.way = within
	}
	switch c.way {
	case patiently:
		c.limit = simPatience
	case atOnce:
		c.limit = 0
	}
	return c
}

func (w way) take(ctx context.Context, p *part, limit time.Duration) error {
	switch w {
	case atOnce:
		return taken(p.try(ctx))
	case within:
		return taken(p.tryFor(ctx, limit))
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return p.take(ctx)
}

func (h *hand) give(p *part) call {
	h.leave(p)
	return h.record(call{Op: p.op(history.Unlock)}, func(*call) error { return p.release() })
}

// errUntold is returned by a look at a hold that is gone without a notice.
var errUntold = errors.New("the hold is gone, and its owner was not notified")

func (h *hand) look(p *part) bool {
	c := h.lookAt(p)
	ok := c.Outcome == history.OK
	if ok {
		h.alone(p)
		h.counts(p, c.held.depth)
	}
	return ok
}

// counts checks how many holds of a Lock there are.
func (h *hand) counts(p *part, holds int) {
	if p.count == nil || holds == 0 { // what a dead process holds is not known
		return
	}
	if n := p.count(); n != holds && p.inUse() && p.count() == n {
		h.find("%s has %d holds of %s, by its calls %d", p.user(h), n, p.name, holds)
	}
}

// lookAt asks whether a part is still in use. That sends no command.
func (h *hand) lookAt(p *part) call {
	return h.record(call{Op: p.op(history.Look)}, func(c *call) error {
		token, held := p.held()
		if !held {
			time.Sleep(time.Nanosecond) // until everything has happened that happens at this moment
		}
		select {
		case <-p.lost:
			return reentrant.ErrLost
		default:
			if !held {
				return errUntold
			}
		}
		c.Token = token
		return nil
	})
}

// record records a call. What a dead process does is not recorded.
func (h *hand) record(c call, run func(*call) error) call {
	return h.recordAll([]call{c}, func(all []call) []error { return []error{run(&all[0])} })[0]
}

// recordAll records a call that concerns several names, as one call for each name.
func (h *hand) recordAll(all []call, run func([]call) []error) []call {
	keys := make([]string, len(all))
	h.mu.Lock()
	for i := range all {
		keys[i] = h.begins(&all[i])
	}
	h.mu.Unlock()

	errs := run(all)

	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range all {
		h.ends(&all[i], keys[i], errs[i])
	}
	return all
}

// begins records that a call is open, and returns its key. h.mu is held.
func (h *hand) begins(c *call) (key string) {
	c.Process = h.process.name
	if c.Client == "" {
		c.Client = h.name
	}
	c.Call = h.nowLocked()
	before, other := h.holds[c.key()], *c
	other.Read = !c.Read
	c.again, c.known = before.depth > 0 || h.holds[other.key()].depth > 0, before.gone
	key = fmt.Sprint(c.Client, " ", c.Lock)
	if h.deaths[c.Process] == 0 {
		h.open[key] = *c
	}
	return key
}

// ends records how a call ended. h.mu is held.
func (h *hand) ends(c *call, key string, err error) {
	c.Return, c.Outcome = h.nowLocked(), outcome(c.Kind, err)
	h.use(c)
	if err != nil {
		c.Note = err.Error()
	}
	if _, alive := h.open[key]; !alive {
		return
	}
	delete(h.open, key)
	h.noteLocked("%s  %s%s, called %v: %s %d %s", c.Client, c.Kind, c.about(), time.Duration(c.Call), c.Outcome, c.Token, c.Note)
	h.learn(c)
	h.calls = append(h.calls, *c)
}

// also records that a call concerned another name, too.
func (h *hand) also(c call, name string, units int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.deaths[c.Process] != 0 && h.deaths[c.Process] < c.Return {
		return
	}
	c.Lock, c.Units = name, units
	h.calls = append(h.calls, c)
}

func (c call) about() string {
	about := " " + c.Lock
	if c.Read {
		about += " to read"
	}
	if c.way == atOnce {
		about += " at once"
	}
	return about
}

// key names a client's hold.
func (c call) key() string { return fmt.Sprint(c.Client, c.Lock, c.Read) }

// learn updates a client's hold by what a call shows. w.mu is held.
func (w *world) learn(c *call) {
	h := w.holds[c.key()]
	switch {
	case c.Outcome == history.Lost:
		tooLate := c.Kind == history.Await && c.Return-c.Call > (c.limit+simLease-time.Second).Nanoseconds() // others had the lock
		if !h.gone && !tooLate && !h.over(c.Return) && c.Lock != simFerry {                                  // the ferry moves
			w.lost(*c)
		}
		h.gone = true
	case c.Kind == history.Acquire && c.Outcome == history.OK:
		w.turns[c.Client]++
		if h.depth == 0 || c.Token != h.token {
			h = held{token: c.Token, since: c.Call, got: c.Return, terms: c.terms}
		}
		h.depth++
	case c.Kind == history.Await && c.Outcome == history.OK:
		h.token, h.since, h.got = c.Token, c.Call, c.Return
	case c.Outcome == history.OK && h.terms.fixed > 0 && c.Call > h.got+h.terms.fixed.Nanoseconds():
		w.findLocked("%s: %s of %s, called %v, finds a hold with a fixed lease of %v from before %v",
			c.Client, c.Kind, c.Lock, time.Duration(c.Call), h.terms.fixed, time.Duration(h.got))
	}
	if c.Kind == history.Unlock && h.depth > 0 {
		h.depth--
	}
	w.holds[c.key()], c.held = h, h
}

// over reports whether the fixed lease of a hold may be over. The lease begins when its request is sent, and a margin is
// subtracted.
func (h held) over(at int64) bool {
	const longest = 3 * time.Second // of a command
	return h.terms.fixed > 0 && at > h.got+(h.terms.fixed*98/100-longest).Nanoseconds()
}

// ends returns when the terms of a hold end. It returns 0 if they do not end.
func (h held) ends() int64 {
	if h.terms.fixed == 0 && h.terms.atLeast == 0 {
		return 0
	}
	return h.got + max(h.terms.fixed, h.terms.atLeast).Nanoseconds()
}
