package reentrant_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/reentrant"
)

// A mode says how the sessions of a test lock.
type mode struct {
	session []reentrant.Option
	lock    []reentrant.LockOption
	rw      bool // they lock the write side of a read-write lock
}

// open returns the monitor with a name.
func (m mode) open(s *reentrant.Session, name string) monitor {
	if m.rw {
		return s.NewRWLock(name)
	}
	return s.NewLock(name, m.lock...)
}

var modes = map[string]mode{
	"plain":  {},
	"cohort": {session: []reentrant.Option{reentrant.WithCohort()}},
	"async":  {session: []reentrant.Option{reentrant.WithAsyncUnlock()}},
	"alone":  {session: []reentrant.Option{reentrant.WithLinger(time.Second)}},
	"linger": {session: []reentrant.Option{reentrant.WithCohort(), reentrant.WithLinger(time.Second)}},
	"unfair": {lock: []reentrant.LockOption{reentrant.WithFairness(false)}},
}

// Permits are handed out under a storm of faults, with one signal each, to waiters of three sessions. In each session
// one owner waits without a limit, one for a limited time, and one until its context ends. Two owners are never inside
// at once, an owner that returns has the holds that it gave up, and at the end no permit is left while an owner waits.
func TestNoSignalIsLostInAStormOfFaults(t *testing.T) {
	storms := map[string][]mode{"mixed": slices.Collect(maps.Values(modes))}
	for name, m := range modes {
		storms[name] = []mode{m}
	}
	storms["write side"] = []mode{{rw: true}}
	for name, sessions := range storms {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(rounds(40)) {
				synctest.Test(t, func(t *testing.T) { newPermits(t, seed).storm(sessions) })
				require.False(t, t.Failed(), "seed %d", seed)
			}
		})
	}
}

// rounds returns n in a test run of full size, and fewer rounds with -short, with the race detector, or in a smaller test
// run.
func rounds(n int) int {
	switch {
	case testing.Short():
		return n / 10
	case raceEnabled:
		return n / 4
	case !testsize.Full():
		return n / 10
	}
	return n
}

// permits are the data that the lock under test guards.
type permits struct {
	*testing.T
	backend *memory.Backend

	mu     sync.Mutex
	random *rand.Rand

	// Guarded by the lock under test.
	left, taken, inside int
}

func newPermits(t *testing.T, seed uint64) *permits {
	p := &permits{T: t, random: rand.New(rand.NewPCG(seed, 3))}
	p.backend = memory.New(memory.WithFault(p.fault))
	return p
}

func (p *permits) roll(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.random.IntN(n)
}

func (p *permits) moment(most time.Duration) time.Duration {
	return time.Duration(p.roll(int(most/time.Millisecond))) * time.Millisecond
}

func (p *permits) fault(op memory.Op) memory.Verdict {
	if op.Verb == memory.Connect {
		return memory.Pass
	}
	d := p.moment(300 * time.Millisecond)
	switch p.roll(24) {
	case 0:
		return memory.LoseReply
	case 1:
		if op.Verb == memory.Push {
			return memory.Lose
		}
	case 2:
		return memory.DelayReply(d)
	case 3:
		return memory.Duplicate(d)
	case 4:
		return memory.Delay(d)
	}
	return memory.Pass
}

func (p *permits) enter() {
	p.inside++
	assert.Equal(p, 1, p.inside, "no other owner is inside")
}

func (p *permits) leave() { p.inside-- }

// storm runs at least three sessions with these modes.
func (p *permits) storm(modes []mode) {
	const each = 13
	sessions := max(3, len(modes))
	ctx, stop := context.WithCancel(context.Background())
	var takers, givers sync.WaitGroup
	for i := range sessions {
		m := modes[i%len(modes)]
		s := newSession(p, p.backend, m.session...)
		l := m.open(s, "x")
		c := l.NewCondition("ready")
		for _, await := range []func() error{
			func() error { return c.Await(ctx) },
			func() error {
				if ok, err := c.AwaitFor(ctx, p.moment(1500*time.Millisecond)); ok || err != nil {
					return err
				}
				return context.DeadlineExceeded
			},
			func() error {
				short, cancel := context.WithTimeout(ctx, p.moment(1500*time.Millisecond))
				defer cancel()
				return c.Await(short)
			},
		} {
			takers.Go(func() {
				for ctx.Err() == nil {
					p.take(ctx, l, await)
				}
			})
		}
		givers.Go(func() {
			for range each {
				time.Sleep(p.moment(800 * time.Millisecond))
				p.give(l, c)
			}
		})
	}
	givers.Wait()
	p.backend.SetFault(nil)
	time.Sleep(30 * time.Second)
	l := modes[0].open(newSession(p, p.backend), "x")
	assert.NoError(p, l.Lock(context.Background()))
	assert.Zero(p, p.left, "a signal was lost: permits are left while three wait forever")
	assert.Equal(p, sessions*each, p.taken+p.left)
	assert.NoError(p, l.Unlock(context.Background()))
	stop()
	takers.Wait()
}

// take takes a permit, or gives up without one.
func (p *permits) take(ctx context.Context, l monitor, await func() error) {
	holds := 0
	for n := 1 + p.roll(3); holds < n && l.Lock(ctx) == nil; holds++ {
	}
	if holds == 0 {
		return
	}
	p.enter()
	var err error
	for p.left == 0 && err == nil {
		p.leave()
		err = await()
		if !assert.NotErrorIs(p, err, reentrant.ErrLost) {
			return
		}
		assert.Equal(p, holds, l.HoldCount(ctx), "the owner has all its holds again")
		p.enter()
	}
	if p.left > 0 && err == nil {
		p.left--
		p.taken++
	}
	p.leave()
	for range holds {
		p.unlock(l)
	}
	if err != nil {
		time.Sleep(p.moment(100 * time.Millisecond))
	}
}

// give adds a permit and signals a waiter.
func (p *permits) give(l monitor, c *reentrant.Condition) {
	if !assert.NoError(p, l.Lock(context.Background())) {
		return
	}
	p.enter()
	p.left++
	p.leave()
	assert.NoError(p, c.Signal(context.Background()))
	p.unlock(l)
}

func (p *permits) unlock(l monitor) {
	if err := l.Unlock(context.Background()); err != nil {
		assert.True(p, backend.OutcomeUnknown(err) && !errors.Is(err, reentrant.ErrLost), "%v", err)
	}
}
