package reentrant

import "github.com/relock-go/relock/reentrant/internal/core"

// lost reports whether the owner has lost a hold of the side that it has not unlocked since.
func (l *RWLock) lost(side side, owner Owner) bool {
	return l.session.core.Debts.Owed(core.DebtOf(side.mode(), l.name, owner)) > 0
}
