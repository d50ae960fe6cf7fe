package reentrant_test

import (
	"context"
	"slices"
	"time"

	"github.com/relock-go/relock/reentrant"
)

var (
	// The caller has one side, or both sides.
	stateReads       = state{name: "reads", prepare: func(c *cell) { c.must(c.rw.RLock(c.home)) }}
	stateReadsTwice  = state{name: "reads-twice", prepare: twice(stateReads)}
	stateWrites      = state{name: "writes", prepare: func(c *cell) { c.must(c.rw.Lock(c.home)) }}
	stateWritesTwice = state{name: "writes-twice", prepare: twice(stateWrites)}
	stateBoth        = state{name: "both", prepare: func(c *cell) { stateWrites.prepare(c); stateReads.prepare(c) }}
	// The caller has both sides, and another session waits for the write side.
	stateBothWanted = state{name: "both-wanted", prepare: func(c *cell) {
		stateBoth.prepare(c)
		c.inLine(func(ctx context.Context) error { return c.theirRW.Lock(ctx) }, c.theirRW.Unlock)
	}}
	// The caller had the read side a moment ago, and the session still has it.
	stateRead = state{name: "read", prepare: func(c *cell) { stateReads.prepare(c); c.must(c.rw.RUnlock(c.home)) }}
	// The other session reads or writes.
	stateReadThere    = state{name: "read-there", prepare: func(c *cell) { c.must(c.theirRW.RLock(c.stranger)) }}
	stateWrittenThere = state{name: "written-there", prepare: func(c *cell) { c.must(c.theirRW.Lock(c.stranger)) }}
	// Another owner of the session writes.
	stateWrittenHere = state{name: "written-here", prepare: func(c *cell) { c.must(c.rw.Lock(c.neighbour)) }}
	// Another owner of the session writes, and a third one waits.
	stateQueuedReader = state{name: "queued-reader", prepare: func(c *cell) {
		stateWrittenHere.prepare(c)
		c.inLine(c.rw.RLock, c.rw.RUnlock)
	}}

	// The caller has two permits.
	statePermits = state{name: "permits", prepare: func(c *cell) { c.must(c.sem.Acquire(c.home, 2)) }}
	// The other session has all permits.
	statePermitsThere = state{name: "permits-there", prepare: func(c *cell) { c.must(c.theirSem.Acquire(c.stranger, cellPermits)) }}
	// Another owner of the session has all permits.
	statePermitsHere = state{name: "permits-here", prepare: func(c *cell) {
		c.must(c.sem.Acquire(c.neighbour, cellPermits))
		c.lentLost = c.sem.Lost()
		c.lent.Store(cellPermits)
	}}
	// Another owner of the session has all permits, and a third one waits for one.
	statePermitsWanted = state{name: "permits-wanted", prepare: func(c *cell) {
		statePermitsHere.prepare(c)
		c.inLine(func(ctx context.Context) error { return c.sem.Acquire(ctx, 1) },
			func(ctx context.Context) error { return c.sem.Release(ctx, 1) })
	}}

	// The caller has a slot.
	stateSlot = state{name: "slot", holds: 1, prepare: func(c *cell) { _, err := c.acquireSlot(c.home); c.must(err) }}
	// Another owner of the session has a slot.
	stateSlotHere = state{name: "slot-here", prepare: func(c *cell) { c.othersSlots(c.sem, 1) }}
	// The caller had a slot.
	stateSlotReleased = state{name: "slot-released", prepare: func(c *cell) { stateSlot.prepare(c); c.must(c.slots[0].Release(c.home)) }}
	// The other session has the first slot, or all slots.
	stateSlotThere  = state{name: "slot-there", prepare: func(c *cell) { c.othersSlots(c.theirSem, 1) }}
	stateSlotsThere = state{name: "slots-there", prepare: func(c *cell) { c.othersSlots(c.theirSem, cellPermits) }}
	// The other session has all numbers without their permits. When a session has died, its permits may come back before its
	// numbers.
	stateNumbersThere = state{name: "numbers-there", prepare: func(c *cell) {
		for i := range cellPermits {
			c.must(c.theirNumber(i).Lock(c.stranger))
		}
	}}

	// The session is closed.
	stateClosed = state{name: "closed", prepare: func(c *cell) { c.must(c.a.Close(c.home)) }}
	// The session was closed, which released what the caller had.
	stateGivenUp = state{name: "given-up", prepare: func(c *cell) {
		stateBoth.prepare(c)
		stateSlot.prepare(c)
		ctx, cancel := context.WithCancel(c.home)
		cancel()
		_ = c.a.Close(ctx)
	}}
	// The session is being closed, and waits for the caller, which has both sides and two permits.
	stateClosing = state{name: "closing", prepare: func(c *cell) {
		stateBoth.prepare(c)
		statePermits.prepare(c)
		c.background(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := c.a.Close(ctx); err != nil && c.failure.begin == nil {
				c.errorf("closing: %v", err)
			}
		})
		time.Sleep(time.Millisecond)
	}}
)

func twice(s state) func(c *cell) {
	return func(c *cell) { s.prepare(c); s.prepare(c) }
}

// inLine makes an owner wait in the queue, and release what it gets.
func (c *cell) inLine(wait, giveUp func(context.Context) error) {
	c.background(func() {
		ctx, cancel := context.WithTimeout(reentrant.WithOwner(context.Background(), "queued"), time.Minute)
		defer cancel()
		if wait(ctx) == nil {
			_ = giveUp(ctx)
		}
	})
	time.Sleep(time.Millisecond)
}

// acquireSlot takes a slot for the caller.
func (c *cell) acquireSlot(ctx context.Context) (bool, error) {
	slot, err := c.sem.AcquireSlot(ctx)
	if err == nil {
		c.slots = append(c.slots, slot)
	}
	return done(err)
}

