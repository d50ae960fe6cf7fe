package sharedqueue

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
)

// slots is how many readers of a shard are found without a map.
const slots = 3

// maxShards bounds the memory of a queue and the work of closing it.
const maxShards = 16

// sealed is the value of shard.lone while all readers of the shard must enter and leave under the shard's mutex.
const sealed = math.MaxUint64

// A shard counts the read holds of some owners. While the shard is open, readers enter and leave with the shard's mutex alone.
// A reader that has a number does not even need that mutex while no other reader is inside.
type shard[O comparable] struct {
	// lone is the number of the only reader inside, which entered without mu and has one hold; 0 if no reader is inside. A
	// reader that enters without mu changes lone from 0 to its number; if it leaves without mu, it changes lone back to 0. The
	// method lock sets lone to sealed, and counts the lone reader with the others.
	lone atomic.Uint64
	came atomic.Bool // a reader came since the latest Rest

	mu    sync.Mutex
	owner func(number uint64) O // immutable

	// open says that any reader is admitted while the units are trusted. It is written with the queue's mu and the shard's held.
	open bool

	// Guarded by mu.

	n     int // owners with holds, except a lone one
	slots [slots]hold[O]
	more  map[O]int // the holds of owners for which there was no slot

	_ [64]byte // keeps shards in different cache lines
}

// lock locks the shard, and counts a lone reader with the others.
func (s *shard[O]) lock() {
	s.mu.Lock()
	if s.lone.Load() == sealed {
		return
	}
	if number := s.lone.Swap(sealed); number != 0 {
		s.n, s.slots[0] = 1, hold[O]{1, s.owner(number)}
	}
}

// unlock unlocks the shard. If the shard is open and empty, the next reader can enter without mu (enterAlone).
func (s *shard[O]) unlock() {
	if s.open && s.n == 0 {
		s.lone.Store(0)
	}
	s.mu.Unlock()
}

// enterAlone gives the owner with the given number a hold if the shard is open and empty.
func (s *shard[O]) enterAlone(number uint64) bool {
	if number == 0 || !s.lone.CompareAndSwap(0, number) {
		return false
	}
	if !s.came.Load() { // most often came is set already, and a store would cost as much as the rest
		s.came.Store(true)
	}
	return true
}

// isAlone reports whether the owner with the given number is inside, and entered without mu.
func (s *shard[O]) isAlone(number uint64) bool { return number != 0 && s.lone.Load() == number }

// leaveAlone takes the hold of the owner with the given number if no other reader is inside.
func (s *shard[O]) leaveAlone(number uint64) bool {
	return number != 0 && s.lone.CompareAndSwap(number, 0)
}

// A hold is an owner's number of read holds. A free slot has 0.
type hold[O comparable] struct {
	holds int
	owner O
}

func newShards[O comparable](owner func(number uint64) O) []shard[O] {
	n := 1
	for n < 4*runtime.GOMAXPROCS(0) && n < maxShards {
		n *= 2
	}
	shards := make([]shard[O], n)
	for i := range shards {
		shards[i].owner = owner
		shards[i].lone.Store(sealed)
	}
	return shards
}

// holds returns the number of owner's holds. The shard is locked.
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

// add gives owner a hold. The shard is locked.
func (s *shard[O]) add(owner O) Outcome {
	s.came.Store(true)
	if s.n == 0 { // the usual case
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

// addSome gives owner n holds. It returns false, and changes nothing, if owner would have too many. The shard is locked.
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

// take takes all of owner's holds, and returns how many they were. The shard is locked.
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

// drop takes one of owner's holds. The shard is locked.
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

// each calls f with every owner and its holds. The shard is locked.
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

// clear forgets all holds. The shard is locked.
func (s *shard[O]) clear() {
	s.n, s.slots = 0, [slots]hold[O]{}
	clear(s.more)
}
