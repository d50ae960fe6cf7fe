package redisbackend

import (
	"sync"
	"time"
)

// An instant is a local moment: monotonic time since this process started. Wall clocks do not matter here.
type instant = time.Duration

var started = time.Now()

func instantOf(t time.Time) instant { return t.Sub(started) }

// A sample is an answered command. Redis read its clock while the command was under way:
//
//	sent ≤ local(stamp) ≤ received
type sample struct {
	sent, received instant
	stamp          int64 // Redis's clock, µs
}

func (s sample) redis() instant { return instant(s.stamp) * time.Microsecond }

// A mapping is what is known of how far Redis's clock is ahead of the local one: no less than low and no more than
// high. Samples narrow it, age widens it.
//
//	          ├─────────── sample 1 ───────────┤
//	                     ├──────── sample 2 ─────────┤
//	                     ├─────────────────────┤           both are right: known
//	├── 3 ──┤                                              cannot be: start anew from the latest
//
// It is pure arithmetic. The zero mapping knows nothing.
type mapping struct {
	known     bool
	low, high instant // Redis time minus local time, as of at
	at        instant
}

const (
	// drift is how far two clocks may run apart: 1000 ppm, that is 1 ms per second. A quartz does 50; the rest is
	// for clocks that are slewed (adjtime does 500), on either side.
	drift = 1000
	// resolution is that of Redis's answer.
	resolution = time.Microsecond
)

// with is the mapping as one more sample leaves it.
func (m mapping) with(s sample) mapping {
	fresh := mapping{known: true, low: s.redis() - s.received, high: s.redis() + resolution - s.sent, at: s.received}
	if !m.known {
		return fresh
	}
	at := max(m.at, s.received) // samples come in any order
	m, latest := m.aged(at), fresh.aged(at)
	m.low, m.high = max(m.low, latest.low), min(m.high, latest.high)
	if m.low > m.high {
		return fresh
	}
	return m
}

// contradicts reports whether a sample shows another clock than the one that the mapping is of: the clock was stepped, or
// another server answers. A clock that is slewed, which is done by less than a tenth, is the same one.
func (m mapping) contradicts(s sample) bool {
	if !m.known {
		return false
	}
	fresh := mapping{}.with(s)
	tolerance := min((fresh.at-m.at).Abs()/10, time.Second) + 10*time.Millisecond
	m = m.aged(fresh.at)
	return max(fresh.low-m.high, m.low-fresh.high) > tolerance
}

// aged is the mapping as seen from another moment, before or after.
func (m mapping) aged(at instant) mapping {
	slack := (at - m.at).Abs() / (1e6 / drift) // multiplied first, it would overflow after a hundred days
	return mapping{known: m.known, low: m.low - slack, high: m.high + slack, at: at}
}

// notAfter is a Redis time that is no later than a local one: a script that runs at or after t finds it passed,
// and may find so earlier. 0, which is always passed, when nothing is known.
func (m mapping) notAfter(t instant) int64 {
	if !m.known {
		return 0
	}
	latest := t + m.aged(t).low
	return max(0, int64((latest-1)/resolution))
}

// earliest is the first local moment at which Redis's clock can have shown stamp, asked when a message with it has
// arrived; false when nothing is known. Keys expire by whole milliseconds, so it is counted from the start of one.
func (m mapping) earliest(stamp int64, arrived instant) (instant, bool) {
	if !m.known {
		return 0, false
	}
	redis := sample{stamp: stamp}.redis().Truncate(time.Millisecond)
	high := max(m.aged(redis-m.high).high, m.aged(arrived).high) // as of the stamp, which lies before arrived
	return redis - high, true
}

// A clock keeps the mapping for one Redis node. It is safe for concurrent use.
type clock struct {
	jumped func() // called without the mutex when a sample shows another clock; nil: nobody listens. Set before use

	mu      sync.Mutex
	mapping mapping
	last    mapping // as it was after the latest sample; a lost connection does not make it forgotten
}

// saw adds a sample.
func (c *clock) saw(s sample) {
	if c.learn(s) && c.jumped != nil {
		c.jumped()
	}
}

// learn adds a sample, and reports whether it shows another clock.
func (c *clock) learn(s sample) (another bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	another = c.last.contradicts(s)
	c.mapping = c.mapping.with(s)
	c.last = c.mapping
	return another
}

// forget starts anew: the connection was lost, and there may be another node with another clock behind the next.
func (c *clock) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mapping = mapping{}
}

// restart forgets the last clock too.
func (c *clock) restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mapping, c.last = mapping{}, mapping{}
}

// notAfter is mapping.notAfter.
func (c *clock) notAfter(t instant) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mapping.notAfter(t)
}

// earliest is mapping.earliest for a message that arrived at a moment. If it would have been written after it
// arrived, the clock was stepped or is another one: the mapping is dropped.
func (c *clock) earliest(stamp int64, arrived instant) (instant, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.mapping.earliest(stamp, arrived)
	if ok && at > arrived {
		c.mapping = mapping{}
		return 0, false
	}
	return at, ok
}

// latest is the latest that a Redis's clock can show at a moment, in µs; 0 when nothing is known.
func (c *clock) latest(t instant) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mapping.known {
		return 0
	}
	return int64((t + c.mapping.aged(t).high) / resolution)
}

// clocks are the clocks of a deployment: one, or in a Cluster one for each slot in use. Two slots of one node merely learn
// the same thing twice. A slot can come to another node with no more than a redirection that the client follows by itself,
// so it is the clock that tells: one sample that shows another clock makes all slots start anew, and leases be renewed.
type clocks struct {
	one    clock
	mu     sync.Mutex // guards slots; taken before a clock's
	slots  map[uint16]*clock
	bySlot bool   // set before use
	jumped func() // a clock's; set before use
}

// of is the clock for a key.
func (c *clocks) of(key string) *clock {
	if !c.bySlot {
		return &c.one
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := slot(key)
	if c.slots[n] == nil {
		if c.slots == nil {
			c.slots = make(map[uint16]*clock)
		}
		c.slots[n] = &clock{jumped: c.jumped}
	}
	return c.slots[n]
}

// restart starts all of them anew.
func (c *clocks) restart() {
	c.one.restart()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.slots {
		one.restart()
	}
}