// othersSlots takes n slots of m for the stranger, and adds them to theirSlots.
func (c *cell) othersSlots(m *reentrant.Semaphore, n int) {
	for range n {
		slot, err := m.AcquireSlot(c.stranger)
		c.must(err)
		c.theirSlots = append(c.theirSlots, slot)
	}
}

// Calls that several rows make.
func writeIt(c *cell) (bool, error)       { return done(c.rw.Lock(c.ctx)) }
func readIt(c *cell) (bool, error)        { return done(c.rw.RLock(c.ctx)) }
func tryWrite(c *cell) (bool, error)      { return c.rw.TryLock(c.ctx) }
func tryRead(c *cell) (bool, error)       { return c.rw.TryRLock(c.ctx) }
func tryWriteFor(c *cell) (bool, error)   { return c.rw.TryLockFor(c.ctx, cellPatience) }
func tryReadFor(c *cell) (bool, error)    { return c.rw.TryRLockFor(c.ctx, cellPatience) }
func endWrite(c *cell) (bool, error)      { return done(c.rw.Unlock(c.ctx)) }
func endRead(c *cell) (bool, error)       { return done(c.rw.RUnlock(c.ctx)) }
func writeAndEnd(c *cell) (bool, error)   { return done(c.rw.Do(c.ctx, nothing)) }
func readAndEnd(c *cell) (bool, error)    { return done(c.rw.RDo(c.ctx, nothing)) }
func acquireTwo(c *cell) (bool, error)    { return done(c.sem.Acquire(c.ctx, 2)) }
func tryTwo(c *cell) (bool, error)        { return c.sem.TryAcquire(c.ctx, 2) }
func tryTwoFor(c *cell) (bool, error)     { return c.sem.TryAcquireFor(c.ctx, 2, cellPatience) }
func releaseTwo(c *cell) (bool, error)    { return done(c.sem.Release(c.ctx, 2)) }
func acquireAndEnd(c *cell) (bool, error) { return done(c.sem.Do(c.ctx, 2, nothing)) }
func slotIt(c *cell) (bool, error)        { return c.acquireSlot(c.ctx) }
func endSlot(c *cell) (bool, error)       { return done(c.slots[0].Release(c.ctx)) }

// sharedRows are the rows of read-write locks and semaphores.
var sharedRows = slices.Concat(rwRows, conditionRows, semaphoreRows, closedRows)

