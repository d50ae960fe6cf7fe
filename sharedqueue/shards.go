package sharedqueue

import (
	"runtime"
	"sync"
)

// slots is how many readers of a shard are found without a map.
const slots = 3

// maxShards bounds the memory of a queue and the work of closing it.
const maxShards = 16

// A shard counts the read holds of some owners. While it is open, readers enter and leave with its mutex alone.
type shard[O comparable] struct {
	mu sync.Mutex

	// open says that any reader is admitted as long as the units are trusted. It is written under the queue's mu and mu.
	open bool

	// Guarded by mu.

	came  bool // a reader came since the latest Rest
	n     int  // owners with holds
	slots [slots]hold[O]
	more  map[O]int // the holds of owners for which there was no slot

	_ [64]byte // keeps shards in different cache lines
}

// A hold is an owner's number of read holds. A free slot has 0.
type hold[O comparable] struct {
	holds int
	owner O
}

func newShards[O comparable]() []shard[O] {
	n := 1
	for n < 4*runtime.GOMAXPROCS(0) && n < maxShards {
		n *= 2
	}
	return make([]shard[O], n)
}

// holds returns the number of owner's holds. s.mu is held.
func (s *shard[O]) holds(owner O) int {
	if s.n == 0 {
		return 0
	}
	for i := range s.slots {
		if h := &s.slots[i]; h.holds > 0 && h.owner == owner {
			return h.holds
		}
	}
	return s.more[owner]
}

// add gives owner a hold. s.mu is held.
func (s *shard[O]) add(owner O) Outcome {
	s.came = true
	if s.n == 0 { // as usual
		s.n, s.slots[0] = 1, hold[O]{1, owner}
		return Admitted
	}
	var free *hold[O]
	for i := range s.slots {
		h := &s.slots[i]
		if h.holds == 0 {
			free = h
		} else if h.owner == owner {
			return increment(&h.holds)
		}
	}
	if len(s.more) > 0 { // a look into an empty map takes longer than the rest
		if holds := s.more[owner]; holds > 0 {
			o := increment(&holds)
			s.more[owner] = holds
			return o
		}
	}
	s.n++
	if free != nil {
		*free = hold[O]{1, owner}
		return Admitted
	}
	if s.more == nil {
		s.more = make(map[O]int)
	}
	s.more[owner] = 1
	return Admitted
}

func increment(holds *int) Outcome {
	if *holds == MaxHolds {
		return TooMany
	}
	*holds++
	return Reentered
}

// addSome gives owner n holds. It reports false, and changes nothing, if those would be too many. s.mu is held.
func (s *shard[O]) addSome(owner O, n int) bool {
	switch {
	case s.holds(owner) > MaxHolds-n:
		return false
	case n == 0:
		return true
	}
	s.add(owner)
	for i := range s.slots {
		if h := &s.slots[i]; h.holds > 0 && h.owner == owner {
			h.holds += n - 1
			return true
		}
	}
	s.more[owner] += n - 1
	return true
}

// take takes all of owner's holds, and returns how many they were. s.mu is held.
func (s *shard[O]) take(owner O) (holds int) {
	if holds = s.holds(owner); holds == 0 {
		return 0
	}
	s.n--
	for i := range s.slots {
		if h := &s.slots[i]; h.holds > 0 && h.owner == owner {
			*h = hold[O]{}
			return holds
		}
	}
	delete(s.more, owner)
	return holds
}

// drop takes one of owner's holds. s.mu is held.
func (s *shard[O]) drop(owner O) (left int, ok bool) {
	for i := range s.slots {
		if h := &s.slots[i]; h.holds > 0 && h.owner == owner {
			if h.holds--; h.holds == 0 {
				*h = hold[O]{}
				s.n--
			}
			return h.holds, true
		}
	}
	holds, ok := s.more[owner]
	switch {
	case !ok:
		return 0, false
	case holds == 1:
		delete(s.more, owner)
		s.n--
	default:
		s.more[owner] = holds - 1
	}
	return holds - 1, true
}

// each calls f with every owner and its holds. s.mu is held.
func (s *shard[O]) each(f func(owner O, holds int)) {
	for _, h := range s.slots {
		if h.holds > 0 {
			f(h.owner, h.holds)
		}
	}
	for owner, holds := range s.more {
		f(owner, holds)
	}
}

// clear forgets all holds. s.mu is held.
func (s *shard[O]) clear() {
	s.n, s.slots = 0, [slots]hold[O]{}
	clear(s.more)
}
