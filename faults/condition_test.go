package faults

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant"
)

// Three sessions share a bounded buffer with two conditions, while connections are killed and scripts flushed. Every item comes
// out once, in the order in which it went in.
func TestABoundedBufferOverThreeSessionsWhileConnectionsAreKilled(t *testing.T) {
	srv := server(t)
	c := client(t, srv.Addr())
	var sessions []*reentrant.Session
	for range 3 {
		sessions = append(sessions, session(t, srv.Addr(), enduring()...))
	}
	var s section
	nemesis, stop := context.WithCancel(t.Context())
	var nemeses sync.WaitGroup
	nemeses.Go(func() { disturb(nemesis, c, &s) })

	items, capacity := rounds(600), 5
	var stock, out []int // guarded by the lock under test
	next := 0
	var wg sync.WaitGroup
	for _, session := range sessions {
		l := session.NewLock("buffer")
		notFull, notEmpty := l.NewCondition("not full"), l.NewCondition("not empty")
		wg.Go(func() {
			for turn(t, &s, l, notFull, notEmpty, func() bool { return len(stock) < capacity || next == items }, func() bool {
				if next == items {
					return false
				}
				stock = append(stock, next)
				next++
				return true
			}) {
			}
		})
		wg.Go(func() {
			for turn(t, &s, l, notEmpty, notFull, func() bool { return len(stock) > 0 || len(out) == items }, func() bool {
				if len(out) == items {
					return false
				}
				out = append(out, stock[0])
				stock = stock[1:]
				return true
			}) {
			}
		})
	}
	wg.Wait()
	stop()
	nemeses.Wait()
	s.verify(t)
	require.Len(t, out, items)
	for i, item := range out {
		require.Equal(t, i, item)
	}
	eventually(t, func() bool { return len(keys(t, c, "buffer")) == 0 }, "no ticket or place is left")
}

// turn waits under the lock until ready returns true, calls work, and signals the other side. When all the work is done, turn
// signals all waiters of both sides, and returns false.
func turn(t *testing.T, s *section, l *reentrant.Lock, wait, tell *reentrant.Condition, ready, work func() bool) bool {
	ctx := t.Context()
	if !assert.NoError(t, l.Lock(ctx)) {
		return false
	}
	for !ready() {
		if !assert.NoError(t, wait.Await(ctx)) {
			return false
		}
	}
	token, err := l.Token(ctx)
	assert.NoError(t, err)
	if s.inside.Add(1) != 1 {
		s.overlaps.Add(1)
	}
	if token < s.token { // a turn that waited has a new token; a turn that did not wait may be the second within one hold
		s.fallen.Add(1)
	}
	s.token = token
	more := work()
	s.passed.Add(1)
	s.inside.Add(-1)
	if more {
		assert.NoError(t, tell.Signal(ctx))
	} else {
		assert.NoError(t, wait.SignalAll(ctx))
		assert.NoError(t, tell.SignalAll(ctx))
	}
	if err := l.Unlock(ctx); err != nil && !backend.OutcomeUnknown(err) {
		assert.NoError(t, err)
	}
	return more
}

// Two processes signal each other. A round trip is two signals and two awaits, for which the sessions send four commands: the
// lock is pushed.
func TestARoundTripOfSignalsIsFourCommands(t *testing.T) {
	srv := server(t)
	c := client(t, srv.Addr())
	const trips = 200
	var ball int // guarded by the lock under test: its parity says whose turn it is
	play := func(player int, l *reentrant.Lock) {
		ctx := t.Context()
		moved := l.NewCondition("moved")
		assert.NoError(t, l.Lock(ctx))
		for ball < 2*trips {
			if ball%2 == player {
				ball++
				assert.NoError(t, moved.Signal(ctx))
			} else {
				assert.NoError(t, moved.Await(ctx))
			}
		}
		assert.NoError(t, moved.Signal(ctx))
		assert.NoError(t, orLater(l.Unlock)(ctx))
	}
	a, b := session(t, srv.Addr(), lasting()...).NewLock("ball"), session(t, srv.Addr(), lasting()...).NewLock("ball")
	n := fewestEvals(t, c, func() {
		ball = 0
		var wg sync.WaitGroup
		wg.Go(func() { play(0, a) })
		wg.Go(func() { play(1, b) })
		wg.Wait()
	})
	assert.LessOrEqual(t, float64(n), 4.1*trips, "with the commands at the beginning and at the end")
}