var rwRows = []row{
	{name: "Session.NewRWLock", bound: boundAtOnce, call: func(c *cell) (bool, error) { return some(c.a.NewRWLock("far/rw")) }},
	{name: "Session.Stats-reads", bound: boundAtOnce, state: stateReads, call: func(c *cell) (bool, error) { return c.a.Stats().Held == 1, nil }},
	{name: "Session.Close-written-here", bound: boundClose, ends: true, state: stateWrittenHere, call: closeIt},
	{name: "Session.Close-queued-reader", bound: boundClose, ends: true, state: stateQueuedReader, call: closeIt},
	{name: "Session.Close-read", idle: true, bound: boundClose, ends: true, state: stateRead, call: closeIt},
	{name: "RWLock.Name", bound: boundAtOnce, call: func(c *cell) (bool, error) { return c.rw.Name() == "far/rw", nil }},

	// Taking the write side.
	{name: "RWLock.Lock-free", bound: boundCtx, sends: true, again: true, gains: holdings{aWrite: 1}, call: writeIt},
	{name: "RWLock.Lock-writes", bound: boundCheck, state: stateWrites, gains: holdings{aWrite: 1}, call: writeIt},
	{name: "RWLock.Lock-reads", bound: boundCheck, state: stateReads, want: reentrant.ErrUpgrade, call: writeIt},
	{name: "RWLock.Lock-read-there", bound: boundCtx, state: stateReadThere, waits: true, sends: true, again: true, gains: holdings{aWrite: 1}, call: writeIt},
	{name: "RWLock.Lock-written-there", bound: boundCtx, state: stateWrittenThere, waits: true, sends: true, again: true, gains: holdings{aWrite: 1}, call: writeIt},
	{name: "RWLock.Lock-written-here", bound: boundCtx, state: stateWrittenHere, waits: true, again: true, gains: holdings{aWrite: 1}, call: writeIt},
	{name: "RWLock.Lock-waiting", bound: boundCtx, state: stateWrittenThere, late: true, waits: true, sends: true, again: true, gains: holdings{aWrite: 1}, call: writeIt},
	{name: "RWLock.Lock-waiting-for-readers", bound: boundCtx, state: stateReadThere, late: true, waits: true, sends: true, again: true, gains: holdings{aWrite: 1}, call: writeIt},
	{name: "RWLock.TryLock-free", bound: boundOneCommand, sends: true, gains: holdings{aWrite: 1}, call: tryWrite},
	{name: "RWLock.TryLock-writes", bound: boundCheck, state: stateWrites, gains: holdings{aWrite: 1}, call: tryWrite},
	{name: "RWLock.TryLock-reads", bound: boundCheck, state: stateReads, want: reentrant.ErrUpgrade, call: tryWrite},
	{name: "RWLock.TryLock-read-there", bound: boundOneCommand, state: stateReadThere, sends: true, busy: true, gains: holdings{aWrite: 1}, call: tryWrite},
	{name: "RWLock.TryLock-written-here", bound: boundCheck, state: stateWrittenHere, busy: true, call: tryWrite},
	{name: "RWLock.TryLockFor-free", bound: boundLimit, sends: true, again: true, gains: holdings{aWrite: 1}, call: tryWriteFor},
	{name: "RWLock.TryLockFor-now", bound: boundOneCommand, sends: true, gains: holdings{aWrite: 1}, call: func(c *cell) (bool, error) { return c.rw.TryLockFor(c.ctx, 0) }},
	{name: "RWLock.TryLockFor-reads", bound: boundCheck, state: stateReads, want: reentrant.ErrUpgrade, call: tryWriteFor},
	{name: "RWLock.TryLockFor-written-there", bound: boundLimit, state: stateWrittenThere, sends: true, again: true, busy: true, gains: holdings{aWrite: 1}, call: tryWriteFor},
	{name: "RWLock.TryLockFor-written-here", bound: boundLimit, state: stateWrittenHere, busy: true, call: tryWriteFor},
	{name: "RWLock.TryLockFor-waiting", bound: boundLimit, state: stateReadThere, late: true, again: true, busy: true, gains: holdings{aWrite: 1}, call: tryWriteFor},

	// Taking the read side.
	{name: "RWLock.RLock-free", bound: boundCtx, sends: true, again: true, gains: holdings{aRead: 1}, call: readIt},
	{name: "RWLock.RLock-noted", bound: boundCtx, sends: true, again: true, gains: holdings{aRead: 1}, call: func(c *cell) (bool, error) {
		return done(c.rw.RLock(reentrant.WithNote(c.ctx, "note")))
	}},
	{name: "RWLock.RLock-read", bound: boundCtx, state: stateRead, again: true, gains: holdings{aRead: 1}, call: readIt},
	{name: "RWLock.RLock-reads", bound: boundCheck, state: stateReads, gains: holdings{aRead: 1}, call: readIt},
	{name: "RWLock.RLock-writes", bound: boundCheck, state: stateWrites, gains: holdings{aRead: 1}, call: readIt},
	{name: "RWLock.RLock-both-wanted", bound: boundCheck, state: stateBothWanted, gains: holdings{aRead: 1}, call: readIt},
	{name: "RWLock.RLock-read-there", bound: boundCtx, state: stateReadThere, sends: true, again: true, gains: holdings{aRead: 1}, call: readIt},
	{name: "RWLock.RLock-written-there", bound: boundCtx, state: stateWrittenThere, waits: true, sends: true, again: true, gains: holdings{aRead: 1}, call: readIt},
	{name: "RWLock.RLock-written-here", bound: boundCtx, state: stateWrittenHere, waits: true, again: true, gains: holdings{aRead: 1}, call: readIt},
	{name: "RWLock.RLock-waiting", bound: boundCtx, state: stateWrittenThere, late: true, waits: true, sends: true, again: true, gains: holdings{aRead: 1}, call: readIt},
	{name: "RWLock.TryRLock-free", bound: boundOneCommand, sends: true, gains: holdings{aRead: 1}, call: tryRead},
	{name: "RWLock.TryRLock-reads", bound: boundCheck, state: stateReads, gains: holdings{aRead: 1}, call: tryRead},
	{name: "RWLock.TryRLock-written-there", bound: boundOneCommand, state: stateWrittenThere, sends: true, busy: true, gains: holdings{aRead: 1}, call: tryRead},
	{name: "RWLock.TryRLock-written-here", bound: boundCheck, state: stateWrittenHere, busy: true, call: tryRead},
	{name: "RWLock.TryRLockFor-free", bound: boundLimit, sends: true, again: true, gains: holdings{aRead: 1}, call: tryReadFor},
	{name: "RWLock.TryRLockFor-written-there", bound: boundLimit, state: stateWrittenThere, sends: true, again: true, busy: true, gains: holdings{aRead: 1}, call: tryReadFor},
	{name: "RWLock.TryRLockFor-waiting", bound: boundLimit, state: stateWrittenThere, late: true, again: true, busy: true, gains: holdings{aRead: 1}, call: tryReadFor},

	// Releasing a side.
	{name: "RWLock.Unlock-writes", bound: boundAtOnce, state: stateWrites, gains: holdings{aWrite: -1}, call: endWrite},
	{name: "RWLock.Unlock-writes-twice", bound: boundAtOnce, state: stateWritesTwice, gains: holdings{aWrite: -1}, call: endWrite},
	{name: "RWLock.Unlock-both", bound: boundAtOnce, state: stateBoth, gains: holdings{aWrite: -1}, call: endWrite},
	{name: "RWLock.Unlock-both-wanted", bound: boundAtOnce, state: stateBothWanted, gains: holdings{aWrite: -1}, call: endWrite},
	{name: "RWLock.Unlock-reads", bound: boundAtOnce, state: stateReads, want: reentrant.ErrNotHeld, call: endWrite},
	{name: "RWLock.Unlock-free", bound: boundAtOnce, want: reentrant.ErrNotHeld, call: endWrite},
	{name: "RWLock.RUnlock-reads", bound: boundAtOnce, state: stateReads, gains: holdings{aRead: -1}, call: endRead},
	{name: "RWLock.RUnlock-reads-twice", bound: boundAtOnce, state: stateReadsTwice, gains: holdings{aRead: -1}, call: endRead},
	{name: "RWLock.RUnlock-both", bound: boundAtOnce, state: stateBoth, gains: holdings{aRead: -1}, call: endRead},
	{name: "RWLock.RUnlock-writes", bound: boundAtOnce, state: stateWrites, want: reentrant.ErrNotHeld, call: endRead},
	{name: "RWLock.RUnlock-free", bound: boundAtOnce, want: reentrant.ErrNotHeld, call: endRead},

	// With a function.
	{name: "RWLock.Do-free", bound: boundCtxAndUnlock, sends: true, again: true, call: writeAndEnd},
	{name: "RWLock.Do-writes", bound: boundCheck, state: stateWrites, call: writeAndEnd},
	{name: "RWLock.Do-written-there", bound: boundCtxAndUnlock, state: stateWrittenThere, waits: true, sends: true, again: true, call: writeAndEnd},
	{name: "RWLock.RDo-free", bound: boundCtxAndUnlock, sends: true, again: true, call: readAndEnd},
	{name: "RWLock.RDo-reads", bound: boundCheck, state: stateReads, call: readAndEnd},
	{name: "RWLock.RDo-written-there", bound: boundCtxAndUnlock, state: stateWrittenThere, waits: true, sends: true, again: true, call: readAndEnd},
	{name: "RWLock.TryDo-free", bound: boundOneCommand, sends: true, call: func(c *cell) (bool, error) { return c.rw.TryDo(c.ctx, nothing) }},
	{name: "RWLock.TryDo-read-there", bound: boundOneCommand, state: stateReadThere, sends: true, busy: true, call: func(c *cell) (bool, error) { return c.rw.TryDo(c.ctx, nothing) }},
	{name: "RWLock.TryDoFor-free", bound: boundLimit, sends: true, again: true, call: func(c *cell) (bool, error) { return c.rw.TryDoFor(c.ctx, cellPatience, nothing) }},
	{name: "RWLock.TryDoFor-written-there", bound: boundLimit, state: stateWrittenThere, sends: true, again: true, busy: true, call: func(c *cell) (bool, error) { return c.rw.TryDoFor(c.ctx, cellPatience, nothing) }},
	{name: "RWLock.TryRDo-free", bound: boundOneCommand, sends: true, call: func(c *cell) (bool, error) { return c.rw.TryRDo(c.ctx, nothing) }},
	{name: "RWLock.TryRDo-written-there", bound: boundOneCommand, state: stateWrittenThere, sends: true, busy: true, call: func(c *cell) (bool, error) { return c.rw.TryRDo(c.ctx, nothing) }},
	{name: "RWLock.TryRDoFor-free", bound: boundLimit, sends: true, again: true, call: func(c *cell) (bool, error) { return c.rw.TryRDoFor(c.ctx, cellPatience, nothing) }},
	{name: "RWLock.TryRDoFor-written-there", bound: boundLimit, state: stateWrittenThere, sends: true, again: true, busy: true, call: func(c *cell) (bool, error) { return c.rw.TryRDoFor(c.ctx, cellPatience, nothing) }},
	{name: "RWLock.Locker", bound: boundAtOnce, call: func(c *cell) (bool, error) { return some(c.rw.Locker(c.ctx)) }},
	{name: "RWLock.Locker-writes", bound: boundAtOnce, state: stateWrites, gains: holdings{aWrite: -1}, call: func(c *cell) (bool, error) { return done(caught(c.rw.Locker(c.ctx).Unlock)) }},
	{name: "RWLock.RLocker", bound: boundAtOnce, call: func(c *cell) (bool, error) { return some(c.rw.RLocker(c.ctx)) }},
	{name: "RWLock.RLocker-reads", bound: boundAtOnce, state: stateReads, gains: holdings{aRead: -1}, call: func(c *cell) (bool, error) { return done(caught(c.rw.RLocker(c.ctx).Unlock)) }},

	// The caller's own holds.
	{name: "RWLock.Lost", bound: boundAtOnce, state: stateReads, call: func(c *cell) (bool, error) { return stillOpen(c.rw.Lost(c.ctx)), nil }},
	{name: "RWLock.Lost-writes", bound: boundAtOnce, state: stateWrites, call: func(c *cell) (bool, error) { return stillOpen(c.rw.Lost(c.ctx)), nil }},
	{name: "RWLock.Lost-free", bound: boundAtOnce, call: func(c *cell) (bool, error) { return !stillOpen(c.rw.Lost(c.ctx)), nil }},
	{name: "RWLock.Wanted", bound: boundAtOnce, state: stateReads, call: func(c *cell) (bool, error) { return some(c.rw.Wanted(c.ctx)) }},
	{name: "RWLock.Wanted-writes", bound: boundAtOnce, state: stateWrites, call: func(c *cell) (bool, error) { return some(c.rw.Wanted(c.ctx)) }},
	{name: "RWLock.Wanted-free", bound: boundAtOnce, call: func(c *cell) (bool, error) { return !stillOpen(c.rw.Wanted(c.ctx)), nil }},
	{name: "RWLock.Wanted-queued-reader", bound: boundAtOnce, state: stateQueuedReader, call: func(c *cell) (bool, error) { return !stillOpen(c.rw.Wanted(c.neighbour)), nil }},
	{name: "RWLock.Token", bound: boundAtOnce, state: stateWrites, call: func(c *cell) (bool, error) { token, err := c.rw.Token(c.ctx); return token > 0, err }},
	{name: "RWLock.Token-reads", bound: boundAtOnce, state: stateReads, want: reentrant.ErrNotHeld, call: func(c *cell) (bool, error) { _, err := c.rw.Token(c.ctx); return done(err) }},
	{name: "RWLock.Version", bound: boundAtOnce, state: stateReads, call: func(c *cell) (bool, error) { v, err := c.rw.Version(c.ctx); return v%2 == 1, err }},
	{name: "RWLock.Version-free", bound: boundAtOnce, want: reentrant.ErrNotHeld, call: func(c *cell) (bool, error) { _, err := c.rw.Version(c.ctx); return done(err) }},
	{name: "RWLock.TrustedUntil", bound: boundAtOnce, state: stateReads, call: func(c *cell) (bool, error) {
		at, err := c.rw.TrustedUntil(c.ctx)
		return at.After(time.Now()), err
	}},
	{name: "RWLock.Verify", bound: boundOneCommand, state: stateReads, sends: true, reads: true, call: func(c *cell) (bool, error) { return done(c.rw.Verify(c.ctx)) }},
	{name: "RWLock.Verify-both", bound: boundOneCommand, state: stateBoth, sends: true, reads: true, call: func(c *cell) (bool, error) { return done(c.rw.Verify(c.ctx)) }},
	{name: "RWLock.Verify-free", bound: boundAtOnce, want: reentrant.ErrNotHeld, call: func(c *cell) (bool, error) { return done(c.rw.Verify(c.ctx)) }},
	{name: "RWLock.HoldCount", bound: boundAtOnce, state: stateWritesTwice, call: func(c *cell) (bool, error) { return c.rw.HoldCount(c.ctx) == 2, nil }},
	{name: "RWLock.IsHeldByCurrentOwner", bound: boundAtOnce, state: stateWrites, call: func(c *cell) (bool, error) { return c.rw.IsHeldByCurrentOwner(c.ctx), nil }},
	{name: "RWLock.ReadHoldCount", bound: boundAtOnce, state: stateReadsTwice, call: func(c *cell) (bool, error) { return c.rw.ReadHoldCount(c.ctx) == 2, nil }},

	// What the process and the deployment have.
	{name: "RWLock.ReadLockCount", bound: boundAtOnce, state: stateReads, call: func(c *cell) (bool, error) { return c.rw.ReadLockCount() == 1, nil }},
	{name: "RWLock.IsWriteLocked", asks: true, bound: boundOneCommand, state: stateWrittenThere, sends: true, reads: true, call: func(c *cell) (bool, error) { return c.rw.IsWriteLocked(c.ctx) }},
	{name: "RWLock.Inspect", asks: true, bound: boundOneCommand, state: stateWrittenThere, sends: true, reads: true, call: func(c *cell) (bool, error) { st, err := c.rw.Inspect(c.ctx); return len(st.Holders) > 0, err }},
	{name: "RWLock.ForceUnlock", blind: true, asks: true, bound: boundOneCommand, state: stateWrittenThere, sends: true, call: func(c *cell) (bool, error) { return c.rw.ForceUnlock(c.ctx) }},
	{name: "RWLock.QueuedOwners", bound: boundAtOnce, state: stateQueuedReader, call: func(c *cell) (bool, error) { return len(c.rw.QueuedOwners()) == 1, nil }},
	{name: "RWLock.QueueLength", bound: boundAtOnce, state: stateQueuedReader, call: func(c *cell) (bool, error) { return c.rw.QueueLength() == 1, nil }},
	{name: "RWLock.HasQueuedOwners", bound: boundAtOnce, state: stateQueuedReader, call: func(c *cell) (bool, error) { return c.rw.HasQueuedOwners(), nil }},
	{name: "RWLock.HasQueuedOwner", bound: boundAtOnce, state: stateQueuedReader, call: func(c *cell) (bool, error) {
		return c.rw.HasQueuedOwner(reentrant.CurrentOwner(reentrant.WithOwner(context.Background(), "queued"))), nil
	}},
	{name: "RWLock.String", bound: boundAtOnce, state: stateReads, call: func(c *cell) (bool, error) {
		return c.rw.String() == `reentrant.RWLock("far/rw")[Write locks = 0, Read locks = 1]`, nil
	}},
}

