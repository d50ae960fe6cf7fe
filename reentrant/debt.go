package reentrant

// A debt identifies what an owner has lost and not given up since: holds of a lock or of one side of a read-write lock,
// or permits of a semaphore. Permits have no owner.
type debt struct {
	mode  Mode
	name  string
	owner Owner
}

// debtOfPermits returns the debt of a session that lost permits.
func debtOfPermits(name string) debt { return debt{ModePermits, name, Owner{}} }

// oweLocked records that the owner of the lost hold owes so many Unlocks. e.mu is held, and so the owner's Unlock finds
// either the hold or the record.
func (e *lockState) oweLocked(holds int) {
	of := debt{ModeLock, e.name, e.hold.owner}
	if e.hold.lease.Fixed() {
		e.s.lostHolds.AddLapsed(of, holds)
	} else {
		e.s.lostHolds.Add(of, holds)
	}
}

// lost reports whether the owner has lost a hold of the lock that it has not unlocked since.
func (l *Lock) lost(owner Owner) bool {
	return l.session.lostHolds.Owed(debt{ModeLock, l.name, owner}) > 0
}

// lost reports whether the owner has lost a hold of the side that it has not unlocked since.
func (l *RWLock) lost(side side, owner Owner) bool {
	return l.session.lostHolds.Owed(debt{side.mode(), l.name, owner}) > 0
}
