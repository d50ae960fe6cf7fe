package reentrant_test

import (
	"errors"

	"github.com/relock-go/relock/reentrant"
)

// holdings counts what the caller has of each kind.
type holdings [things]int

// What a caller can have.
const (
	aHold   = iota // holds of the lock far/x
	aWrite         // holds of the write side of far/rw
	aRead          // holds of its read side
	aPermit        // permits of far/sem
	aSlot          // slots of far/sem; each has a permit, too
	things
)

var nameOf = [things]string{"holds", "holds of the write side", "holds of the read side", "permits", "slots"}

// has returns what the caller has now.
func (c *cell) has() (h holdings) {
	h[aHold], h[aWrite], h[aRead] = c.lock.HoldCount(c.home), c.rw.HoldCount(c.home), c.rw.ReadHoldCount(c.home)
	h[aPermit] = reentrant.PermitsInUse(c.sem) - c.neighbours()
	for _, slot := range c.slots {
		if _, err := slot.Token(); err == nil {
			h[aSlot]++
		}
	}
	return h
}

// neighbours returns how many permits of the session the neighbour has.
func (c *cell) neighbours() int {
	if c.lentLost == nil || !stillOpen(c.lentLost) {
		return 0
	}
	return int(c.lent.Load())
}

// losses returns the channels that are closed when the caller loses something.
func (c *cell) losses() (lost [things]<-chan struct{}) {
	lost[aHold], lost[aWrite], lost[aRead], lost[aPermit] = c.lock.Lost(c.home), c.rw.Lost(c.home), c.rw.Lost(c.home), c.sem.Lost()
	for _, slot := range c.slots {
		lost[aSlot] = slot.Lost()
	}
	return lost
}

// checkHolds checks that the caller has what the result says.
func (c *cell) checkHolds() {
	r := &c.result
	if c.row.bound == boundClose { // the call is about what other sessions have
		return
	}
	for thing, had := range r.had {
		want, done := had, r.ok && r.err == nil
		if r.lost[thing] && (!done || thing != aHold) { // Resume restores a hold
			want = 0
		}
		switch {
		case done && r.lost[thing] && c.hadBothSides(): // one side is left: both sides have one channel, which shows a loss of either
			want = max(0, c.row.gains[thing])
		case done:
			want += c.row.gains[thing]
		case !r.lost[thing] && !errors.Is(r.err, reentrant.ErrNotHeld):
			want += c.row.gives[thing]
		}
		if r.have[thing] != want {
			c.errorf("the caller had %d %s and has %d, not %d, after: %v", had, nameOf[thing], r.have[thing], want, r.err)
		}
	}
}

func (c *cell) hadBothSides() bool { return c.result.had[aWrite] > 0 && c.result.had[aRead] > 0 }

// giveUpHolds unlocks what the caller has. The caller itself must call it.
func (c *cell) giveUpHolds() {
	defer c.othersGiveUp()
	for range c.lock.HoldCount(c.home) {
		_ = c.lock.Unlock(c.home)
	}
	for range c.second.HoldCount(c.home) {
		_ = c.second.Unlock(c.home)
	}
	for range c.theirs.HoldCount(c.home) {
		_ = c.theirs.Unlock(c.home)
	}
	c.giveUpShared()
}

func (c *cell) giveUpShared() {
	for range c.rw.HoldCount(c.home) {
		_ = c.rw.Unlock(c.home)
	}
	for range c.rw.ReadHoldCount(c.home) {
		_ = c.rw.RUnlock(c.home)
	}
	for _, slot := range c.slots {
		_ = slot.Release(c.home)
	}
	for range 2 * cellPermits { // lost permits are released first
		if reentrant.PermitsInUse(c.sem) > c.neighbours() {
			_ = c.sem.Release(c.home, 1)
		}
	}
}

// othersGiveUp makes the stranger and the neighbour release what they have.
func (c *cell) othersGiveUp() {
	_ = c.theirs.Unlock(c.stranger)
	_ = c.lock.Unlock(c.neighbour)
	_ = c.theirRW.Unlock(c.stranger)
	_ = c.theirRW.RUnlock(c.stranger)
	_ = c.rw.Unlock(c.neighbour)
	_ = c.theirSem.Release(c.stranger, cellPermits)
	for _, slot := range c.theirSlots {
		_ = slot.Release(c.stranger)
	}
	for i := range cellPermits {
		_ = c.theirNumber(i).Unlock(c.stranger)
	}
	if n := c.neighbours(); n > 0 {
		c.lent.Store(0) // before another caller can have them
		_ = c.sem.Release(c.neighbour, n)
	}
}
