package reentrant_test

import (
	"context"
	"time"

	"github.com/relock-go/relock/reentrant"
)

// The read-write lock and the semaphore of the cells.
func (c *cell) rw() *reentrant.RWLock     { return c.a.NewRWLock("far/rw") }
func (c *cell) sem() *reentrant.Semaphore { return c.a.NewSemaphore("far/sem", 3) }

var (
	// The caller has one side.
	stateReads  = state{name: "reads", prepare: func(c *cell) { c.must(c.rw().RLock(c.home)) }}
	stateWrites = state{name: "writes", prepare: func(c *cell) { c.must(c.rw().Lock(c.home)) }}
	// The other session reads, for long.
	stateReadThere = state{name: "read-there", prepare: func(c *cell) {
		l := c.b.NewRWLock("far/rw")
		c.must(l.RLock(c.stranger))
		c.background(func() {
			time.Sleep(5 * time.Second)
			_ = l.RUnlock(c.stranger)
		})
	}}
	// The other session writes, for long.
	stateWrittenThere = state{name: "written-there", prepare: func(c *cell) {
		l := c.b.NewRWLock("far/rw")
		c.must(l.Lock(c.stranger))
		c.background(func() {
			time.Sleep(5 * time.Second)
			_ = l.Unlock(c.stranger)
		})
	}}
	// Another owner of the session writes, and a third waits.
	stateWrittenHere = state{name: "written-here", prepare: func(c *cell) {
		c.must(c.rw().Lock(c.neighbour))
		c.background(func() {
			time.Sleep(5 * time.Second)
			_ = c.rw().Unlock(c.neighbour)
		})
		c.background(func() {
			ctx := reentrant.WithOwner(context.Background(), "queued")
			if c.rw().RLock(ctx) == nil {
				_ = c.rw().RUnlock(ctx)
			}
		})
		time.Sleep(time.Millisecond)
	}}
	// The session has two permits, or the other has all.
	statePermits = state{name: "permits", prepare: func(c *cell) { c.must(c.sem().Acquire(c.home, 2)) }}
	// Callers of this session have all permits, and another waits for one.
	statePermitsWanted = state{name: "permits-wanted", prepare: func(c *cell) {
		c.must(c.sem().Acquire(c.neighbour, 3))
		c.background(func() {
			time.Sleep(5 * time.Second)
			_ = c.sem().Release(c.neighbour, 3)
		})
		c.background(func() {
			if c.sem().Acquire(context.Background(), 1) == nil {
				_ = c.sem().Release(context.Background(), 1)
			}
		})
		time.Sleep(time.Millisecond)
	}}
	statePermitsThere = state{name: "permits-there", prepare: func(c *cell) {
		m := c.b.NewSemaphore("far/sem", 3)
		c.must(m.Acquire(c.stranger, 3))
		c.background(func() {
			time.Sleep(5 * time.Second)
			_ = m.Release(c.stranger, 3)
		})
	}}
)

// reading, writing and permits are results of a call that gives back what it got.
func reading(c *cell, ok bool, err error) (bool, error) { return c.then(ok, err, c.rw().RUnlock) }
func writing(c *cell, ok bool, err error) (bool, error) { return c.then(ok, err, c.rw().Unlock) }
func permitted(c *cell, ok bool, err error) (bool, error) {
	return c.then(ok, err, func(ctx context.Context) error { return c.sem().Release(ctx, 2) })
}

func (c *cell) then(ok bool, err error, undo func(context.Context) error) (bool, error) {
	if ok && err == nil {
		_ = undo(c.home)
	}
	return ok, err
}

// whileReading makes a call with the read side, which it then gives up; whileWriting makes it with the write side.
func whileReading(ask func(c *cell, l *reentrant.RWLock) (bool, error)) func(c *cell) (bool, error) {
	return func(c *cell) (bool, error) {
		defer func() { _ = c.rw().RUnlock(c.home) }()
		return ask(c, c.rw())
	}
}

