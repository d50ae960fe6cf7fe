package reentrant

import "sync"

// maxLosses bounds the memory of holds that were lost and never unlocked. Beyond it the oldest are forgotten, and
// their Unlock answers ErrNotHeld.
const maxLosses = 1024

// losses remembers for each hold that was lost how many Unlocks its owner still owes, so that those answer ErrLost.
type losses struct {
	mu     sync.Mutex // a leaf: nothing else is locked under it
	owed   map[loss]int
	oldest []loss // in the order they were lost; may name some that are paid
}

type loss struct {
	name  string
	owner Owner
}

func (l *losses) add(name string, owner Owner, holds int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owed == nil {
		l.owed = make(map[loss]int)
	}
	key := loss{name, owner}
	l.owed[key] += holds
	l.oldest = append(l.oldest, key)
	if len(l.oldest) > maxLosses {
		delete(l.owed, l.oldest[0])
		l.oldest = l.oldest[1:]
	}
}

// pay tells whether the owner owes an Unlock for a lost hold, and takes it off.
func (l *losses) pay(name string, owner Owner) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := loss{name, owner}
	n := l.owed[key]
	if n > 1 {
		l.owed[key] = n - 1
	} else {
		delete(l.owed, key)
	}
	return n > 0
}

// owes tells whether the owner lost a hold that it has not unlocked.
func (l *losses) owes(name string, owner Owner) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owed[loss{name, owner}] > 0
}
