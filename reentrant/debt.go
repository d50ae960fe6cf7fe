package reentrant

import "github.com/relock-go/relock/reentrant/internal/core"

// oweLocked records that the owner of the lost hold owes so many Unlocks. e.mu is held, and so the owner's Unlock finds
// either the hold or the record.
func (e *lockState) oweLocked(holds int) {
	of := core.DebtOf(ModeLock, e.name, e.hold.owner)
	if e.hold.lease.Fixed() {
		e.s.core.Debts.AddLapsed(of, holds)
	} else {
		e.s.core.Debts.Add(of, holds)
	}
}

// lost reports whether the owner has lost a hold of the lock that it has not unlocked since.
func (l *Lock) lost(owner Owner) bool {
	return l.session.core.Debts.Owed(core.DebtOf(ModeLock, l.name, owner)) > 0
}

// lost reports whether the owner has lost a hold of the side that it has not unlocked since.
func (l *RWLock) lost(side side, owner Owner) bool {
	return l.session.core.Debts.Owed(core.DebtOf(side.mode(), l.name, owner)) > 0
}
