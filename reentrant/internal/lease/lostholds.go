package lease

import (
	"slices"
	"sync"
)

// maxLostHolds bounds the memory of holds that were lost and never unlocked. Beyond it the oldest are forgotten, and
// their Unlock returns ErrNotHeld.
const maxLostHolds = 1024

// LostHolds records for each lost hold how many Unlocks its owner still owes. Those Unlocks return ErrLost.
type LostHolds[O comparable] struct {
	mu       sync.Mutex // a leaf: nothing else is locked under it
	owed     map[loss[O]]owed
	oldest   []lossRecord[O] // in the order of the losses; some are unlocked, or were lost again since
	sequence int             // of the latest
}

// An owed is the number of Unlocks that are still to come for a lost hold, with the sequence number of the loss.
type owed struct{ holds, sequence int }

type lossRecord[O comparable] struct {
	loss     loss[O]
	sequence int
}

type loss[O comparable] struct {
	name  string
	owner O
}

// Add records a lost hold that its owner still has to unlock holds times.
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

// TakeOwed reports whether the owner owes an Unlock for a lost hold, and counts it as done.
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
