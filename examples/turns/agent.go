package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/examples/internal/deployment"
	"github.com/relock-go/relock/fence"
	"github.com/relock-go/relock/reentrant"
)

// errStopped is the error of a turn that another turn has asked to stop.
var errStopped = errors.New("another turn asked this one to stop")

// An agent runs the turns that come to one replica.
type agent struct {
	replica int
	steps   int           // the number of steps of each turn
	step    time.Duration // how long each step takes
	lease   time.Duration
	client  rueidis.Client
	store   *store
	log     *slog.Logger
	alive   context.Context // ends with the replica; the replica's turns end with it

	running sync.WaitGroup
	turns   atomic.Int32 // how many turns wait or run
}

// mostTurns is how many turns of a replica may wait or run before it refuses further turns.
const mostTurns = 50

// close waits for the turns. alive has ended.
func (a *agent) close() {
	a.running.Wait()
	a.client.Close()
	_ = a.store.db.Close()
}

// recover continues the turns that an earlier process of this replica has left unfinished.
func (a *agent) recover() error {
	left, err := a.store.unfinished(a.alive, a.replica)
	for _, t := range left {
		a.start(t)
	}
	return err
}

// start runs a turn in the background. If the replica ends first, its next process continues the turn.
func (a *agent) start(t turn) {
	a.turns.Add(1)
	a.running.Go(func() {
		defer a.turns.Add(-1)
		a.run(a.alive, t)
	})
}

// stateAfter returns the state of a turn that ended with err, which may be nil.
func stateAfter(err error) state {
	switch {
	case err == nil:
		return done
	case errors.Is(err, errStopped):
		return stopped
	case errors.Is(err, reentrant.ErrLost), errors.Is(err, fence.ErrStale):
		return lost
	}
	return failed
}

// run waits until it has the lock of the conversation, does the turn, and records how the turn ended. If ctx ends, the hold is
// left as it is.
func (a *agent) run(ctx context.Context, t turn) {
	// A hold that is pushed to a waiter ends after three heartbeats unless it is renewed, and a waiter that is silent for as
	// long loses its place. So that both can take longer than the default, the heartbeat is set with the lease.
	session, err := deployment.NewSession(a.client, reentrant.WithExplicitOwners(), reentrant.WithLease(a.lease),
		reentrant.WithHeartbeat(a.lease/6), reentrant.WithPortableHoldsLeft(), reentrant.WithLogger(a.log))
	if err != nil {
		a.end(ctx, t, err)
		return
	}
	defer closeNow(session)
	lock := session.NewLock("turns:" + t.Conversation)
	owner := reentrant.WithNote(reentrant.WithPortableOwner(ctx, t.ID), fmt.Sprintf("turn %d, replica %d", t.Number, t.Replica))
	if err = take(owner, lock); err == nil {
		err = a.talk(owner, lock, t)
	}
	if ctx.Err() != nil {
		return
	}
	a.end(ctx, t, err)     // before the next turn begins
	_ = lock.Unlock(owner) // a lock that cannot be given back ends with its lease
}

// end records how a turn ended.
func (a *agent) end(ctx context.Context, t turn, err error) {
	if err != nil {
		a.log.Info("a turn has ended early", "turn", t.Number, "conversation", t.Conversation, "error", err)
	}
	if err := a.store.finish(ctx, t, stateAfter(err)); err != nil {
		a.log.Error("the end of a turn was not written", "turn", t.Number, "error", err)
	}
}

// closeNow closes a session without waiting. Its hold stays, to be resumed, until the lease ends.
func closeNow(session *reentrant.Session) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = session.Close(ended)
}

// take resumes the hold that the turn had before its replica was killed. If there is none, take waits for the lock.
func take(ctx context.Context, lock *reentrant.Lock) error {
	err := lock.Resume(ctx)
	if errors.Is(err, reentrant.ErrNotHeld) {
		return lock.Lock(ctx)
	}
	return err
}

// talk does the steps that the turn has not done yet. It ends when the hold ends.
func (a *agent) talk(ctx context.Context, lock *reentrant.Lock, t turn) error {
	token, err := lock.Token(ctx)
	if err != nil {
		return err
	}
	wanted := lock.Wanted(ctx)
	ctx, cancel := untilLost(ctx, lock)
	defer cancel()
	memory := a.store.memory(t.Conversation)
	said, err := memory.read(ctx, token)
	if err != nil {
		return causeOf(ctx, err)
	}
	if err := a.store.begin(ctx, t, token); err != nil {
		return causeOf(ctx, err)
	}
	for step := stepsOf(said, t.Number) + 1; step <= a.steps; step++ {
		if err := a.think(ctx, wanted, t); err != nil {
			return causeOf(ctx, err)
		}
		said = append(said, line{Turn: t.Number, Step: step})
		if err := memory.write(ctx, token, said); err != nil {
			return causeOf(ctx, err)
		}
	}
	return nil
}

// untilLost returns a context that ends with cause ErrLost when the caller's hold is lost.
func untilLost(ctx context.Context, lock *reentrant.Lock) (context.Context, context.CancelFunc) {
	lost := lock.Lost(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-lost:
			cancel(reentrant.ErrLost)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// causeOf adds the cause of ctx to an error if ctx has ended.
func causeOf(ctx context.Context, err error) error {
	return errors.Join(err, context.Cause(ctx))
}

// think stands for the call of a model. If a new turn begins to wait and has asked this turn to stop, think returns errStopped
// at once. If other turns already wait, the request is noticed only at the next step.
func (a *agent) think(ctx context.Context, wanted <-chan struct{}, t turn) error {
	thought := time.After(a.step)
	for {
		select {
		case <-wanted:
			if stop, err := a.store.askedToStop(ctx, t); err != nil {
				return err
			} else if stop {
				return errStopped
			}
			wanted = nil // the turns that wait have not asked this one to stop
		case <-thought:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stepsOf returns how many steps a turn has done.
func stepsOf(said []line, turn int) int {
	n := 0
	for _, l := range said {
		if l.Turn == turn {
			n++
		}
	}
	return n
}
