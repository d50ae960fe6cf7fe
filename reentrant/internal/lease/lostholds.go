package lease

import (
	"slices"
	"sync"
)

// maxLostHolds bounds the memory of holds that were lost and never unlocked. Beyond it the oldest are forgotten, and
// their Unlock returns ErrNotHeld.
const maxLostHolds = 1024

// LostHolds remembers for each hold that was lost how many Unlocks its owner still owes, so that those answer ErrLost.
type LostHolds[O comparable] struct {
	mu       sync.Mutex // a leaf: nothing else is locked under it
	owed     map[loss[O]]owed
	oldest   []lossRecord[O] // in the order they were lost; some are paid, or were lost again since
	sequence int             // of the latest
}

// An owed is how many Unlocks a lost hold still has to come, with the loss's number.
type owed struct{ holds, sequence int }

type lossRecord[O comparable] struct {
	loss     loss[O]
	sequence int
}

type loss[O comparable] struct {
	name  string
	owner O
}

// Add records that a hold was lost whose owner still has to unlock it so many times.
func (l *LostHolds[O]) Add(name string, owner O, holds int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owed == nil {
		l.owed = make(map[loss[O]]owed)
	}
	l.sequence++
	key := loss[O]{name, owner}
	l.owed[key] = owed{l.owed[key].holds + holds, l.sequence}
	l.oldest = append(l.oldest, lossRecord[O]{key, l.sequence})
	if len(l.oldest) <= maxLostHolds {
		return
	}
	l.oldest = slices.DeleteFunc(l.oldest, func(d lossRecord[O]) bool { return l.owed[d.loss].sequence != d.sequence })
	if len(l.oldest) > maxLostHolds {
		delete(l.owed, l.oldest[0].loss)
		l.oldest = slices.Delete(l.oldest, 0, 1)
	}
}

// TakeOwed reports whether the owner owes an Unlock for a lost hold, and takes it off.
func (l *LostHolds[O]) TakeOwed(name string, owner O) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := loss[O]{name, owner}
	d := l.owed[key]
	if d.holds > 1 {
		l.owed[key] = owed{d.holds - 1, d.sequence}
	} else {
		delete(l.owed, key)
	}
	return d.holds > 0
}

// IsOwed reports whether the owner lost a hold that it has not unlocked.
func (l *LostHolds[O]) IsOwed(name string, owner O) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owed[loss[O]{name, owner}].holds > 0
}

// OwedBy returns how many Unlocks the owner owes for lost holds.
func (l *LostHolds[O]) OwedBy(name string, owner O) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owed[loss[O]{name, owner}].holds
}
