package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/reentrant"
)

// An outcome is the result of a step.
type outcome int

const (
	moved    outcome = iota // it moved an item
	blocked                 // it cannot, now: the buffer is full, or empty
	finished                // it never will: there is no more to do
)

// A step looks at the buffer, and moves an item if it can. The token is that of the hold under which the step runs.
type step func(ctx context.Context, token uint64) (outcome, error)

// A turnstile lets one worker at a time make its step.
type turnstile interface {
	// turn waits until the worker can make one step that moves an item. If there is nothing more to do, turn returns false.
	turn(ctx context.Context, step step) (more bool, err error)
}

// A monitor is the turnstile of one worker: the buffer's lock, the condition that the worker waits for when it is
// blocked, and the one that it makes true by its step.
// A worker that puts an item must signal a waiting consumer, and a worker that is signalled must make its step.
// Otherwise a worker waits although there is an item. A SIGKILL can come between an item and its signal, or between a
// wake-up and its step; then a signal is missing, and no process knows it. A hold that is lost on the way has the same
// effect. (A signal to a process that died before it received it is not lost: Redis gives it to the next waiter.) So a
// worker that begins, and one that has lost a hold, first signals all waiters. Since every killed process is replaced,
// each missing signal is made up for. A signal too many does no harm: the worker looks and waits again.
type monitor struct {
	lock *reentrant.Lock
	wait *reentrant.Condition
	wake *reentrant.Condition
	paid bool // the signals of this worker's earlier lives need not be repeated any more

	waits *atomic.Int64 // how often the worker waited for a signal
	lost  *atomic.Int64 // how often a hold was lost before its turn ended
}

func (m *monitor) turn(ctx context.Context, step step) (more bool, err error) {
	for {
		done := false
		err := m.lock.Do(ctx, func(context.Context) (err error) {
			// Do's context ends with the hold. That is not needed here: the fence refuses steps that come too late.
			more, err = m.inside(ctx, step)
			done = err == nil
			return err
		})
		if done && !errors.Is(err, reentrant.ErrLost) {
			// An error can only be that of Unlock, which Redis did not confirm. The hold has still ended here, after a whole step
			// with its signal, so no signal is missing. The other workers get the lock when the lease ends, at the latest.
			return more, nil
		}
		if !errors.Is(err, reentrant.ErrLost) && !errors.Is(err, errStale) {
			return more, err
		}
		// The book records whether the step was made, so the next look shows that.
		m.paid = false
		m.lost.Add(1)
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
	}
}

// inside runs under the lock.
func (m *monitor) inside(ctx context.Context, step step) (more bool, err error) {
	if err := m.pay(ctx); err != nil {
		return false, err
	}
	for {
		token, err := m.lock.Token(ctx) // after each wait the worker has a new hold
		if err != nil {
			return false, err
		}
		found, err := step(ctx, uint64(token))
		switch {
		case err != nil:
			return false, err
		case found == moved:
			return true, m.wake.Signal(ctx)
		case found == finished:
			// The other workers that wait for the same condition must end, too.
			return false, m.wait.SignalAll(ctx)
		}
		m.waits.Add(1)
		if err := m.wait.Await(ctx); err != nil {
			return false, err
		}
	}
}

// pay repeats signals that may be missing.
func (m *monitor) pay(ctx context.Context) error {
	if m.paid {
		return nil
	}
	if err := m.wait.SignalAll(ctx); err != nil {
		return err
	}
	if err := m.wake.SignalAll(ctx); err != nil {
		return err
	}
	m.paid = true
	return nil
}

// An openDoor lets every worker in at once. Without a lock there are no signals, so a worker that is blocked polls.
type openDoor struct{}

const lookAgainEvery = time.Millisecond

func (openDoor) turn(ctx context.Context, step step) (more bool, err error) {
	for {
		found, err := step(ctx, 0)
		if err != nil || found != blocked {
			return found == moved, err
		}
		select {
		case <-time.After(lookAgainEvery):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}
