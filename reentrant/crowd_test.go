package reentrant_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/reentrant"
)

// A processor is the only processor of a server: it executes commands one after the other, in virtual time. Each command takes
// longer than on a real server (see docs/performance.md); one that asks who waits takes lookTime more for each session.
type processor struct {
	crowd int

	mu   sync.Mutex
	done time.Time     // when the commands that have arrived are executed
	busy time.Duration // how long all commands took together
}

const commandTime, lookTime = 50 * time.Microsecond, time.Microsecond

// serve makes an op wait for its turn.
func (p *processor) serve(op memory.Op) memory.Verdict {
	cost := commandTime
	switch op.Verb {
	case memory.Push:
		return memory.Pass
	case memory.Inspect:
		cost += time.Duration(p.crowd) * lookTime
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.done.Before(now) {
		p.done = now
	}
	p.done = p.done.Add(cost)
	p.busy += cost
	return memory.Delay(p.done.Sub(now))
}

func (p *processor) busyTime() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy
}

// losses counts the holds that sessions report as lost, and those that they cannot renew.
type losses struct{ n atomic.Int64 }

func (l *losses) Observe(_ context.Context, e reentrant.Event) {
	if e.Kind == reentrant.EventLost || e.Kind == reentrant.EventRenewalFailing {
		l.n.Add(1)
	}
}

// A crowded is a name that one session holds while many others wait for it.
type crowded struct {
	hold func(ctx context.Context, s *reentrant.Session, fn func(ctx context.Context) error) error
	wait func(ctx context.Context, s *reentrant.Session, i int) error
}

var everyKind = map[string]crowded{
	"Lock": {
		hold: func(ctx context.Context, s *reentrant.Session, fn func(ctx context.Context) error) error {
			return s.NewLock("x").Do(ctx, fn)
		},
		wait: func(ctx context.Context, s *reentrant.Session, _ int) error { return s.NewLock("x").Lock(ctx) },
	},
	"RWLock": {
		hold: func(ctx context.Context, s *reentrant.Session, fn func(ctx context.Context) error) error {
			return s.NewRWLock("x").Do(ctx, fn)
		},
		wait: func(ctx context.Context, s *reentrant.Session, i int) error {
			if i%2 == 0 {
				return s.NewRWLock("x").RLock(ctx)
			}
			return s.NewRWLock("x").Lock(ctx)
		},
	},
	"Semaphore": {
		hold: func(ctx context.Context, s *reentrant.Session, fn func(ctx context.Context) error) error {
			return s.NewSemaphore("x", 3).Do(ctx, 3, fn)
		},
		wait: func(ctx context.Context, s *reentrant.Session, _ int) error {
			return s.NewSemaphore("x", 3).Acquire(ctx, 1)
		},
	},
}

// A live holder among many sessions that wait for its name keeps its hold for many leases, and they take little of the
// server's time: each sends a command at each heartbeat, and one more, which asks for the holder, when it has waited for a
// lease.
func TestNoFalseLossWithAThousandWaitingSessions(t *testing.T) {
	for name, c := range everyKind {
		t.Run(name, func(t *testing.T) { synctest.Test(t, c.keepsItsHold) })
	}
}

func (c crowded) keepsItsHold(t *testing.T) {
	const lease, leases = 3 * time.Second, 4
	crowd := testsize.Of(1000, 100)
	heartbeat := time.Duration(crowd) * time.Millisecond // so that the crowd sends as many commands a second at each size
	p, lost := &processor{crowd: crowd}, &losses{}
	b := memory.New(memory.WithFault(p.serve))
	join := func() *reentrant.Session {
		return newSession(t, b, reentrant.WithLease(lease), reentrant.WithHeartbeat(heartbeat), reentrant.WithObserver(lost))
	}
	ctx, stop := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	err := c.hold(t.Context(), join(), func(held context.Context) error {
		for i := range crowd {
			s := join()
			waiting.Go(func() { assert.ErrorIs(t, c.wait(ctx, s, i), context.Canceled) })
		}
		synctest.Wait()
		began, before, busy := time.Now(), b.Commands(), p.busyTime()
		time.Sleep(leases * lease)
		synctest.Wait()
		elapsed := time.Since(began)
		t.Logf("%d commands in %v, %d%% of the server", b.Commands()-before, elapsed, (p.busyTime()-busy)*100/elapsed)
		assert.LessOrEqual(t, p.busyTime()-busy, elapsed*15/100)
		stop()
		waiting.Wait()
		return held.Err()
	})
	require.NoError(t, err)
	assert.Zero(t, lost.n.Load())
}
