package lease

import "sync"

// LostHolds counts the Unlocks that are owed for lost holds. Those Unlocks return ErrLost. A K names an owner and the lock of
// which the owner lost holds.
//
// A count stays until the last of its Unlocks is called, so there are never more counts than holds that were lost and not
// unlocked since. An owner that never unlocks what it lost costs one count for as long as the session exists. Holds with a
// fixed lease are an exception, since their owners may leave them to expire: old counts of such holds are forgotten.
type LostHolds[K comparable] struct {
	mu   sync.Mutex // a leaf: nothing else is locked under it
	owed counts[K]

	// The counts of holds with a fixed lease: those in lapsed are the latest, and those in before are older. When lapsed has
	// maxLapsed counts, they take the place of those in before.
	lapsed, before counts[K]
}

// maxLapsed is how many counts of holds with a fixed lease are remembered at least, if there are so many.
const maxLapsed = 1024

// Add records that n Unlocks are owed for a lost hold.
func (l *LostHolds[K]) Add(of K, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owed.add(of, n)
}

// AddLapsed records that n Unlocks are owed for a hold with a fixed lease. Its owner may have left it to expire, so
// AddLapsed forgets such a hold when many others were lost after it.
func (l *LostHolds[K]) AddLapsed(of K, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lapsed) == maxLapsed {
		l.lapsed, l.before = nil, l.lapsed
	}
	l.lapsed.add(of, n)
}

// TakeOwed counts owed Unlocks as done, but no more than the number most, and returns how many it has counted. If fewer than
// least are owed, it counts none.
func (l *LostHolds[K]) TakeOwed(of K, least, most int) (taken int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owedLocked(of) < least {
		return 0
	}
	for _, c := range []*counts[K]{&l.owed, &l.lapsed, &l.before} {
		taken += c.take(of, most-taken)
	}
	return taken
}

// Owed returns how many Unlocks are owed.
func (l *LostHolds[K]) Owed(of K) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owedLocked(of)
}

// owedLocked is Owed with l.mu held.
func (l *LostHolds[K]) owedLocked(of K) int { return l.owed[of] + l.lapsed[of] + l.before[of] }

// counts has a number for each key; none is 0.
type counts[K comparable] map[K]int

func (c *counts[K]) add(of K, n int) {
	if *c == nil {
		*c = make(counts[K])
	}
	(*c)[of] += n
}

// take subtracts most, or the whole number if that is less, and returns how much it has subtracted.
func (c *counts[K]) take(of K, most int) int {
	has := (*c)[of]
	if has > most {
		(*c)[of] -= most
		return most
	}
	delete(*c, of)
	if len(*c) == 0 {
		*c = nil // frees the memory: a map does not shrink
	}
	return has
}
