package core

// A Debt identifies what an owner has lost and not given up since: holds of a lock or of one side of a read-write lock,
// or permits of a semaphore. Permits have no owner.
type Debt struct {
	mode  Mode
	name  string
	owner Owner
}

// DebtOf returns the debt of an owner that lost holds.
func DebtOf(mode Mode, name string, owner Owner) Debt { return Debt{mode, name, owner} }

// DebtOfPermits returns the debt of a session that lost permits.
func DebtOfPermits(name string) Debt { return DebtOf(ModePermits, name, Owner{}) }
