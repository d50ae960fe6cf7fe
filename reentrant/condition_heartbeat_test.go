package reentrant_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// These tests are about the heartbeat by which a session shows that its waiters for conditions are alive.

// Other owners of the session begin and end their waits all the time, which must not delay the heartbeat.
func TestABusySessionSendsItsHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c := newSession(t, b), newSession(t, b)
		done := awaits(t, owner(t, "w"), a)
		stop, stopped := context.WithCancel(t.Context())
		var busy sync.WaitGroup
		busy.Go(func() {
			ctx, y := owner(t, "busy"), a.NewLock("y")
			for stop.Err() == nil {
				unlock := lockFor(t, ctx, y)
				_, err := y.NewCondition("tick").AwaitFor(ctx, 500*time.Millisecond)
				assert.NoError(t, err)
				unlock()
			}
		})
		time.Sleep(10 * time.Second)
		signals(t, c)
		err, ok := returned(done, 30*time.Second)
		assert.True(t, ok, "the waiter was taken for dead")
		assert.NoError(t, err)
		stopped()
		busy.Wait()
	})
}

func TestOneBeatWithoutAReplyEndsNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c, d := newSession(t, b, reentrant.WithJitter(0)), newSession(t, b), newSession(t, b)
		start := time.Now()
		first, second := awaits(t, owner(t, "first"), a), awaits(t, owner(t, "second"), d)
		n := 0
		b.SetFault(func(op memory.Op) memory.Verdict {
			if op.Verb == memory.Beat && op.Session == "A" {
				if n++; n == 1 {
					return memory.Delay(time.Hour)
				}
			}
			return memory.Pass
		})
		time.Sleep(3100*time.Millisecond - time.Since(start))
		signals(t, c)
		_, ok := returned(first, 500*time.Millisecond)
		assert.True(t, ok, "the longest waiter gets the signal")
		_, both := returned(second, 5*time.Second)
		assert.False(t, both, "and no other waiter")
	})
}

// If the commands of some conditions get no reply, as when a node of a Cluster is gone, the other conditions are not
// delayed.
func TestBeatsWithoutRepliesDelayNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a := newSession(t, b, reentrant.WithJitter(0))
		var all sync.WaitGroup
		for i := range 8 {
			ctx, l := owner(t, "w"), a.NewLock(fmt.Sprint("silent", i))
			all.Go(func() {
				assert.NoError(t, l.Lock(ctx))
				assert.ErrorIs(t, l.NewCondition("ready").Await(ctx), reentrant.ErrLost)
			})
		}
		synctest.Wait()
		done := awaits(t, owner(t, "w"), a)
		var worst time.Duration
		last := time.Now()
		b.SetFault(func(op memory.Op) memory.Verdict {
			switch {
			case op.Verb == memory.Beat && op.Lock == "x":
				worst, last = max(worst, time.Since(last)), time.Now()
			case op.Verb == memory.Beat:
				return memory.Delay(time.Hour)
			}
			return memory.Pass
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Less(t, max(worst, time.Since(last)), 3*time.Second, "the waiter for x sends a heartbeat within its patience")
		closing := time.Now()
		_ = a.Close(ended())
		assert.Less(t, time.Since(closing), 10*time.Second, "Close waits only for the commands under way")
		assert.ErrorIs(t, <-done, reentrant.ErrLost)
		all.Wait()
	})
}

// The heartbeat of a condition with many waiters is split into several commands, so that none of them blocks Redis for
// long.
func TestABeatForManyIsManyCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a := newSession(t, b, reentrant.WithJitter(0))
		l := a.NewLock("x")
		const n = 1234
		var all sync.WaitGroup
		for i := range n {
			ctx := owner(t, fmt.Sprint(i))
			all.Go(func() {
				unlock := lockFor(t, ctx, l)
				assert.NoError(t, l.NewCondition("ready").Await(ctx))
				unlock()
			})
		}
		synctest.Wait()
		before := b.Count(memory.Beat)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, 3, b.Count(memory.Beat)-before)
		time.Sleep(10 * time.Second) // a waiter whose heartbeat was left out would be dead by now
		unlock := lockFor(t, t.Context(), l)
		require.NoError(t, l.NewCondition("ready").SignalAll(t.Context()))
		unlock()
		begun := time.Now()
		all.Wait()
		assert.Less(t, time.Since(begun), time.Second, "all were signalled")
	})
}

// The message of a signal is lost with the connection: when there is a new connection, the session asks at once.
func TestAReopenedChannelAsksForSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		a, c := newSession(t, b, reentrant.WithJitter(0), reentrant.WithHeartbeat(3*time.Second)), newSession(t, b)
		done := awaits(t, owner(t, "w"), a)
		b.SetFault(memory.Script(memory.Push, memory.Lose, memory.Lose))
		signals(t, c)
		_, early := returned(done, 100*time.Millisecond)
		require.False(t, early)
		b.Restart()
		_, ok := returned(done, 100*time.Millisecond)
		assert.True(t, ok, "the waiter had to wait for the next heartbeat")
	})
}
