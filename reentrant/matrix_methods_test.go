package reentrant_test

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant"
)

// A row is one way to call one function or method of the package.
type row struct {
	name   string // Type.Method or Function, then what distinguishes rows of the same method
	state  state  // prepares the lock far/x before the call
	bound  bound
	call   func(c *cell) (ok bool, err error)
	want   error    // the error that the call returns if nothing fails; nil: it succeeds
	busy   bool     // if nothing fails it returns false, since another owner has the lock
	gains  holdings // what the caller has gained after a success
	gives  holdings // what the caller has gained whatever the error is, unless that is ErrNotHeld
	sends  bool     // the call cannot succeed without a reply of the node
	reads  bool     // its commands change nothing
	again  bool     // the call tries again while the node cannot be reached
	awaits bool     // the call ends with a signal
	waits  bool     // the call ends when the other session or owner releases the lock
	ends   bool     // the call ends the session
	idle   bool     // the end of its context cannot cut the call short
	blind  bool     // every result is possible
	asks   bool     // the result is whether the lock is held
	late   bool     // the failure begins half a second after the call
	opens  bool     // the call is made by a session that the failure does not affect yet
}

// A state is what the caller, another owner of its session (the neighbour) and the other session hold before a call.
type state struct {
	name    string
	prepare func(c *cell)
	holds   int // what the caller has
}

var (
	stateHeld      = state{name: "held", holds: 1, prepare: func(c *cell) { c.must(c.lock.Lock(c.home)) }}
	stateHeldTwice = state{name: "held-twice", holds: 2, prepare: func(c *cell) {
		c.must(c.lock.Lock(c.home))
		c.must(c.lock.Lock(c.home))
	}}
	stateHeldAll = state{name: "held", holds: 1, prepare: func(c *cell) { c.must(c.multi.Lock(c.home)) }}
	// The other session has the lock.
	stateTaken = state{name: "taken", prepare: func(c *cell) { c.must(c.theirs.Lock(c.stranger)) }}
	// The other session has the lock, and the caller has another lock, so the two could wait for each other.
	stateTakenHolding = state{name: "taken-holding", prepare: func(c *cell) {
		stateTaken.prepare(c)
		c.must(c.second.Lock(c.home))
	}}
	// Another owner of the same session has the lock.
	stateTakenHere = state{name: "taken-here", prepare: func(c *cell) { c.must(c.lock.Lock(c.neighbour)) }}
	// The caller has the lock, and another session waits for its condition.
	stateAwaited = state{name: "awaited", holds: 1, prepare: func(c *cell) {
		c.must(c.theirs.Lock(c.stranger))
		c.background(func() {
			_, _ = c.theirs.NewCondition("c").AwaitFor(c.stranger, time.Minute)
			_ = c.theirs.Unlock(c.stranger)
		})
		c.must(c.lock.Lock(c.home))
	}}
	// The caller has the lock, and another session waits for it.
	stateWanted = state{name: "wanted", holds: 1, prepare: func(c *cell) {
		stateHeld.prepare(c)
		c.inLine(c.theirs.Lock, c.theirs.Unlock)
	}}
	// The caller's portable owner has the lock in the other session.
	stateElsewhere = state{name: "elsewhere", prepare: func(c *cell) {
		c.home = reentrant.WithPortableOwner(context.Background(), "traveller")
		c.must(c.theirs.Lock(c.home))
	}}
	// The caller's portable owner does not have the lock in any session.
	stateNowhere = state{name: "nowhere", prepare: func(c *cell) {
		c.home = reentrant.WithPortableOwner(context.Background(), "traveller")
	}}
	// The caller's portable owner has the lock in this session.
	statePortable = state{name: "held", holds: 1, prepare: func(c *cell) {
		c.home = reentrant.WithPortableOwner(context.Background(), "traveller")
		c.must(c.lock.Lock(c.home))
	}}
	// Another owner of the session waited for the lock, and left when the node had begun to fail. No owner has the
	// lock.
	stateLeft = state{name: "left", prepare: func(c *cell) {
		c.must(c.theirs.Lock(c.stranger))
		ctx, leave := context.WithCancel(c.neighbour)
		c.background(func() { _ = c.lock.Lock(ctx) })
		time.Sleep(time.Millisecond)
		c.upset = func() {
			leave()
			synctest.Wait()
			if err := c.theirs.Unlock(c.stranger); !c.failure.forgets {
				c.must(err)
			}
		}
	}}
	// Another owner of the session has the lock, and a third one waits.
	stateQueued = state{name: "queued", prepare: func(c *cell) {
		stateTakenHere.prepare(c)
		c.background(func() {
			ctx, cancel := context.WithTimeout(reentrant.WithOwner(context.Background(), "queued"), time.Minute)
			defer cancel()
			if c.lock.Lock(ctx) == nil {
				_ = c.lock.Unlock(ctx)
			}
		})
		time.Sleep(time.Millisecond)
	}}
)

