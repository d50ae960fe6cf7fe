package reentrant

import (
	"slices"
	"sync"
)

// maxLosses bounds the memory of holds that were lost and never unlocked. Beyond it the oldest are forgotten, and
// their Unlock answers ErrNotHeld.
const maxLosses = 1024

// losses remembers for each hold that was lost how many Unlocks its owner still owes, so that those answer ErrLost.
type losses struct {
	mu     sync.Mutex // a leaf: nothing else is locked under it
	owed   map[loss]debt
	oldest []debtor // in the order they were lost; some are paid, or were lost again since
	number int      // of the latest
}

// A debt is how many Unlocks are owed for the loss with a number.
type debt struct{ holds, number int }

type debtor struct {
	loss
	number int
}

type loss struct {
	name  string
	owner Owner
}

func (l *losses) add(name string, owner Owner, holds int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owed == nil {
		l.owed = make(map[loss]debt)
	}
	l.number++
	key := loss{name, owner}
	l.owed[key] = debt{l.owed[key].holds + holds, l.number}
	l.oldest = append(l.oldest, debtor{key, l.number})
	if len(l.oldest) <= maxLosses {
		return
	}
	l.oldest = slices.DeleteFunc(l.oldest, func(d debtor) bool { return l.owed[d.loss].number != d.number })
	if len(l.oldest) > maxLosses {
		delete(l.owed, l.oldest[0].loss)
		l.oldest = slices.Delete(l.oldest, 0, 1)
	}
}

// pay tells whether the owner owes an Unlock for a lost hold, and takes it off.
func (l *losses) pay(name string, owner Owner) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := loss{name, owner}
	d := l.owed[key]
	if d.holds > 1 {
		l.owed[key] = debt{d.holds - 1, d.number}
	} else {
		delete(l.owed, key)
	}
	return d.holds > 0
}

// owes tells whether the owner lost a hold that it has not unlocked.
func (l *losses) owes(name string, owner Owner) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owed[loss{name, owner}].holds > 0
}
