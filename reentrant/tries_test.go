package reentrant_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/reentrant"
)

// A quietProgram makes one step at a time, and waits until all that follows from it is done. So each try has one right
// result. Nothing in it may wait for a heartbeat.
type quietProgram struct {
	t       *testing.T
	seed    uint64
	rnd     *rand.Rand
	steps   int
	permits int // 0: the program is of a read-write lock
	callers []*caller
	watches bool // callers that are inside ask whether others wait

	mu    sync.Mutex
	trace []string
}

// A caller is an owner that takes sides, or a caller that takes permits. It has a goroutine of its own.
type caller struct {
	name    string
	session int
	ctx     context.Context
	work    chan func()
	l       *reentrant.RWLock
	m       *reentrant.Semaphore
	leave   func() // ends its wait

	reads, writes, permits int
	waits                  way
	waiting                bool
	came                   int // the step at which it began to wait

	wanted <-chan struct{} // what Wanted returned for what it has; nil if it has not asked
	others bool            // others have waited since it asked
}

func (p *quietProgram) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trace = append(p.trace, fmt.Sprintf(format, args...))
}

func (p *quietProgram) check(ok bool, format string, args ...any) {
	if !ok && !p.t.Failed() {
		p.say("! "+format, args...)
		p.t.Errorf("seed %d\n%s", p.seed, strings.Join(p.trace, "\n"))
	}
}

// do makes a caller call f, and waits until everything that follows from that is done.
func (p *quietProgram) do(u *caller, f func()) {
	u.work <- f
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
}

// inUse returns the permits in use in a session, or in all sessions if session is -1.
func (p *quietProgram) inUse(session int) (n int) {
	for _, u := range p.callers {
		if session < 0 || u.session == session {
			n += u.permits
		}
	}
	return n
}

// asks reports whether a caller is the first in its session's line, and waits for more than a Release of its own session.
// A caller that waits only for its own session holds up no other session.
func (p *quietProgram) asks(u *caller) bool {
	for _, o := range p.callers {
		if o.waiting && o.session == u.session && o.came < u.came {
			return false
		}
	}
	return u.waiting && (p.permits == 0 || p.inUse(u.session)+u.waits.n <= p.permits)
}

// free reports whether a try gets what it asks for.
func (p *quietProgram) free(u *caller, w way) bool {
	if u.reads+u.writes > 0 {
		return true
	}
	for _, o := range p.callers {
		if o.waiting && o.session == u.session || p.asks(o) || o.writes > 0 || w.write && o.reads > 0 {
			return false
		}
	}
	return p.permits == 0 || p.inUse(-1)+w.n <= p.permits
}

func (c *caller) count(w way, sign int) {
	switch {
	case c.m != nil:
		c.permits += sign * w.n
	case w.write:
		c.writes += sign
	default:
		c.reads += sign
	}
}

func (p *quietProgram) try(u *caller, w way) {
	want, begun := p.free(u, w), time.Now()
	p.do(u, func() {
		var ok bool
		var err error
		switch {
		case u.m != nil:
			ok, err = u.m.TryAcquire(u.ctx, w.n)
		case w.write:
			ok, err = u.l.TryLock(u.ctx)
		default:
			ok, err = u.l.TryRLock(u.ctx)
		}
		if errors.Is(err, reentrant.ErrUpgrade) {
			return
		}
		p.check(err == nil && ok == want && time.Since(begun) == 0, "%s tries %d, write %v: %v, %v, after %v", u.name, w.n, w.write, ok, err, time.Since(begun))
		if ok {
			u.count(w, 1)
		}
	})
}

func (p *quietProgram) wait(u *caller, w way) {
	ctx, cancel := context.WithCancel(u.ctx)
	u.waits, u.waiting, u.came, u.leave = w, true, p.steps, cancel
	for _, o := range p.callers {
		o.others = o.others || p.permits > 0 || p.needs(u, o) // for a moment, if not for longer
	}
	p.do(u, func() {
		defer cancel()
		var err error
		switch {
		case u.m != nil:
			err = u.m.Acquire(ctx, w.n)
		case w.write:
			err = u.l.Lock(ctx)
		default:
			err = u.l.RLock(ctx)
		}
		p.say("%s waited: %v", u.name, err)
		if u.waiting = false; err == nil {
			u.count(w, 1)
		}
	})
}

func (p *quietProgram) give(u *caller) {
	w := way{write: u.writes > 0 && (u.reads == 0 || p.rnd.IntN(2) == 0), n: 1 + p.rnd.IntN(max(1, u.permits))}
	u.count(w, -1)
	p.do(u, func() {
		var err error
		switch {
		case u.m != nil:
			err = u.m.Release(u.ctx, w.n)
		case w.write:
			err = u.l.Unlock(u.ctx)
		default:
			err = u.l.RUnlock(u.ctx)
		}
		p.check(err == nil, "%s gives: %v", u.name, err)
	})
}