const cellPatience = 2 * time.Second // the time limit of calls that have one

// done returns the result of a call that returns only an error.
func done(err error) (bool, error) { return err == nil, err }

// some returns the result of a call that cannot fail.
func some(...any) (bool, error) { return true, nil }

// caught returns the panic of f as an error.
func caught(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = p.(error)
		}
	}()
	f()
	return nil
}

// nothing is a function for Do.
func nothing(ctx context.Context) error { return context.Cause(ctx) }

// rows is the table of methods. The bounds are those of the methods' documentation.
var rows = slices.Concat(lockRows, sharedRows)

var lockRows = []row{
	// A session.
	{name: "NewSession", opens: true, sends: true, reads: true, bound: boundOpen, call: func(c *cell) (bool, error) {
		s, err := reentrant.NewSession(c.nodes)
		if err == nil {
			_ = s.Close(context.Background())
		}
		return done(err)
	}},
	{name: "Session.ID", bound: boundAtOnce, call: func(c *cell) (bool, error) { return some(c.a.ID()) }},
	{name: "Session.String", bound: boundAtOnce, call: func(c *cell) (bool, error) { return c.a.String() != "", nil }},
	{name: "Session.NewLock", bound: boundAtOnce, call: func(c *cell) (bool, error) { return some(c.a.NewLock("far/other")) }},
	{name: "Session.Stats", bound: boundAtOnce, state: stateHeld, call: func(c *cell) (bool, error) { return some(c.a.Stats()) }},
	{name: "Session.InspectAll", asks: true, bound: boundOneCommand, state: stateTaken, sends: true, reads: true, call: func(c *cell) (bool, error) {
		st, err := c.a.InspectAll(c.ctx, "near/x", "far/x")
		if err != nil {
			return false, err
		}
		return st[1].Locked, st[1].Err
	}},
	{name: "Session.InspectAll-none", bound: boundAtOnce, call: func(c *cell) (bool, error) { st, err := c.a.InspectAll(c.ctx); return len(st) == 0, err }},
	{name: "Session.Close-idle", idle: true, bound: boundClose, ends: true, call: closeIt},
	{name: "Session.Close-held", bound: boundClose, ends: true, state: stateTakenHere, call: closeIt},
	{name: "Session.Close-queued", bound: boundClose, ends: true, state: stateQueued, call: closeIt},

	// Taking a lock.
	{name: "Lock.Lock-free", bound: boundCtx, sends: true, again: true, gains: holdings{aHold: 1}, call: lockIt},
	{name: "Lock.Lock-noted", bound: boundCtx, sends: true, again: true, gains: holdings{aHold: 1}, call: func(c *cell) (bool, error) {
		return done(c.lock.Lock(reentrant.WithNote(c.ctx, "note")))
	}},
	{name: "Lock.Lock-held", bound: boundCtx, state: stateHeld, sends: true, again: true, gains: holdings{aHold: 1}, call: lockIt},
	{name: "Lock.Lock-taken", bound: boundCtx, state: stateTaken, waits: true, sends: true, again: true, gains: holdings{aHold: 1}, call: lockIt},
	{name: "Lock.Lock-taken-here", bound: boundCtx, state: stateTakenHere, waits: true, again: true, gains: holdings{aHold: 1}, call: lockIt},
	{name: "Lock.Lock-taken-holding", bound: boundCtx, state: stateTakenHolding, waits: true, sends: true, again: true, gains: holdings{aHold: 1}, call: lockIt},
	{name: "Lock.Lock-waiting", bound: boundCtx, state: stateTaken, late: true, waits: true, sends: true, again: true, gains: holdings{aHold: 1}, call: lockIt},
	{name: "Lock.TryLock-free", bound: boundOneCommand, sends: true, gains: holdings{aHold: 1}, call: func(c *cell) (bool, error) { return c.lock.TryLock(c.ctx) }},
	{name: "Lock.TryLock-held", bound: boundOneCommand, state: stateHeld, sends: true, again: true, gains: holdings{aHold: 1}, call: func(c *cell) (bool, error) { return c.lock.TryLock(c.ctx) }},
	{name: "Lock.TryLock-taken", bound: boundOneCommand, state: stateTaken, busy: true, gains: holdings{aHold: 1}, sends: true, call: func(c *cell) (bool, error) { return c.lock.TryLock(c.ctx) }},
	{name: "Lock.TryLock-taken-here", bound: boundCheck, state: stateTakenHere, busy: true, call: func(c *cell) (bool, error) { return c.lock.TryLock(c.ctx) }},
	{name: "Lock.TryLockFor-free", bound: boundLimit, sends: true, again: true, gains: holdings{aHold: 1}, call: func(c *cell) (bool, error) { return c.lock.TryLockFor(c.ctx, cellPatience) }},
	{name: "Lock.TryLockFor-now", bound: boundOneCommand, sends: true, gains: holdings{aHold: 1}, call: func(c *cell) (bool, error) { return c.lock.TryLockFor(c.ctx, 0) }},
	{name: "Lock.TryLockFor-taken", bound: boundLimit, state: stateTaken, busy: true, gains: holdings{aHold: 1}, sends: true, again: true, call: func(c *cell) (bool, error) { return c.lock.TryLockFor(c.ctx, cellPatience) }},
	{name: "Lock.TryLockFor-waiting", bound: boundLimit, state: stateTaken, late: true, busy: true, gains: holdings{aHold: 1}, again: true, call: func(c *cell) (bool, error) { return c.lock.TryLockFor(c.ctx, cellPatience) }},
	{name: "Lock.TryLockFor-taken-here", bound: boundLimit, state: stateTakenHere, busy: true, call: func(c *cell) (bool, error) { return c.lock.TryLockFor(c.ctx, cellPatience) }},
	{name: "Locker.Lock", bound: boundCtx, sends: true, again: true, gains: holdings{aHold: 1}, call: func(c *cell) (bool, error) { return done(caught(c.lock.Locker(c.ctx).Lock)) }},
	{name: "Lock.Locker", bound: boundAtOnce, call: func(c *cell) (bool, error) { return some(c.lock.Locker(c.ctx)) }},
	{name: "Lock.Do-free", bound: boundCtxAndUnlock, sends: true, again: true, call: func(c *cell) (bool, error) { return done(c.lock.Do(c.ctx, nothing)) }},
	{name: "Lock.Do-held", bound: boundCtxAndUnlock, state: stateHeld, sends: true, again: true, call: func(c *cell) (bool, error) { return done(c.lock.Do(c.ctx, nothing)) }},
	{name: "Lock.Do-taken", bound: boundCtxAndUnlock, state: stateTaken, waits: true, sends: true, again: true, call: func(c *cell) (bool, error) { return done(c.lock.Do(c.ctx, nothing)) }},
	{name: "DoValue-free", bound: boundCtxAndUnlock, sends: true, again: true, call: func(c *cell) (bool, error) {
		return reentrant.DoValue(c.ctx, c.lock.Do, func(ctx context.Context) (bool, error) { return true, nothing(ctx) })
	}},
	{name: "DoValue-taken", bound: boundCtxAndUnlock, state: stateTaken, waits: true, sends: true, again: true, call: func(c *cell) (bool, error) {
		return reentrant.DoValue(c.ctx, c.lock.Do, func(ctx context.Context) (bool, error) { return true, nothing(ctx) })
	}},
	{name: "Lock.TryDo-free", bound: boundCommandAndUnlock, sends: true, call: func(c *cell) (bool, error) { return c.lock.TryDo(c.ctx, nothing) }},
	{name: "Lock.TryDo-taken", bound: boundOneCommand, state: stateTaken, busy: true, sends: true, call: func(c *cell) (bool, error) { return c.lock.TryDo(c.ctx, nothing) }},
	{name: "Lock.TryDoFor-free", bound: boundLimitAndUnlock, sends: true, again: true, call: func(c *cell) (bool, error) { return c.lock.TryDoFor(c.ctx, cellPatience, nothing) }},
	{name: "Lock.TryDoFor-taken", bound: boundLimitAndUnlock, state: stateTaken, busy: true, sends: true, again: true, call: func(c *cell) (bool, error) { return c.lock.TryDoFor(c.ctx, cellPatience, nothing) }},
	{name: "Lock.TryLock-left", bound: boundTwoCommands, state: stateLeft, sends: true, gains: holdings{aHold: 1}, call: func(c *cell) (bool, error) { return c.lock.TryLock(c.ctx) }},
	{name: "Lock.TryLockFor-left", bound: boundLimit, state: stateLeft, sends: true, again: true, gains: holdings{aHold: 1}, call: func(c *cell) (bool, error) { return c.lock.TryLockFor(c.ctx, cellPatience) }},
	{name: "Lock.Lock-left", bound: boundCtx, state: stateLeft, sends: true, again: true, gains: holdings{aHold: 1}, call: lockIt},
	{name: "Lock.Resume-elsewhere", bound: boundCtx, state: stateElsewhere, sends: true, again: true, gains: holdings{aHold: 1}, call: func(c *cell) (bool, error) { return done(c.lock.Resume(c.ctx)) }},
	{name: "Lock.Resume-held", bound: boundCtx, state: statePortable, sends: true, again: true, call: func(c *cell) (bool, error) { return done(c.lock.Resume(c.ctx)) }},
	{name: "Lock.Resume-nowhere", bound: boundCtx, state: stateNowhere, want: reentrant.ErrNotHeld, sends: true, again: true, call: func(c *cell) (bool, error) { return done(c.lock.Resume(c.ctx)) }},
	{name: "Lock.Resume-waiting-here", bound: boundCtx, state: state{name: "taken-here", prepare: func(c *cell) { stateNowhere.prepare(c); stateTakenHere.prepare(c) }}, want: reentrant.ErrNotHeld, call: func(c *cell) (bool, error) { return done(c.lock.Resume(c.ctx)) }},

	// Releasing a lock.
	{name: "Lock.Unlock-held", bound: boundUnlock, state: stateHeld, sends: true, gains: holdings{aHold: -1}, gives: holdings{aHold: -1}, call: unlockIt},
	{name: "Lock.Unlock-held-twice", bound: boundUnlock, state: stateHeldTwice, sends: true, gains: holdings{aHold: -1}, gives: holdings{aHold: -1}, call: unlockIt},
	{name: "Lock.Unlock-free", bound: boundAtOnce, want: reentrant.ErrNotHeld, call: unlockIt},
	{name: "Lock.Unlock-taken-here", bound: boundAtOnce, state: stateTakenHere, want: reentrant.ErrNotHeld, call: unlockIt},
	{name: "Locker.Unlock", bound: boundUnlock, state: stateHeld, sends: true, gains: holdings{aHold: -1}, gives: holdings{aHold: -1}, call: func(c *cell) (bool, error) { return done(caught(c.lock.Locker(c.ctx).Unlock)) }},

	// The caller's own hold.
	{name: "Lock.HoldCount", bound: boundAtOnce, state: stateHeld, call: func(c *cell) (bool, error) { return c.lock.HoldCount(c.ctx) == 1, nil }},
	{name: "Lock.IsHeldByCurrentOwner", bound: boundAtOnce, state: stateHeld, call: func(c *cell) (bool, error) { return c.lock.IsHeldByCurrentOwner(c.ctx), nil }},
	{name: "Lock.Token", bound: boundAtOnce, state: stateHeld, call: func(c *cell) (bool, error) { _, err := c.lock.Token(c.ctx); return done(err) }},
	{name: "Lock.Token-free", bound: boundAtOnce, want: reentrant.ErrNotHeld, call: func(c *cell) (bool, error) { _, err := c.lock.Token(c.ctx); return done(err) }},
	{name: "Lock.TrustedUntil", bound: boundAtOnce, state: stateHeld, call: func(c *cell) (bool, error) { _, err := c.lock.TrustedUntil(c.ctx); return done(err) }},
	{name: "Lock.Lost", bound: boundAtOnce, state: stateHeld, call: func(c *cell) (bool, error) { return stillOpen(c.lock.Lost(c.ctx)), nil }},
	{name: "Lock.Wanted", bound: boundAtOnce, state: stateHeld, call: func(c *cell) (bool, error) { return some(c.lock.Wanted(c.ctx)) }},
	{name: "Lock.Wanted-free", bound: boundAtOnce, call: func(c *cell) (bool, error) { return !stillOpen(c.lock.Wanted(c.ctx)), nil }},
	{name: "Lock.Wanted-queued", bound: boundAtOnce, state: stateQueued, call: func(c *cell) (bool, error) { return !stillOpen(c.lock.Wanted(c.neighbour)), nil }},
	{name: "Lock.Wanted-there", idle: true, bound: boundWanted, state: stateWanted, again: true, call: func(c *cell) (bool, error) {
		select {
		case <-c.lock.Wanted(c.ctx):
			return true, nil
		case <-c.lock.Lost(c.ctx):
			return false, reentrant.ErrLost
		case <-c.ctx.Done():
			return false, c.ctx.Err()
		}
	}},
	{name: "Lock.Verify", bound: boundOneCommand, state: stateHeld, sends: true, reads: true, call: func(c *cell) (bool, error) { return done(c.lock.Verify(c.ctx)) }},
	{name: "Lock.Verify-free", bound: boundAtOnce, want: reentrant.ErrNotHeld, call: func(c *cell) (bool, error) { return done(c.lock.Verify(c.ctx)) }},

	// This process's queue.
	{name: "Lock.Name", bound: boundAtOnce, call: func(c *cell) (bool, error) { return c.lock.Name() == "far/x", nil }},
	{name: "Lock.String", bound: boundAtOnce, state: stateHeld, call: func(c *cell) (bool, error) { return c.lock.String() != "", nil }},
	{name: "Lock.IsFair", bound: boundAtOnce, call: func(c *cell) (bool, error) { return c.lock.IsFair(), nil }},
	{name: "Lock.HasQueuedOwners", bound: boundAtOnce, state: stateQueued, call: func(c *cell) (bool, error) { return c.lock.HasQueuedOwners(), nil }},
	{name: "Lock.HasQueuedOwner", bound: boundAtOnce, state: stateQueued, call: func(c *cell) (bool, error) {
		return c.lock.HasQueuedOwner(reentrant.CurrentOwner(reentrant.WithOwner(context.Background(), "queued"))), nil
	}},
	{name: "Lock.QueueLength", bound: boundAtOnce, state: stateQueued, call: func(c *cell) (bool, error) { return c.lock.QueueLength() == 1, nil }},
	{name: "Lock.QueuedOwners", bound: boundAtOnce, state: stateQueued, call: func(c *cell) (bool, error) { return len(c.lock.QueuedOwners()) == 1, nil }},
	{name: "Lock.NewCondition", bound: boundAtOnce, call: func(c *cell) (bool, error) { return some(c.lock.NewCondition("d")) }},
	{name: "Lock.HasWaiters", bound: boundAtOnce, state: stateHeld, busy: true, call: func(c *cell) (bool, error) { return c.lock.HasWaiters(c.cond) }},
	{name: "Lock.WaitQueueLength", bound: boundAtOnce, state: stateHeld, call: func(c *cell) (bool, error) { _, err := c.lock.WaitQueueLength(c.cond); return done(err) }},
	{name: "Lock.WaitingOwners", bound: boundAtOnce, state: stateHeld, call: func(c *cell) (bool, error) { _, err := c.lock.WaitingOwners(c.cond); return done(err) }},

	// The whole deployment's view.
	{name: "Lock.IsLocked", asks: true, bound: boundOneCommand, state: stateTaken, sends: true, reads: true, call: func(c *cell) (bool, error) { return c.lock.IsLocked(c.ctx) }},
	{name: "Lock.Inspect", asks: true, bound: boundOneCommand, state: stateTaken, sends: true, reads: true, call: func(c *cell) (bool, error) { st, err := c.lock.Inspect(c.ctx); return st.Locked, err }},
	{name: "Lock.ForceUnlock", blind: true, asks: true, bound: boundOneCommand, state: stateTaken, sends: true, call: func(c *cell) (bool, error) { return c.lock.ForceUnlock(c.ctx) }},

	// Conditions.
	{name: "Condition.Await-held", bound: boundAwait, state: stateHeld, awaits: true, sends: true, again: true, call: func(c *cell) (bool, error) { return done(c.cond.Await(c.ctx)) }},
	{name: "Condition.Await-waiting", bound: boundAwait, state: stateHeld, late: true, awaits: true, again: true, call: func(c *cell) (bool, error) { return done(c.cond.Await(c.ctx)) }},
	{name: "Condition.Await-held-twice", bound: boundAwait, state: stateHeldTwice, late: true, awaits: true, again: true, call: func(c *cell) (bool, error) { return done(c.cond.Await(c.ctx)) }},
	{name: "Condition.Await-free", bound: boundCheck, want: reentrant.ErrNotHeld, call: func(c *cell) (bool, error) { return done(c.cond.Await(c.ctx)) }},
	{name: "Condition.AwaitFor-held", bound: boundAwaitFor, state: stateHeld, busy: true, sends: true, again: true, call: func(c *cell) (bool, error) { return c.cond.AwaitFor(c.ctx, cellPatience) }},
	{name: "Condition.AwaitFor-waiting", bound: boundAwaitFor, state: stateHeld, late: true, busy: true, again: true, call: func(c *cell) (bool, error) { return c.cond.AwaitFor(c.ctx, cellPatience) }},
	{name: "Condition.AwaitFor-free", bound: boundCheck, want: reentrant.ErrNotHeld, call: func(c *cell) (bool, error) { return c.cond.AwaitFor(c.ctx, cellPatience) }},
	{name: "Condition.AwaitUninterruptibly-held", bound: boundNone, state: stateHeld, awaits: true, sends: true, again: true, call: func(c *cell) (bool, error) { return done(c.cond.AwaitUninterruptibly(c.ctx)) }},
	{name: "Condition.AwaitUninterruptibly-waiting", bound: boundNone, state: stateHeld, late: true, awaits: true, again: true, call: func(c *cell) (bool, error) { return done(c.cond.AwaitUninterruptibly(c.ctx)) }},
	{name: "Condition.Signal-awaited", blind: true, bound: boundSignal, state: stateAwaited, sends: true, again: true, call: func(c *cell) (bool, error) { return done(c.cond.Signal(c.ctx)) }},
	{name: "Condition.Signal-free", bound: boundAtOnce, want: reentrant.ErrNotHeld, call: func(c *cell) (bool, error) { return done(c.cond.Signal(c.ctx)) }},
	{name: "Condition.SignalAll-awaited", blind: true, bound: boundSignal, state: stateAwaited, sends: true, again: true, call: func(c *cell) (bool, error) { return done(c.cond.SignalAll(c.ctx)) }},
	{name: "Condition.Name", bound: boundAtOnce, call: func(c *cell) (bool, error) { return c.cond.Name() == "c", nil }},
	{name: "Condition.String", bound: boundAtOnce, call: func(c *cell) (bool, error) { return c.cond.String() != "", nil }},

	// Several locks: one on the node that fails, and one on the other.
	{name: "NewMultiLock", bound: boundAtOnce, call: func(c *cell) (bool, error) { return some(reentrant.NewMultiLock(c.lock, c.second)) }},
	{name: "MultiLock.Lock-free", bound: boundCtxAndUnlock, sends: true, again: true, gains: holdings{aHold: 1}, call: func(c *cell) (bool, error) { return done(c.multi.Lock(c.ctx)) }},
	{name: "MultiLock.Lock-held", bound: boundCtxAndUnlock, state: stateHeldAll, sends: true, again: true, gains: holdings{aHold: 1}, call: func(c *cell) (bool, error) { return done(c.multi.Lock(c.ctx)) }},
	{name: "MultiLock.Lock-taken", bound: boundCtxAndUnlock, state: stateTaken, waits: true, sends: true, again: true, gains: holdings{aHold: 1}, call: func(c *cell) (bool, error) { return done(c.multi.Lock(c.ctx)) }},
	{name: "MultiLock.TryLock-free", bound: boundOneCommand, sends: true, gains: holdings{aHold: 1}, call: func(c *cell) (bool, error) { return c.multi.TryLock(c.ctx) }},
	{name: "MultiLock.TryLock-taken", bound: boundOneCommand, state: stateTaken, busy: true, gains: holdings{aHold: 1}, sends: true, call: func(c *cell) (bool, error) { return c.multi.TryLock(c.ctx) }},
	{name: "MultiLock.TryLockFor-free", bound: boundLimit, sends: true, again: true, gains: holdings{aHold: 1}, call: func(c *cell) (bool, error) { return c.multi.TryLockFor(c.ctx, cellPatience) }},
	{name: "MultiLock.TryLockFor-taken", bound: boundLimit, state: stateTaken, busy: true, gains: holdings{aHold: 1}, sends: true, again: true, call: func(c *cell) (bool, error) { return c.multi.TryLockFor(c.ctx, cellPatience) }},
	{name: "MultiLock.Unlock-held", bound: boundUnlock, state: stateHeldAll, sends: true, gains: holdings{aHold: -1}, gives: holdings{aHold: -1}, call: func(c *cell) (bool, error) { return done(c.multi.Unlock(c.ctx)) }},
	{name: "MultiLock.Unlock-free", bound: boundAtOnce, want: reentrant.ErrNotHeld, call: func(c *cell) (bool, error) { return done(c.multi.Unlock(c.ctx)) }},
	{name: "MultiLock.Do-free", bound: boundCtxAndUnlock, sends: true, again: true, call: func(c *cell) (bool, error) { return done(c.multi.Do(c.ctx, nothing)) }},
	{name: "MultiLock.Do-taken", bound: boundCtxAndUnlock, state: stateTaken, waits: true, sends: true, again: true, call: func(c *cell) (bool, error) { return done(c.multi.Do(c.ctx, nothing)) }},
	{name: "MultiLock.HoldCount", bound: boundAtOnce, state: stateHeldAll, call: func(c *cell) (bool, error) { return c.multi.HoldCount(c.ctx) == 1, nil }},
	{name: "MultiLock.IsHeldByCurrentOwner", bound: boundAtOnce, state: stateHeldAll, call: func(c *cell) (bool, error) { return c.multi.IsHeldByCurrentOwner(c.ctx), nil }},
	{name: "MultiLock.TrustedUntil", bound: boundAtOnce, state: stateHeldAll, call: func(c *cell) (bool, error) { _, err := c.multi.TrustedUntil(c.ctx); return done(err) }},
	{name: "MultiLock.Verify", bound: boundTwoCommands, state: stateHeldAll, sends: true, reads: true, call: func(c *cell) (bool, error) { return done(c.multi.Verify(c.ctx)) }},
	{name: "MultiLock.Lost", bound: boundAtOnce, state: stateHeldAll, call: func(c *cell) (bool, error) { return stillOpen(c.multi.Lost(c.ctx)), nil }},
	{name: "TryAny-free", bound: boundTwoCommands, sends: true, gains: holdings{aHold: 1}, call: func(c *cell) (bool, error) { return c.tryAny(c.lock, c.third) }},
	{name: "TryAny-taken", bound: boundOneCommand, state: stateTaken, gains: holdings{aHold: 1}, sends: true, want: reentrant.ErrNotAcquired, call: func(c *cell) (bool, error) { return c.tryAny(c.lock) }},
	{name: "TryAnyFor-free", bound: boundCommandThenLimit, sends: true, again: true, gains: holdings{aHold: 1}, call: func(c *cell) (bool, error) { return c.tryAnyFor(c.lock, c.third) }},
	{name: "TryAnyFor-taken", bound: boundCommandThenLimit, state: stateTaken, sends: true, again: true, gains: holdings{aHold: 1}, want: reentrant.ErrNotAcquired, call: func(c *cell) (bool, error) { return c.tryAnyFor(c.lock) }},

	// Values.
	{name: "WithOwner", bound: boundAtOnce, call: func(c *cell) (bool, error) { return some(reentrant.WithOwner(c.ctx, "o")) }},
	{name: "WithNote", bound: boundAtOnce, call: func(c *cell) (bool, error) { return some(reentrant.WithNote(c.ctx, "note")) }},
	{name: "WithPortableOwner", bound: boundAtOnce, call: func(c *cell) (bool, error) { return some(reentrant.WithPortableOwner(c.ctx, "o")) }},
	{name: "CurrentOwner", bound: boundAtOnce, call: func(c *cell) (bool, error) { return some(reentrant.CurrentOwner(c.ctx)) }},
	{name: "Owner.String", bound: boundAtOnce, call: func(c *cell) (bool, error) { return reentrant.CurrentOwner(c.ctx).String() != "", nil }},
	{name: "OutcomeUnknown", bound: boundAtOnce, call: func(*cell) (bool, error) { return !backend.OutcomeUnknown(errors.New("x")), nil }},
	{name: "WithOutcomeUnknown", bound: boundAtOnce, call: func(*cell) (bool, error) {
		return backend.OutcomeUnknown(backend.WithOutcomeUnknown(errors.New("x"))), nil
	}},
	{name: "Refused", bound: boundAtOnce, call: func(*cell) (bool, error) { return !backend.Refused(errors.New("x")), nil }},
	{name: "WithRefused", bound: boundAtOnce, call: func(*cell) (bool, error) { return backend.Refused(backend.WithRefused(errors.New("x"))), nil }},
	{name: "Error.Error", bound: boundAtOnce, call: func(*cell) (bool, error) {
		return (&reentrant.Error{Op: "o", Err: reentrant.ErrLost}).Error() != "", nil
	}},
	{name: "Error.Unwrap", bound: boundAtOnce, call: func(*cell) (bool, error) {
		return errors.Is((&reentrant.Error{Err: reentrant.ErrLost}).Unwrap(), reentrant.ErrLost), nil
	}},
	{name: "DeadlockError.Error", bound: boundAtOnce, call: func(*cell) (bool, error) { return (&reentrant.DeadlockError{}).Error() != "", nil }},
	{name: "Token.Scan", bound: boundAtOnce, call: func(*cell) (bool, error) { return done(new(backend.Token).Scan(int64(7))) }},
	{name: "Token.Value", bound: boundAtOnce, call: func(*cell) (bool, error) { _, err := backend.Token(7).Value(); return done(err) }},
	{name: "State.String", bound: boundAtOnce, call: func(*cell) (bool, error) { return reentrant.State{}.String() != "", nil }},
	{name: "State.Kept", bound: boundAtOnce, call: func(*cell) (bool, error) { return !reentrant.State{}.Kept(), nil }},
	{name: "SharedState.String", bound: boundAtOnce, call: func(*cell) (bool, error) { return reentrant.SharedState{}.String() != "", nil }},
	{name: "EventKind.String", bound: boundAtOnce, call: func(*cell) (bool, error) { return reentrant.EventLost.String() != "", nil }},
	{name: "Mode.String", bound: boundAtOnce, call: func(*cell) (bool, error) { return reentrant.ModeRead.String() != "", nil }},

	// Options. What they accept is in TestOptionsAtTheirEdges; here they are only called.
	{name: "WithLease", bound: boundAtOnce, call: func(*cell) (bool, error) { return some(reentrant.WithLease(cellLease)) }},
	{name: "WithHeartbeat", bound: boundAtOnce, call: func(*cell) (bool, error) { return some(reentrant.WithHeartbeat(cellHeartbeat)) }},
	{name: "WithTurn", bound: boundAtOnce, call: func(*cell) (bool, error) { return some(reentrant.WithTurn(1, 1)) }},
	{name: "WithSpin", bound: boundAtOnce, call: func(*cell) (bool, error) { return some(reentrant.WithSpin(1)) }},
	{name: "WithPortableHoldsLeft", bound: boundAtOnce, call: func(*cell) (bool, error) { return some(reentrant.WithPortableHoldsLeft()) }},
	{name: "WithProfilerLabels", bound: boundAtOnce, call: func(*cell) (bool, error) { return some(reentrant.WithProfilerLabels()) }},
	{name: "WithCohort", bound: boundAtOnce, call: func(*cell) (bool, error) { return some(reentrant.WithCohort()) }},
	{name: "WithLinger", bound: boundAtOnce, call: func(*cell) (bool, error) { return some(reentrant.WithLinger(1)) }},
	{name: "WithAsyncUnlock", bound: boundAtOnce, call: func(*cell) (bool, error) { return some(reentrant.WithAsyncUnlock()) }},
	{name: "WithDeadlockDetection", bound: boundAtOnce, call: func(*cell) (bool, error) { return some(reentrant.WithDeadlockDetection()) }},
	{name: "WithExplicitOwners", bound: boundAtOnce, call: func(*cell) (bool, error) { return some(reentrant.WithExplicitOwners()) }},
	{name: "WithName", bound: boundAtOnce, call: func(*cell) (bool, error) { return some(reentrant.WithName("web")) }},
	{name: "WithAfterClose", bound: boundAtOnce, call: func(*cell) (bool, error) { return some(reentrant.WithAfterClose(func() {})) }},
	{name: "WithLogger", bound: boundAtOnce, call: func(*cell) (bool, error) { return some(reentrant.WithLogger(slog.New(slog.DiscardHandler))) }},
	{name: "WithObserver", bound: boundAtOnce, call: func(*cell) (bool, error) { return some(reentrant.WithObserver(nil)) }},
	{name: "WithFixedLease", bound: boundAtOnce, call: func(*cell) (bool, error) { return some(reentrant.WithFixedLease(cellLease)) }},
	{name: "WithAtLeast", bound: boundAtOnce, call: func(*cell) (bool, error) { return some(reentrant.WithAtLeast(cellLease)) }},
	{name: "WithMaxWaiting", bound: boundAtOnce, call: func(*cell) (bool, error) { return some(reentrant.WithMaxWaiting(1)) }},
	{name: "WithFairness", bound: boundAtOnce, call: func(*cell) (bool, error) { return some(reentrant.WithFairness(true)) }},
}

