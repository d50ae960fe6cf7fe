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
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/reentrant"
)

// Sessions × owners × sections, where half of the messages never arrive and a third of the waits are cancelled, always end;
// and while an owner waits, the lock is never unused for longer than two heartbeats: one in which a session sleeps because
// its message was lost, and one more if the owner that would have found out is cancelled, and the message to the next session
// is lost too. A session that keeps an idle lock, and misses the message that asks for it, keeps it for as long as it may.
// Commands take no time here, so these times are exact.
func TestEveryOwnerGetsItsTurnAndNoneSleepsWhileTheLockIsFree(t *testing.T) {
	const heartbeat, linger = 500 * time.Millisecond, time.Second
	const sleep = 2 * heartbeat
	for name, mode := range map[string]struct {
		opts  []reentrant.Option
		sleep time.Duration
	}{
		"registered": {nil, sleep},
		"one each":   {[]reentrant.Option{reentrant.WithTurn(1, 0)}, sleep},
		"cohort":     {[]reentrant.Option{reentrant.WithCohort()}, sleep},
		"async":      {[]reentrant.Option{reentrant.WithAsyncUnlock()}, sleep},
		"alone":      {[]reentrant.Option{reentrant.WithLinger(linger)}, linger + sleep},
		"linger":     {[]reentrant.Option{reentrant.WithCohort(), reentrant.WithLinger(linger)}, linger + sleep},
	} {
		opts := append(mode.opts, reentrant.WithLease(5*time.Second), reentrant.WithHeartbeat(heartbeat))
		for _, fair := range []bool{true, false} {
			for seed := range uint64(testsize.Of(2, 1)) {
				t.Run(fmt.Sprintf("%s, fair=%v", name, fair), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { newDrain(t, seed, fair, opts).run(mode.sleep) })
				})
			}
		}
	}
}

// A drain is one run of TestEveryOwnerGetsItsTurnAndNoneSleepsWhileTheLockIsFree.
type drain struct {
	*testing.T
	locks []*reentrant.Lock // one of each session

	mu     sync.Mutex
	random *rand.Rand
	inside int
	since  time.Time // when last an owner was seen inside, or none was waiting
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

// run ends when all owners have had all their sections. If a wake-up is lost for good, it never ends.
func (d *drain) run(sleep time.Duration) {
	var owners sync.WaitGroup
	for _, l := range d.locks {
		for range 5 {
			owners.Go(func() { d.owner(l) })
		}
	}
	watching, stop := context.WithCancel(d.Context())
	var watch sync.WaitGroup
	watch.Go(func() { d.watch(watching, sleep) })
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
		}
		cancel()
	}
}

func (d *drain) move(by int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inside += by
	d.since = time.Now()
	assert.LessOrEqual(d, d.inside, 1, "no other owner is inside")
}

// watch checks every millisecond that the lock has not been unused for longer than sleep while an owner waits.
func (d *drain) watch(ctx context.Context, sleep time.Duration) {
	for ctx.Err() == nil {
		time.Sleep(time.Millisecond)
		waiting := 0
		for _, l := range d.locks {
			waiting += l.QueueLength()
		}
		d.mu.Lock()
		if d.inside > 0 || waiting == 0 {
			d.since = time.Now()
		}
		idle := time.Since(d.since)
		d.mu.Unlock()
		if idle > sleep+time.Millisecond {
			assert.Fail(d, "the lock is free and a waiter sleeps", "%d wait, for %v", waiting, idle)
			return
		}
	}
}