func (p *quietProgram) step() {
	u, w := p.callers[p.rnd.IntN(len(p.callers))], way{write: p.rnd.IntN(2) == 0, n: 1 + p.rnd.IntN(max(1, p.permits))}
	p.steps++
	p.say("%s", u.name)
	switch {
	case u.waiting && p.rnd.IntN(3) == 0:
		u.leave()
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
	case u.waiting:
	case p.watches && u.wanted == nil && u.reads+u.writes+u.permits > 0 && p.rnd.IntN(2) == 0:
		p.watch(u)
	case u.reads+u.writes+u.permits > 0 && p.rnd.IntN(3) > 0:
		p.give(u)
	case p.rnd.IntN(2) == 0 || w.write && u.reads > 0 && u.writes == 0:
		p.try(u, w)
	default:
		p.wait(u, w)
	}
	synctest.Wait()
	p.checkWaiting()
	if p.watches {
		p.checkWanted()
	}
}

// watch makes a caller ask whether others wait. It first lets time pass, because a waiter of another session that got its
// permits counts for some time more.
func (p *quietProgram) watch(u *caller) {
	time.Sleep(30 * time.Second)
	p.do(u, func() {
		if u.m != nil {
			u.wanted = u.m.Wanted()
		} else {
			u.wanted = u.l.Wanted(u.ctx)
		}
	})
	u.others = false
	p.say("%s watches", u.name)
}

// needs reports whether o waits for what u has: for a side that u has, or for permits that callers of u's session have.
func (p *quietProgram) needs(o, u *caller) bool {
	switch {
	case !o.waiting || o == u && p.permits == 0:
		return false
	case p.permits == 0:
		return u.writes > 0 || o.waits.write
	case o.session != u.session:
		return p.asks(o)
	}
	return true
}

// checkWanted checks that each caller that watches knows that others wait, if and only if another has waited since it asked.
func (p *quietProgram) checkWanted() {
	for _, u := range p.callers {
		left := u.reads+u.writes == 0
		if p.permits > 0 {
			left = p.inUse(u.session) == 0
		}
		if u.wanted != nil && left {
			u.wanted = nil
		}
		if u.wanted == nil {
			continue
		}
		now := slices.ContainsFunc(p.callers, func(o *caller) bool { return p.needs(o, u) })
		u.others = u.others || now
		if !now && unasked(u.wanted) {
			continue
		}
		if now && unasked(u.wanted) {
			time.Sleep(25 * time.Second)
			synctest.Wait()
		}
		p.check(unasked(u.wanted) != u.others, "%s is told: %v, and others have waited: %v", u.name, !unasked(u.wanted), u.others)
		if !unasked(u.wanted) && p.permits > 0 { // a side has one channel
			u.wanted = nil
		}
	}
}

// checkWaiting checks that not all waiters could have what they wait for.
func (p *quietProgram) checkWaiting() {
	waits, could := 0, 0
	for _, u := range p.callers {
		if !p.asks(u) {
			continue
		}
		waits++
		fits := p.permits == 0 || p.inUse(-1)+u.waits.n <= p.permits
		for _, o := range p.callers {
			fits = fits && o.writes == 0 && (!u.waits.write || o.reads == 0)
		}
		if fits {
			could++
		}
	}
	p.check(waits == 0 || could < waits, "%d wait for what is free", waits)
}

func (p *quietProgram) run() {
	b := memory.New(memory.WithTrace(func(line string) { p.say("    %s", line) }))
	for i := range 1 + p.rnd.IntN(4) {
		s := newSession(p.t, b, reentrant.WithLease(time.Minute), reentrant.WithHeartbeat(20*time.Second))
		for j := range 1 + p.rnd.IntN(3) {
			u := &caller{name: fmt.Sprintf("%c%d", 'A'+i, j), session: i, ctx: p.t.Context(), work: make(chan func(), 1), l: s.NewRWLock("x")}
			if p.permits > 0 {
				u.m = s.NewSemaphore("x", p.permits)
			}
			if p.rnd.IntN(2) == 0 {
				u.ctx = reentrant.WithOwner(u.ctx, u.name)
			}
			go func() {
				for f := range u.work {
					f()
				}
			}()
			defer close(u.work)
			p.callers = append(p.callers, u)
		}
	}
	for range 40 {
		p.step()
	}
	for _, u := range p.callers {
		if u.waiting {
			u.leave()
			synctest.Wait() // what it leaves may come to the next one
		}
	}
	for _, u := range p.callers {
		for u.reads+u.writes+u.permits > 0 {
			p.give(u)
		}
	}
}

// A try is refused only if another caller, of any session, uses what the try asks for, or waits. That is known at once, in
// whatever order callers took, tried, gave back and left.
func TestTriesOfRandomProgramsHaveTheRightResultAtOnce(t *testing.T) {
	for kind, permits := range map[string]int{"locks": 0, "permits": 6} {
		t.Run(kind, func(t *testing.T) {
			for seed := range uint64(testsize.Of(2000, 100)) {
				synctest.Test(t, func(t *testing.T) {
					p := &quietProgram{t: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 0)), permits: min(permits, 1+int(seed%6))}
					p.run()
				})
				if t.Failed() {
					return
				}
			}
		})
	}
}

// The channel of Wanted is closed within a heartbeat if, and only if, another caller waits.
func TestWantedOfRandomProgramsIsClosedIfOthersWait(t *testing.T) {
	for kind, permits := range map[string]int{"locks": 0, "permits": 6} {
		t.Run(kind, func(t *testing.T) {
			for seed := range uint64(testsize.Of(2000, 100)) {
				synctest.Test(t, func(t *testing.T) {
					p := &quietProgram{t: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 1)), permits: min(permits, 1+int(seed%6)), watches: true}
					p.run()
				})
				if t.Failed() {
					return
				}
			}
		})
	}
}