// conditionRows are the rows of the conditions of a write side.
var conditionRows = []row{
	{name: "RWLock.NewCondition", bound: boundAtOnce, call: func(c *cell) (bool, error) { return some(c.rw.NewCondition("c")) }},
	{name: "RWLock.HasWaiters", bound: boundAtOnce, state: stateWrites, busy: true, call: func(c *cell) (bool, error) { return c.rw.HasWaiters(c.rw.NewCondition("c")) }},
	{name: "RWLock.WaitQueueLength", bound: boundAtOnce, state: stateWrites, call: func(c *cell) (bool, error) {
		n, err := c.rw.WaitQueueLength(c.rw.NewCondition("c"))
		return n == 0, err
	}},
	{name: "RWLock.WaitingOwners", bound: boundAtOnce, state: stateWrites, call: func(c *cell) (bool, error) {
		owners, err := c.rw.WaitingOwners(c.rw.NewCondition("c"))
		return len(owners) == 0, err
	}},
	{name: "Condition.Await-writes", bound: boundAwait, state: stateWrites, awaits: true, sends: true, again: true, call: awaitWriting},
	{name: "Condition.Await-writes-waiting", bound: boundAwait, state: stateWrites, late: true, awaits: true, again: true, call: awaitWriting},
	{name: "Condition.Await-reads", bound: boundCheck, state: stateReads, want: reentrant.ErrNotHeld, call: awaitWriting},
	{name: "Condition.AwaitFor-writes", bound: boundAwaitFor, state: stateWrites, busy: true, sends: true, again: true, call: func(c *cell) (bool, error) {
		return c.rw.NewCondition("c").AwaitFor(c.ctx, cellPatience)
	}},
	{name: "Condition.AwaitUninterruptibly-writes", bound: boundNone, state: stateWrites, awaits: true, sends: true, again: true, call: func(c *cell) (bool, error) {
		return done(c.rw.NewCondition("c").AwaitUninterruptibly(c.ctx))
	}},
	{name: "Condition.Signal-writes", blind: true, bound: boundSignal, state: stateWrites, sends: true, again: true, call: func(c *cell) (bool, error) {
		return done(c.rw.NewCondition("c").Signal(c.ctx))
	}},
	{name: "Condition.SignalAll-writes", blind: true, bound: boundSignal, state: stateWrites, sends: true, again: true, call: func(c *cell) (bool, error) {
		return done(c.rw.NewCondition("c").SignalAll(c.ctx))
	}},
}