func lockIt(c *cell) (bool, error)   { return done(c.lock.Lock(c.ctx)) }
func unlockIt(c *cell) (bool, error) { return done(c.lock.Unlock(c.ctx)) }
func closeIt(c *cell) (bool, error)  { return done(c.a.Close(c.ctx)) }

func (c *cell) tryAny(locks ...*reentrant.Lock) (bool, error) {
	got, err := reentrant.TryAny(c.ctx, locks...)
	return c.first(got, err, locks)
}

func (c *cell) tryAnyFor(locks ...*reentrant.Lock) (bool, error) {
	got, err := reentrant.TryAnyFor(c.ctx, cellPatience, locks...)
	return c.first(got, err, locks)
}

// first reports whether the first of several locks was acquired. If another lock was acquired, first releases that lock.
func (c *cell) first(got *reentrant.Lock, err error, locks []*reentrant.Lock) (bool, error) {
	if got != nil && got != locks[0] {
		if c.failure.name == "none" {
			c.errorf("%v was got, although the first was free", got)
		}
		_ = got.Unlock(c.home)
	}
	return done(err)
}

func stillOpen(c <-chan struct{}) bool {
	select {
	case <-c:
		return false
	default:
		return true
	}
}

// apiTypes are the types whose methods must be in the table, with the names that rows use. Interfaces of the package
// are left out: others implement them.
var apiTypes = map[string]reflect.Type{
	"Session": reflect.TypeFor[*reentrant.Session](), "Lock": reflect.TypeFor[*reentrant.Lock](),
	"Condition": reflect.TypeFor[*reentrant.Condition](), "MultiLock": reflect.TypeFor[*reentrant.MultiLock](),
	"Token": reflect.TypeFor[*backend.Token](), "Owner": reflect.TypeFor[reentrant.Owner](), "Error": reflect.TypeFor[*reentrant.Error](),
	"DeadlockError": reflect.TypeFor[*reentrant.DeadlockError](), "EventKind": reflect.TypeFor[reentrant.EventKind](), "Mode": reflect.TypeFor[reentrant.Mode](),
	"Locker": reflect.TypeFor[sync.Locker](), "State": reflect.TypeFor[reentrant.State](),
	"RWLock": reflect.TypeFor[*reentrant.RWLock](), "Semaphore": reflect.TypeFor[*reentrant.Semaphore](), "Slot": reflect.TypeFor[reentrant.Slot](),
}
