package reentrant_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// Sessions × owners × sections, where half of the messages never arrive and a third of the waits are cancelled, always
// end; and while somebody waits the lock is never unused for longer than two heartbeats: one that a session sleeps over
// what it was not told, and one more if the owner who would have found out is cancelled, and what it had goes to another
// session, which is not told either. Each further owner who is cancelled meanwhile may cost one more. A session that
// lingers and is not told to stop does so for as long as it may. Commands take no time here, so that is exact.
func TestEverybodyGetsTheirTurnAndNobodySleepsWhileTheLockIsFree(t *testing.T) {
	for name, mode := range map[string]struct {
		opts   []reentrant.Option
		linger time.Duration
	}{
		"registered": {nil, 0},
		"one each":   {[]reentrant.Option{reentrant.WithHandoffs(1)}, 0},
		"cohort":     {[]reentrant.Option{reentrant.WithCohort()}, 0},
		"linger":     {[]reentrant.Option{reentrant.WithCohort(), reentrant.WithLinger(time.Second)}, time.Second},
	} {
		opts := append(mode.opts, reentrant.WithLease(5*time.Second), reentrant.WithHeartbeat(drainHeartbeat))
		for _, fair := range []bool{true, false} {
			for seed := range uint64(2) {
				t.Run(fmt.Sprintf("%s, fair=%v", name, fair), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { newDrain(t, seed, fair, opts).run(mode.linger) })
				})
			}
		}
	}
}

const drainHeartbeat = 500 * time.Millisecond

// A drain is one such run.
type drain struct {
	*testing.T
	locks []*reentrant.Lock // one of each session

	mu        sync.Mutex
	random    *rand.Rand
	inside    int
	since     time.Time // when somebody was last seen inside, or nobody waiting
	cancelled int       // owners, since then
}

func newDrain(t *testing.T, seed uint64, fair bool, opts []reentrant.Option) *drain {
	d := &drain{T: t, random: rand.New(rand.NewPCG(seed, 7)), since: time.Now()}
	b := memory.New(memory.WithFault(func(op memory.Op) memory.Verdict {
		if op.Verb == memory.Push && d.roll(2) == 0 {
			return memory.Lose
		}
		return memory.Pass
	}))
	for range 3 {
		d.locks = append(d.locks, newSession(t, b, opts...).NewLock("drain", reentrant.WithFairness(fair)))
	}
	return d
}

func (d *drain) roll(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.random.IntN(n)
}

// run ends when everybody has had all their sections: a lost one would never, and the test with it.
func (d *drain) run(linger time.Duration) {
	var owners sync.WaitGroup
	for _, l := range d.locks {
		for range 5 {
			owners.Go(func() { d.owner(l) })
		}
	}
	watching, stop := context.WithCancel(d.Context())
	var watch sync.WaitGroup
	watch.Go(func() { d.watch(watching, linger) })
	owners.Wait()
	stop()
	watch.Wait()
}

func (d *drain) owner(l *reentrant.Lock) {
	for sections := 0; sections < 20; {
		ctx, cancel := d.Context(), context.CancelFunc(func() {})
		if d.roll(3) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(d.roll(1000))*time.Millisecond)
		}
		if l.Lock(ctx) == nil {
			d.move(1)
			time.Sleep(time.Duration(d.roll(30)) * time.Millisecond)
			d.move(-1)
			assert.NoError(d, l.Unlock(ctx))
			sections++
		} else {
			d.cancel()
		}
		cancel()
	}
}

func (d *drain) move(by int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inside += by
	d.since, d.cancelled = time.Now(), 0
	assert.LessOrEqual(d, d.inside, 1, "nobody else is inside")
}

func (d *drain) cancel() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cancelled++
}

// watch looks every millisecond whether somebody sleeps longer.
func (d *drain) watch(ctx context.Context, linger time.Duration) {
	for ctx.Err() == nil {
		time.Sleep(time.Millisecond)
		waiting := 0
		for _, l := range d.locks {
			waiting += l.QueueLength()
		}
		d.mu.Lock()
		if d.inside > 0 || waiting == 0 {
			d.since, d.cancelled = time.Now(), 0
		}
		idle, most := time.Since(d.since), linger+drainHeartbeat*time.Duration(max(2, 1+d.cancelled))
		d.mu.Unlock()
		if idle > most+time.Millisecond {
			assert.Fail(d, "the lock is free and somebody sleeps", "%d wait, for %v", waiting, idle)
			return
		}
	}
}