func awaitWriting(c *cell) (bool, error) { return done(c.rw.NewCondition("c").Await(c.ctx)) }

var semaphoreRows = []row{
	{name: "Session.NewSemaphore", bound: boundAtOnce, call: func(c *cell) (bool, error) { return some(c.a.NewSemaphore("far/sem", cellPermits)) }},
	{name: "Session.Close-permits-here", bound: boundClose, ends: true, state: statePermitsHere, call: closeIt},
	{name: "Session.Close-slot-here", bound: boundClose, ends: true, state: stateSlotHere, call: closeIt},
	{name: "Semaphore.Name", bound: boundAtOnce, call: func(c *cell) (bool, error) { return c.sem.Name() == "far/sem", nil }},
	{name: "Semaphore.Permits", bound: boundAtOnce, call: func(c *cell) (bool, error) { return c.sem.Permits() == cellPermits, nil }},
	{name: "Semaphore.String", bound: boundAtOnce, call: func(c *cell) (bool, error) { return c.sem.String() != "", nil }},

	{name: "Semaphore.Acquire-free", bound: boundCtx, sends: true, again: true, gains: holdings{aPermit: 2}, call: acquireTwo},
	{name: "Semaphore.Acquire-permits", bound: boundCtx, state: statePermits, sends: true, again: true, gains: holdings{aPermit: 1}, call: func(c *cell) (bool, error) { return done(c.sem.Acquire(c.ctx, 1)) }},
	{name: "Semaphore.Acquire-permits-there", bound: boundCtx, state: statePermitsThere, waits: true, sends: true, again: true, gains: holdings{aPermit: 2}, call: acquireTwo},
	{name: "Semaphore.Acquire-permits-here", bound: boundCtx, state: statePermitsHere, waits: true, again: true, gains: holdings{aPermit: 2}, call: acquireTwo},
	{name: "Semaphore.Acquire-waiting", bound: boundCtx, state: statePermitsThere, late: true, waits: true, sends: true, again: true, gains: holdings{aPermit: 2}, call: acquireTwo},
	{name: "Semaphore.TryAcquire-free", bound: boundOneCommand, sends: true, gains: holdings{aPermit: 2}, call: tryTwo},
	{name: "Semaphore.TryAcquire-permits-there", bound: boundOneCommand, state: statePermitsThere, sends: true, busy: true, gains: holdings{aPermit: 2}, call: tryTwo},
	{name: "Semaphore.TryAcquire-permits-here", bound: boundOneCommand, state: statePermitsHere, busy: true, call: tryTwo},
	{name: "Semaphore.TryAcquireFor-free", bound: boundLimit, sends: true, again: true, gains: holdings{aPermit: 2}, call: tryTwoFor},
	{name: "Semaphore.TryAcquireFor-permits-there", bound: boundLimit, state: statePermitsThere, sends: true, again: true, busy: true, gains: holdings{aPermit: 2}, call: tryTwoFor},
	{name: "Semaphore.TryAcquireFor-permits-here", bound: boundLimit, state: statePermitsHere, busy: true, call: tryTwoFor},
	{name: "Semaphore.TryAcquireFor-waiting", bound: boundLimit, state: statePermitsThere, late: true, again: true, busy: true, gains: holdings{aPermit: 2}, call: tryTwoFor},
	{name: "Semaphore.Release-permits", bound: boundAtOnce, state: statePermits, gains: holdings{aPermit: -2}, call: releaseTwo},
	{name: "Semaphore.Release-one", bound: boundAtOnce, state: statePermits, gains: holdings{aPermit: -1}, call: func(c *cell) (bool, error) { return done(c.sem.Release(c.ctx, 1)) }},
	{name: "Semaphore.Release-free", bound: boundAtOnce, want: reentrant.ErrNotHeld, call: releaseTwo},
	{name: "Semaphore.Do-free", bound: boundCtxAndUnlock, sends: true, again: true, call: acquireAndEnd},
	{name: "Semaphore.Do-permits-there", bound: boundCtxAndUnlock, state: statePermitsThere, waits: true, sends: true, again: true, call: acquireAndEnd},
	{name: "Semaphore.TryDo-free", bound: boundOneCommand, sends: true, call: func(c *cell) (bool, error) { return c.sem.TryDo(c.ctx, 2, nothing) }},
	{name: "Semaphore.TryDo-permits-there", bound: boundOneCommand, state: statePermitsThere, sends: true, busy: true, call: func(c *cell) (bool, error) { return c.sem.TryDo(c.ctx, 2, nothing) }},
	{name: "Semaphore.TryDoFor-free", bound: boundLimit, sends: true, again: true, call: func(c *cell) (bool, error) { return c.sem.TryDoFor(c.ctx, 2, cellPatience, nothing) }},
	{name: "Semaphore.TryDoFor-permits-there", bound: boundLimit, state: statePermitsThere, sends: true, again: true, busy: true, call: func(c *cell) (bool, error) { return c.sem.TryDoFor(c.ctx, 2, cellPatience, nothing) }},

	{name: "Semaphore.QueueLength", bound: boundAtOnce, state: statePermitsWanted, call: func(c *cell) (bool, error) { return c.sem.QueueLength() == 1, nil }},
	{name: "Semaphore.HasQueuedOwners", bound: boundAtOnce, state: statePermitsWanted, call: func(c *cell) (bool, error) { return c.sem.HasQueuedOwners(), nil }},
	{name: "Semaphore.Lost", bound: boundAtOnce, state: statePermits, call: func(c *cell) (bool, error) { return stillOpen(c.sem.Lost()), nil }},
	{name: "Semaphore.Lost-free", bound: boundAtOnce, call: func(c *cell) (bool, error) { return !stillOpen(c.sem.Lost()), nil }},
	{name: "Semaphore.Wanted", bound: boundAtOnce, state: statePermits, call: func(c *cell) (bool, error) { return some(c.sem.Wanted()) }},
	{name: "Semaphore.Wanted-free", bound: boundAtOnce, call: func(c *cell) (bool, error) { return !stillOpen(c.sem.Wanted()), nil }},
	{name: "Semaphore.Wanted-permits-wanted", bound: boundAtOnce, state: statePermitsWanted, call: func(c *cell) (bool, error) { return !stillOpen(c.sem.Wanted()), nil }},
	{name: "Semaphore.ForceRelease", blind: true, asks: true, bound: boundOneCommand, state: statePermitsThere, sends: true, call: func(c *cell) (bool, error) { return c.sem.ForceRelease(c.ctx) }},
	{name: "Semaphore.Inspect", asks: true, bound: boundOneCommand, state: statePermitsThere, sends: true, reads: true, call: func(c *cell) (bool, error) { st, err := c.sem.Inspect(c.ctx); return len(st.Holders) > 0, err }},

	{name: "Semaphore.AcquireSlot-free", bound: boundCtxAndUnlock, sends: true, again: true, gains: holdings{aPermit: 1, aSlot: 1}, call: slotIt},
	{name: "Semaphore.AcquireSlot-slot", bound: boundCtxAndUnlock, state: stateSlot, sends: true, again: true, gains: holdings{aPermit: 1, aSlot: 1}, call: slotIt},
	{name: "Semaphore.AcquireSlot-slot-there", bound: boundCtxAndUnlock, state: stateSlotThere, sends: true, again: true, gains: holdings{aPermit: 1, aSlot: 1}, call: slotIt},
	{name: "Semaphore.AcquireSlot-slots-there", bound: boundCtxAndUnlock, state: stateSlotsThere, waits: true, sends: true, again: true, gains: holdings{aPermit: 1, aSlot: 1}, call: slotIt},
	{name: "Semaphore.AcquireSlot-waiting", bound: boundCtxAndUnlock, state: stateSlotsThere, late: true, waits: true, sends: true, again: true, gains: holdings{aPermit: 1, aSlot: 1}, call: slotIt},
	{name: "Semaphore.AcquireSlot-numbers-there", bound: boundCtxAndUnlock, state: stateNumbersThere, waits: true, sends: true, again: true, gains: holdings{aPermit: 1, aSlot: 1}, call: slotIt},
	{name: "Semaphore.AcquireSlot-waiting-for-number", bound: boundCtxAndUnlock, state: stateNumbersThere, late: true, waits: true, sends: true, again: true, gains: holdings{aPermit: 1, aSlot: 1}, call: slotIt},
	{name: "Slot.Number", bound: boundAtOnce, state: stateSlot, call: func(c *cell) (bool, error) { return c.slots[0].Number() == 0, nil }},
	{name: "Slot.String", bound: boundAtOnce, state: stateSlot, call: func(c *cell) (bool, error) { return c.slots[0].String() == "far/sem#0", nil }},
	{name: "Slot.String-none", bound: boundAtOnce, call: func(c *cell) (bool, error) { return reentrant.Slot{}.String() != "", nil }},
	{name: "Slot.Lost", bound: boundAtOnce, state: stateSlot, call: func(c *cell) (bool, error) { return stillOpen(c.slots[0].Lost()), nil }},
	{name: "Slot.Lost-released", bound: boundAtOnce, state: stateSlotReleased, call: func(c *cell) (bool, error) { return !stillOpen(c.slots[0].Lost()), nil }},
	{name: "Slot.Lost-none", bound: boundAtOnce, call: func(c *cell) (bool, error) { return !stillOpen(reentrant.Slot{}.Lost()), nil }},
	{name: "Slot.Wanted", bound: boundAtOnce, state: stateSlot, call: func(c *cell) (bool, error) { return some(c.slots[0].Wanted()) }},
	{name: "Slot.Wanted-released", bound: boundAtOnce, state: stateSlotReleased, call: func(c *cell) (bool, error) { return !stillOpen(c.slots[0].Wanted()), nil }},
	{name: "Slot.Wanted-none", bound: boundAtOnce, call: func(c *cell) (bool, error) { return !stillOpen(reentrant.Slot{}.Wanted()), nil }},
	{name: "Slot.Token", bound: boundAtOnce, state: stateSlot, call: func(c *cell) (bool, error) { token, err := c.slots[0].Token(); return token > 0, err }},
	{name: "Slot.Token-released", bound: boundAtOnce, state: stateSlotReleased, want: reentrant.ErrNotHeld, call: func(c *cell) (bool, error) { _, err := c.slots[0].Token(); return done(err) }},
	{name: "Slot.Token-none", bound: boundAtOnce, want: reentrant.ErrNotHeld, call: func(c *cell) (bool, error) { _, err := reentrant.Slot{}.Token(); return done(err) }},
	{name: "Slot.Release-slot", bound: boundUnlock, state: stateSlot, sends: true, gains: holdings{aPermit: -1, aSlot: -1}, gives: holdings{aPermit: -1, aSlot: -1}, call: endSlot},
	{name: "Slot.Release-released", bound: boundAtOnce, state: stateSlotReleased, want: reentrant.ErrNotHeld, call: endSlot},
	{name: "Slot.Release-none", bound: boundAtOnce, want: reentrant.ErrNotHeld, call: func(c *cell) (bool, error) { return done(reentrant.Slot{}.Release(c.ctx)) }},
}

