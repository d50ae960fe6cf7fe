package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// newMonitor returns the monitor of a worker that Redis sees as a process of its own.
func newMonitor(t *testing.T, url, wait, wake string) *monitor {
	return monitorOf(join(t, url).Session, wait, wake)
}

func monitorOf(session *reentrant.Session, wait, wake string) *monitor {
	lock := session.NewLock(lockName)
	return &monitor{lock: lock, wait: lock.NewCondition(wait), wake: lock.NewCondition(wake),
		waits: new(atomic.Int64), lost: new(atomic.Int64)}
}

// A patient is a worker that waits until there is an item.
type patient struct {
	*monitor
	item atomic.Bool
	done chan error
}

// admit starts a patient, and returns when it waits.
func admit(t *testing.T, url string) *patient {
	t.Helper()
	p := &patient{monitor: newMonitor(t, url, "not empty", "not full"), done: make(chan error, 1)}
	go func() {
		_, err := p.turn(t.Context(), func(context.Context, uint64) (outcome, error) {
			if !p.item.Load() {
				return blocked, nil
			}
			return moved, nil
		})
		p.done <- err
	}()
	require.Eventually(t, func() bool { return p.unsignalled(t) }, time.Minute, time.Millisecond)
	return p
}

// unsignalled reports whether a worker waits for the patient's condition and has not been signalled. If Redis does not reply in
// time, for example because the machine stands still, unsignalled asks again.
func (p *patient) unsignalled(t *testing.T) (waits bool) {
	for begun := time.Now(); ; {
		err := p.lock.Do(t.Context(), func(context.Context) (err error) {
			waits, err = p.lock.HasWaiters(p.wait)
			return err
		})
		if !errors.Is(err, reentrant.ErrUnavailable) || time.Since(begun) > time.Minute {
			assert.NoError(t, err)
			return waits
		}
	}
}

// wakes asserts that the patient has been signalled, and waits until it has its item.
func (p *patient) wakes(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return !p.unsignalled(t) }, testsize.Patience(30*time.Second), time.Millisecond,
		"the patient is signalled: its session may learn of it a moment later")
	select {
	case err := <-p.done:
		require.NoError(t, err)
	case <-time.After(testsize.Patience(30 * time.Second)):
		t.Fatal("the patient was not woken")
	}
}

func idle(context.Context, uint64) (outcome, error) { return finished, nil }

// One process puts an item and dies before it sends the signal. The process that replaces it finds nothing left to do, but must
// signal the worker that waits for the item.
func TestTheNextProcessRepeatsTheSignalOfADeadOne(t *testing.T) {
	t.Parallel()
	url := "redis://" + redistest.Start(t).Addr()
	consumer := admit(t, url)
	consumer.item.Store(true)

	next := newMonitor(t, url, "not full", "not empty")
	more, err := next.turn(t.Context(), idle)
	require.NoError(t, err)
	assert.False(t, more)
	consumer.wakes(t)
}

// If a hold is lost between an item and the item's signal, or a step comes too late, the worker makes another turn. This turn
// first repeats the signal.
func TestALostTurnIsMadeUpFor(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]error{"Lost": reentrant.ErrLost, "Stale": errStale} {
		t.Run(name, func(t *testing.T) {
			url := "redis://" + redistest.Start(t).Addr()
			m := newMonitor(t, url, "not full", "not empty")
			_, err := m.turn(t.Context(), idle) // sends the signals that are due at the start
			require.NoError(t, err)
			consumer := admit(t, url)

			turns := 0
			more, err := m.turn(t.Context(), func(context.Context, uint64) (outcome, error) {
				if turns++; turns == 1 {
					consumer.item.Store(true)
					return 0, lost
				}
				return finished, nil
			})
			require.NoError(t, err)
			assert.False(t, more)
			assert.Equal(t, 2, turns)
			assert.EqualValues(t, 1, m.lost.Load())
			consumer.wakes(t)
		})
	}
}

func TestEachWaitEndsWithAHoldOfItsOwn(t *testing.T) {
	t.Parallel()
	url := "redis://" + redistest.Start(t).Addr()
	consumer := newMonitor(t, url, "not empty", "not full")
	producer := newMonitor(t, url, "not full", "not empty")
	var tokens []uint64
	put := make(chan error, 1)
	more, err := consumer.turn(t.Context(), func(_ context.Context, token uint64) (outcome, error) {
		tokens = append(tokens, token)
		if len(tokens) > 1 {
			return moved, nil
		}
		go func() {
			_, err := producer.turn(t.Context(), func(context.Context, uint64) (outcome, error) { return moved, nil })
			put <- err
		}()
		return blocked, nil
	})
	require.NoError(t, err)
	require.NoError(t, <-put)
	assert.True(t, more)
	assert.Greater(t, tokens[1], tokens[0])
	assert.EqualValues(t, 1, consumer.waits.Load())
}

func TestOtherErrorsEndTheTurn(t *testing.T) {
	t.Parallel()
	m := newMonitor(t, "redis://"+redistest.Start(t).Addr(), "not full", "not empty")
	_, err := m.turn(t.Context(), func(context.Context, uint64) (outcome, error) { return 0, assert.AnError })
	require.ErrorIs(t, err, assert.AnError)
	assert.False(t, m.lock.IsHeldByCurrentOwner(t.Context()))
}

// A silent backend does not reply to releases.
type (
	silent       struct{ backend.Backend }
	silentConn   struct{ backend.Conn }
	silentRemote struct {
		backend.Remote
		backend.Conditions
	}
)

func (s silent) Connect(ctx context.Context, session string, sink backend.Sink) (backend.Conn, error) {
	conn, err := s.Backend.Connect(ctx, session, sink)
	return silentConn{conn}, err
}

func (s silentConn) Bind(name string) (backend.Remote, error) {
	remote, err := s.Conn.Bind(name)
	return silentRemote{remote, remote.(backend.Conditions)}, err
}

func (silentRemote) Release(context.Context, backend.ReleaseRequest) (backend.ReleaseResult, error) {
	return 0, backend.WithOutcomeUnknown(assert.AnError)
}

// Whatever Unlock returns, the step is made, and the hold has ended.
func TestATurnEndsWithoutAnAnswerToItsUnlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		session, err := reentrant.NewSession(silent{redistest.InBubble(t).Backend()}, reentrant.WithLease(time.Minute))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, session.Close(context.Background())) })
		m := monitorOf(session, "not full", "not empty")
		for range 2 {
			steps := 0
			more, err := m.turn(t.Context(), func(context.Context, uint64) (outcome, error) { steps++; return moved, nil })
			require.NoError(t, err)
			assert.True(t, more)
			assert.Equal(t, 1, steps)
			assert.Zero(t, m.lost.Load())
			require.ErrorIs(t, m.lock.Do(t.Context(), func(context.Context) error { return nil }), assert.AnError, "Unlock fails")
		}
		more, err := m.turn(t.Context(), idle)
		require.NoError(t, err)
		assert.False(t, more)
	})
}

func TestAnOpenDoorLooksAgain(t *testing.T) {
	t.Parallel()
	looks := 0
	more, err := openDoor{}.turn(t.Context(), func(_ context.Context, token uint64) (outcome, error) {
		assert.Zero(t, token)
		if looks++; looks < 3 {
			return blocked, nil
		}
		return moved, nil
	})
	require.NoError(t, err)
	assert.True(t, more)
	assert.Equal(t, 3, looks)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = openDoor{}.turn(ctx, func(context.Context, uint64) (outcome, error) { return blocked, nil })
	assert.ErrorIs(t, err, context.Canceled)
}