func whileWriting(ask func(c *cell, l *reentrant.RWLock) (bool, error)) func(c *cell) (bool, error) {
	return func(c *cell) (bool, error) {
		defer func() { _ = c.rw().Unlock(c.home) }()
		return ask(c, c.rw())
	}
}

// sharedRows are the rows of read-write locks and semaphores.
var sharedRows = []row{
	{name: "Session.NewRWLock", bound: boundAtOnce, call: func(c *cell) (bool, error) { return some(c.rw()) }},
	{name: "RWLock.Name", bound: boundAtOnce, call: func(c *cell) (bool, error) { return c.rw().Name() == "far/rw", nil }},
	{name: "RWLock.Lock-free", bound: boundCtx, sends: true, again: true, call: func(c *cell) (bool, error) { ok, err := done(c.rw().Lock(c.ctx)); return writing(c, ok, err) }},
	{name: "RWLock.Lock-reads", bound: boundAtOnce, state: stateReads, want: reentrant.ErrUpgrade, call: whileReading(func(c *cell, l *reentrant.RWLock) (bool, error) { return done(l.Lock(c.home)) })},
	{name: "RWLock.TryLock-free", bound: boundOneCommand, sends: true, call: func(c *cell) (bool, error) { ok, err := c.rw().TryLock(c.ctx); return writing(c, ok, err) }},
	{name: "RWLock.TryLock-read-there", bound: boundOneCommand, state: stateReadThere, sends: true, busy: true, call: func(c *cell) (bool, error) { ok, err := c.rw().TryLock(c.ctx); return writing(c, ok, err) }},
	{name: "RWLock.TryLock-written-here", bound: boundCheck, state: stateWrittenHere, busy: true, call: func(c *cell) (bool, error) { return c.rw().TryLock(c.ctx) }},
	{name: "RWLock.TryLockFor-free", bound: boundLimit, sends: true, again: true, call: func(c *cell) (bool, error) {
		ok, err := c.rw().TryLockFor(c.ctx, cellPatience)
		return writing(c, ok, err)
	}},
	{name: "RWLock.TryLockFor-now", bound: boundOneCommand, sends: true, call: func(c *cell) (bool, error) { ok, err := c.rw().TryLockFor(c.ctx, 0); return writing(c, ok, err) }},
	{name: "RWLock.TryLockFor-written-there", bound: boundLimit, state: stateWrittenThere, sends: true, again: true, busy: true, call: func(c *cell) (bool, error) {
		ok, err := c.rw().TryLockFor(c.ctx, cellPatience)
		return writing(c, ok, err)
	}},
	{name: "RWLock.RLock-free", bound: boundCtx, sends: true, again: true, call: func(c *cell) (bool, error) { ok, err := done(c.rw().RLock(c.ctx)); return reading(c, ok, err) }},
	{name: "RWLock.RLock-writes", bound: boundAtOnce, state: stateWrites, call: whileWriting(func(c *cell, l *reentrant.RWLock) (bool, error) {
		ok, err := done(l.RLock(c.home))
		return reading(c, ok, err)
	})},
	{name: "RWLock.TryRLock-free", bound: boundOneCommand, sends: true, call: func(c *cell) (bool, error) { ok, err := c.rw().TryRLock(c.ctx); return reading(c, ok, err) }},
	{name: "RWLock.TryRLock-written-there", bound: boundOneCommand, state: stateWrittenThere, sends: true, busy: true, call: func(c *cell) (bool, error) { ok, err := c.rw().TryRLock(c.ctx); return reading(c, ok, err) }},
	{name: "RWLock.TryRLockFor-free", bound: boundLimit, sends: true, again: true, call: func(c *cell) (bool, error) {
		ok, err := c.rw().TryRLockFor(c.ctx, cellPatience)
		return reading(c, ok, err)
	}},
	{name: "RWLock.TryRLockFor-written-there", bound: boundLimit, state: stateWrittenThere, sends: true, again: true, busy: true, call: func(c *cell) (bool, error) {
		ok, err := c.rw().TryRLockFor(c.ctx, cellPatience)
		return reading(c, ok, err)
	}},
	{name: "RWLock.Unlock-writes", bound: boundAtOnce, state: stateWrites, call: func(c *cell) (bool, error) { return done(c.rw().Unlock(c.ctx)) }},
	{name: "RWLock.Unlock-reads", bound: boundAtOnce, state: stateReads, want: reentrant.ErrNotHeld, call: whileReading(func(c *cell, l *reentrant.RWLock) (bool, error) { return done(l.Unlock(c.ctx)) })},
	{name: "RWLock.RUnlock-reads", bound: boundAtOnce, state: stateReads, call: func(c *cell) (bool, error) { return done(c.rw().RUnlock(c.ctx)) }},
	{name: "RWLock.RUnlock-free", bound: boundAtOnce, want: reentrant.ErrNotHeld, call: func(c *cell) (bool, error) { return done(c.rw().RUnlock(c.ctx)) }},
	{name: "RWLock.Do-free", bound: boundCtxAndUnlock, sends: true, again: true, call: func(c *cell) (bool, error) { return done(c.rw().Do(c.ctx, nothing)) }},
	{name: "RWLock.RDo-free", bound: boundCtxAndUnlock, sends: true, again: true, call: func(c *cell) (bool, error) { return done(c.rw().RDo(c.ctx, nothing)) }},
	{name: "RWLock.TryDo-free", bound: boundOneCommand, sends: true, call: func(c *cell) (bool, error) { return c.rw().TryDo(c.ctx, nothing) }},
	{name: "RWLock.TryDo-read-there", bound: boundOneCommand, state: stateReadThere, sends: true, busy: true, call: func(c *cell) (bool, error) { return c.rw().TryDo(c.ctx, nothing) }},
	{name: "RWLock.TryDoFor-written-there", bound: boundLimit, state: stateWrittenThere, sends: true, again: true, busy: true, call: func(c *cell) (bool, error) { return c.rw().TryDoFor(c.ctx, cellPatience, nothing) }},
	{name: "RWLock.TryRDo-free", bound: boundOneCommand, sends: true, call: func(c *cell) (bool, error) { return c.rw().TryRDo(c.ctx, nothing) }},
	{name: "RWLock.TryRDo-written-there", bound: boundOneCommand, state: stateWrittenThere, sends: true, busy: true, call: func(c *cell) (bool, error) { return c.rw().TryRDo(c.ctx, nothing) }},
	{name: "RWLock.TryRDoFor-written-there", bound: boundLimit, state: stateWrittenThere, sends: true, again: true, busy: true, call: func(c *cell) (bool, error) { return c.rw().TryRDoFor(c.ctx, cellPatience, nothing) }},
	{name: "RWLock.Locker", bound: boundAtOnce, call: func(c *cell) (bool, error) { return some(c.rw().Locker(c.ctx)) }},
	{name: "RWLock.RLocker", bound: boundAtOnce, call: func(c *cell) (bool, error) { return some(c.rw().RLocker(c.ctx)) }},
	{name: "RWLock.Lost", bound: boundAtOnce, state: stateReads, call: whileReading(func(c *cell, l *reentrant.RWLock) (bool, error) { return stillOpen(l.Lost(c.home)), nil })},
	{name: "RWLock.Token", bound: boundAtOnce, state: stateWrites, call: whileWriting(func(c *cell, l *reentrant.RWLock) (bool, error) { token, err := l.Token(c.home); return token > 0, err })},
	{name: "RWLock.Version", bound: boundAtOnce, state: stateReads, call: whileReading(func(c *cell, l *reentrant.RWLock) (bool, error) { v, err := l.Version(c.home); return v%2 == 1, err })},
	{name: "RWLock.TrustedUntil", bound: boundAtOnce, state: stateReads, call: whileReading(func(c *cell, l *reentrant.RWLock) (bool, error) {
		at, err := l.TrustedUntil(c.home)
		return at.After(time.Now()), err
	})},
	{name: "RWLock.Verify", bound: boundOneCommand, state: stateReads, sends: true, reads: true, call: whileReading(func(c *cell, l *reentrant.RWLock) (bool, error) { return done(l.Verify(c.ctx)) })},
	{name: "RWLock.Verify-free", bound: boundAtOnce, want: reentrant.ErrNotHeld, call: func(c *cell) (bool, error) { return done(c.rw().Verify(c.ctx)) }},
	{name: "RWLock.HoldCount", bound: boundAtOnce, state: stateWrites, call: whileWriting(func(c *cell, l *reentrant.RWLock) (bool, error) { return l.HoldCount(c.home) == 1, nil })},
	{name: "RWLock.IsHeldByCurrentOwner", bound: boundAtOnce, state: stateWrites, call: whileWriting(func(c *cell, l *reentrant.RWLock) (bool, error) { return l.IsHeldByCurrentOwner(c.home), nil })},
	{name: "RWLock.ReadHoldCount", bound: boundAtOnce, state: stateReads, call: whileReading(func(c *cell, l *reentrant.RWLock) (bool, error) { return l.ReadHoldCount(c.home) == 1, nil })},
	{name: "RWLock.ReadLockCount", bound: boundAtOnce, state: stateReads, call: whileReading(func(c *cell, l *reentrant.RWLock) (bool, error) { return l.ReadLockCount() == 1, nil })},
	{name: "RWLock.IsWriteLocked", asks: true, bound: boundOneCommand, state: stateWrittenThere, sends: true, reads: true, call: func(c *cell) (bool, error) { return c.rw().IsWriteLocked(c.ctx) }},
	{name: "RWLock.Inspect", asks: true, bound: boundOneCommand, state: stateWrittenThere, sends: true, reads: true, call: func(c *cell) (bool, error) { st, err := c.rw().Inspect(c.ctx); return len(st.Holders) > 0, err }},
	{name: "RWLock.ForceUnlock", blind: true, asks: true, bound: boundOneCommand, state: stateWrittenThere, sends: true, call: func(c *cell) (bool, error) { return c.rw().ForceUnlock(c.ctx) }},
	{name: "RWLock.QueuedOwners", bound: boundAtOnce, state: stateWrittenHere, call: func(c *cell) (bool, error) { return len(c.rw().QueuedOwners()) == 1, nil }},
	{name: "RWLock.QueueLength", bound: boundAtOnce, state: stateWrittenHere, call: func(c *cell) (bool, error) { return c.rw().QueueLength() == 1, nil }},
	{name: "RWLock.HasQueuedOwners", bound: boundAtOnce, state: stateWrittenHere, call: func(c *cell) (bool, error) { return c.rw().HasQueuedOwners(), nil }},
	{name: "RWLock.HasQueuedOwner", bound: boundAtOnce, state: stateWrittenHere, call: func(c *cell) (bool, error) {
		return c.rw().HasQueuedOwner(reentrant.CurrentOwner(reentrant.WithOwner(context.Background(), "queued"))), nil
	}},
	{name: "RWLock.NewCondition", bound: boundAtOnce, call: func(c *cell) (bool, error) { return some(c.rw().NewCondition("c")) }},
	{name: "RWLock.HasWaiters", bound: boundAtOnce, state: stateWrites, busy: true, call: whileWriting(func(c *cell, l *reentrant.RWLock) (bool, error) { return l.HasWaiters(l.NewCondition("c")) })},
	{name: "RWLock.WaitQueueLength", bound: boundAtOnce, state: stateWrites, call: whileWriting(func(c *cell, l *reentrant.RWLock) (bool, error) {
		n, err := l.WaitQueueLength(l.NewCondition("c"))
		return n == 0, err
	})},
	{name: "RWLock.WaitingOwners", bound: boundAtOnce, state: stateWrites, call: whileWriting(func(c *cell, l *reentrant.RWLock) (bool, error) {
		owners, err := l.WaitingOwners(l.NewCondition("c"))
		return len(owners) == 0, err
	})},
	{name: "Condition.Await-writes", bound: boundAwait, state: stateWrites, awaits: true, sends: true, again: true, call: whileWriting(func(c *cell, l *reentrant.RWLock) (bool, error) {
		return done(l.NewCondition("c").Await(c.ctx))
	})},
	{name: "Condition.Await-reads", bound: boundCheck, state: stateReads, want: reentrant.ErrNotHeld, call: whileReading(func(c *cell, l *reentrant.RWLock) (bool, error) {
		return done(l.NewCondition("c").Await(c.ctx))
	})},
	{name: "Condition.AwaitFor-writes", bound: boundAwaitFor, state: stateWrites, busy: true, sends: true, again: true, call: whileWriting(func(c *cell, l *reentrant.RWLock) (bool, error) {
		return l.NewCondition("c").AwaitFor(c.ctx, cellPatience)
	})},
	{name: "Condition.AwaitUninterruptibly-writes", bound: boundNone, state: stateWrites, awaits: true, sends: true, again: true, call: whileWriting(func(c *cell, l *reentrant.RWLock) (bool, error) {
		return done(l.NewCondition("c").AwaitUninterruptibly(c.ctx))
	})},
	{name: "Condition.Signal-writes", blind: true, bound: boundSignal, state: stateWrites, sends: true, again: true, call: whileWriting(func(c *cell, l *reentrant.RWLock) (bool, error) {
		return done(l.NewCondition("c").Signal(c.ctx))
	})},
	{name: "Condition.SignalAll-writes", blind: true, bound: boundSignal, state: stateWrites, sends: true, again: true, call: whileWriting(func(c *cell, l *reentrant.RWLock) (bool, error) {
		return done(l.NewCondition("c").SignalAll(c.ctx))
	})},
	{name: "RWLock.String", bound: boundAtOnce, state: stateReads, call: whileReading(func(c *cell, l *reentrant.RWLock) (bool, error) {
		return l.String() == `reentrant.RWLock("far/rw")[Write locks = 0, Read locks = 1]`, nil
	})},

	{name: "Session.NewSemaphore", bound: boundAtOnce, call: func(c *cell) (bool, error) { return some(c.sem()) }},
	{name: "Semaphore.Name", bound: boundAtOnce, call: func(c *cell) (bool, error) { return c.sem().Name() == "far/sem", nil }},
	{name: "Semaphore.Permits", bound: boundAtOnce, call: func(c *cell) (bool, error) { return c.sem().Permits() == 3, nil }},
	{name: "Semaphore.String", bound: boundAtOnce, call: func(c *cell) (bool, error) { return c.sem().String() != "", nil }},
	{name: "Semaphore.Acquire-free", bound: boundCtx, sends: true, again: true, call: func(c *cell) (bool, error) { ok, err := done(c.sem().Acquire(c.ctx, 2)); return permitted(c, ok, err) }},
	{name: "Semaphore.TryAcquire-free", bound: boundOneCommand, sends: true, call: func(c *cell) (bool, error) { ok, err := c.sem().TryAcquire(c.ctx, 2); return permitted(c, ok, err) }},
	{name: "Semaphore.TryAcquire-permits-there", bound: boundOneCommand, state: statePermitsThere, sends: true, busy: true, call: func(c *cell) (bool, error) { ok, err := c.sem().TryAcquire(c.ctx, 2); return permitted(c, ok, err) }},
	{name: "Semaphore.TryAcquireFor-free", bound: boundLimit, sends: true, again: true, call: func(c *cell) (bool, error) {
		ok, err := c.sem().TryAcquireFor(c.ctx, 2, cellPatience)
		return permitted(c, ok, err)
	}},
	{name: "Semaphore.TryAcquireFor-permits-there", bound: boundLimit, state: statePermitsThere, sends: true, again: true, busy: true, call: func(c *cell) (bool, error) {
		ok, err := c.sem().TryAcquireFor(c.ctx, 2, cellPatience)
		return permitted(c, ok, err)
	}},
	{name: "Semaphore.Release-permits", bound: boundAtOnce, state: statePermits, call: func(c *cell) (bool, error) { return done(c.sem().Release(c.ctx, 2)) }},
	{name: "Semaphore.Release-free", bound: boundAtOnce, want: reentrant.ErrNotHeld, call: func(c *cell) (bool, error) { return done(c.sem().Release(c.ctx, 1)) }},
	{name: "Semaphore.Do-free", bound: boundCtxAndUnlock, sends: true, again: true, call: func(c *cell) (bool, error) { return done(c.sem().Do(c.ctx, 2, nothing)) }},
	{name: "Semaphore.TryDo-free", bound: boundOneCommand, sends: true, call: func(c *cell) (bool, error) { return c.sem().TryDo(c.ctx, 2, nothing) }},
	{name: "Semaphore.TryDo-permits-there", bound: boundOneCommand, state: statePermitsThere, sends: true, busy: true, call: func(c *cell) (bool, error) { return c.sem().TryDo(c.ctx, 2, nothing) }},
	{name: "Semaphore.TryDoFor-permits-there", bound: boundLimit, state: statePermitsThere, sends: true, again: true, busy: true, call: func(c *cell) (bool, error) { return c.sem().TryDoFor(c.ctx, 2, cellPatience, nothing) }},
	{name: "Semaphore.QueueLength", bound: boundAtOnce, state: statePermitsWanted, call: func(c *cell) (bool, error) { return c.sem().QueueLength() == 1, nil }},
	{name: "Semaphore.HasQueuedOwners", bound: boundAtOnce, state: statePermitsWanted, call: func(c *cell) (bool, error) { return c.sem().HasQueuedOwners(), nil }},
	{name: "Semaphore.Lost", bound: boundAtOnce, state: statePermits, call: func(c *cell) (bool, error) {
		defer func() { _ = c.sem().Release(c.home, 2) }()
		return stillOpen(c.sem().Lost()), nil
	}},
	{name: "Semaphore.AcquireSlot-free", bound: boundCtxAndUnlock, sends: true, call: func(c *cell) (bool, error) {
		slot, err := c.sem().AcquireSlot(c.ctx)
		if err == nil {
			_ = slot.Release(c.home)
		}
		return done(err)
	}},
	{name: "Slot.Number", bound: boundAtOnce, call: func(c *cell) (bool, error) { return reentrant.Slot{}.Number() == 0, nil }},
	{name: "Slot.String", bound: boundAtOnce, call: func(c *cell) (bool, error) { return reentrant.Slot{}.String() != "", nil }},
	{name: "Slot.Lost", bound: boundAtOnce, call: func(c *cell) (bool, error) { return !stillOpen(reentrant.Slot{}.Lost()), nil }},
	{name: "Slot.Token-none", bound: boundAtOnce, want: reentrant.ErrNotHeld, call: func(c *cell) (bool, error) { _, err := reentrant.Slot{}.Token(); return done(err) }},
	{name: "Slot.Release-none", bound: boundAtOnce, want: reentrant.ErrNotHeld, call: func(c *cell) (bool, error) { return done(reentrant.Slot{}.Release(c.ctx)) }},
	{name: "Semaphore.ForceRelease", blind: true, asks: true, bound: boundOneCommand, state: statePermitsThere, sends: true, call: func(c *cell) (bool, error) { return c.sem().ForceRelease(c.ctx) }},
	{name: "Semaphore.Inspect", asks: true, bound: boundOneCommand, state: statePermitsThere, sends: true, reads: true, call: func(c *cell) (bool, error) { st, err := c.sem().Inspect(c.ctx); return len(st.Holders) > 0, err }},
}