// closedRows are calls of a session that is closed, or being closed.
var closedRows = []row{
	{name: "Session.Close-closed", bound: boundAtOnce, ends: true, state: stateClosed, want: reentrant.ErrClosed, call: closeIt},
	{name: "Lock.Lock-closed", bound: boundCheck, ends: true, state: stateClosed, want: reentrant.ErrClosed, call: lockIt},
	{name: "RWLock.Lock-closed", bound: boundCheck, ends: true, state: stateClosed, want: reentrant.ErrClosed, call: writeIt},
	{name: "RWLock.TryLock-closed", bound: boundCheck, ends: true, state: stateClosed, want: reentrant.ErrClosed, call: tryWrite},
	{name: "RWLock.RLock-closed", bound: boundCheck, ends: true, state: stateClosed, want: reentrant.ErrClosed, call: readIt},
	{name: "RWLock.TryRLockFor-closed", bound: boundCheck, ends: true, state: stateClosed, want: reentrant.ErrClosed, call: tryReadFor},
	{name: "RWLock.Do-closed", bound: boundCheck, ends: true, state: stateClosed, want: reentrant.ErrClosed, call: writeAndEnd},
	{name: "RWLock.Unlock-closed", bound: boundAtOnce, ends: true, state: stateClosed, want: reentrant.ErrNotHeld, call: endWrite},
	{name: "RWLock.Verify-closed", bound: boundAtOnce, ends: true, state: stateClosed, want: reentrant.ErrNotHeld, call: func(c *cell) (bool, error) { return done(c.rw.Verify(c.ctx)) }},
	{name: "Semaphore.Acquire-closed", bound: boundCheck, ends: true, state: stateClosed, want: reentrant.ErrClosed, call: acquireTwo},
	{name: "Semaphore.TryAcquire-closed", bound: boundCheck, ends: true, state: stateClosed, want: reentrant.ErrClosed, call: tryTwo},
	{name: "Semaphore.AcquireSlot-closed", bound: boundCheck, ends: true, state: stateClosed, want: reentrant.ErrClosed, call: slotIt},
	{name: "Semaphore.Do-closed", bound: boundCheck, ends: true, state: stateClosed, want: reentrant.ErrClosed, call: acquireAndEnd},
	{name: "Semaphore.Release-closed", bound: boundAtOnce, ends: true, state: stateClosed, want: reentrant.ErrNotHeld, call: releaseTwo},
	{name: "Session.InspectAll-closed", bound: boundCheck, ends: true, state: stateClosed, want: reentrant.ErrClosed, call: func(c *cell) (bool, error) { _, err := c.a.InspectAll(c.ctx, "far/x"); return done(err) }},
	{name: "Lock.Inspect-closed", bound: boundCheck, ends: true, state: stateClosed, want: reentrant.ErrClosed, call: func(c *cell) (bool, error) { _, err := c.lock.Inspect(c.ctx); return done(err) }},
	{name: "Lock.IsLocked-closed", bound: boundCheck, ends: true, state: stateClosed, want: reentrant.ErrClosed, call: func(c *cell) (bool, error) { return c.lock.IsLocked(c.ctx) }},
	{name: "Lock.ForceUnlock-closed", bound: boundCheck, ends: true, state: stateClosed, want: reentrant.ErrClosed, call: func(c *cell) (bool, error) { return c.lock.ForceUnlock(c.ctx) }},
	{name: "RWLock.Inspect-closed", bound: boundCheck, ends: true, state: stateClosed, want: reentrant.ErrClosed, call: func(c *cell) (bool, error) { _, err := c.rw.Inspect(c.ctx); return done(err) }},
	{name: "RWLock.IsWriteLocked-closed", bound: boundCheck, ends: true, state: stateClosed, want: reentrant.ErrClosed, call: func(c *cell) (bool, error) { return c.rw.IsWriteLocked(c.ctx) }},
	{name: "RWLock.ForceUnlock-closed", bound: boundCheck, ends: true, state: stateClosed, want: reentrant.ErrClosed, call: func(c *cell) (bool, error) { return c.rw.ForceUnlock(c.ctx) }},
	{name: "Semaphore.Inspect-closed", bound: boundCheck, ends: true, state: stateClosed, want: reentrant.ErrClosed, call: func(c *cell) (bool, error) { _, err := c.sem.Inspect(c.ctx); return done(err) }},
	{name: "Semaphore.ForceRelease-closed", bound: boundCheck, ends: true, state: stateClosed, want: reentrant.ErrClosed, call: func(c *cell) (bool, error) { return c.sem.ForceRelease(c.ctx) }},

	{name: "RWLock.Lost-given-up", bound: boundAtOnce, ends: true, state: stateGivenUp, call: func(c *cell) (bool, error) { return !stillOpen(c.rw.Lost(c.ctx)), nil }},
	{name: "RWLock.Token-given-up", bound: boundAtOnce, ends: true, state: stateGivenUp, want: reentrant.ErrLost, call: func(c *cell) (bool, error) { _, err := c.rw.Token(c.ctx); return done(err) }},
	{name: "RWLock.Unlock-given-up", bound: boundAtOnce, ends: true, state: stateGivenUp, want: reentrant.ErrLost, call: endWrite},
	{name: "RWLock.RUnlock-given-up", bound: boundAtOnce, ends: true, state: stateGivenUp, want: reentrant.ErrLost, call: endRead},
	{name: "Semaphore.Release-given-up", bound: boundAtOnce, ends: true, state: stateGivenUp, want: reentrant.ErrLost, call: func(c *cell) (bool, error) { return done(c.sem.Release(c.ctx, 1)) }},
	{name: "Slot.Release-given-up", bound: boundAtOnce, ends: true, state: stateGivenUp, want: reentrant.ErrLost, call: endSlot},

	{name: "RWLock.Lock-closing", bound: boundCheck, ends: true, state: stateClosing, gains: holdings{aWrite: 1}, call: writeIt},
	{name: "RWLock.RLock-closing", bound: boundCheck, ends: true, state: stateClosing, gains: holdings{aRead: 1}, call: readIt},
	{name: "RWLock.Unlock-closing", bound: boundAtOnce, ends: true, state: stateClosing, gains: holdings{aWrite: -1}, call: endWrite},
	{name: "Semaphore.Acquire-closing", bound: boundCheck, ends: true, state: stateClosing, want: reentrant.ErrClosed, call: func(c *cell) (bool, error) { return done(c.sem.Acquire(c.ctx, 1)) }},
	{name: "Semaphore.Release-closing", bound: boundAtOnce, ends: true, state: stateClosing, gains: holdings{aPermit: -2}, call: releaseTwo},
}
