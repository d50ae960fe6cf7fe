package clock

import (
	"sync"
	"time"

	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// An instant is a local moment: monotonic time since this process started. Wall clocks do not matter here.
type instant = time.Duration

// Started is when this process began: local moments are counted from then.
var Started = time.Now()

// InstantOf returns the local moment of t.
func InstantOf(t time.Time) instant { return t.Sub(Started) }

// A Sample is a command with a reply. Redis read its clock while the command was under way:
//
//	sent ≤ local(stamp) ≤ received
type Sample struct {
	Sent, Received instant
	Stamp          int64 // Redis's clock, µs
}

// SampleSince returns the sample, without its stamp, of a command that was sent at a given time and has its reply by now. If
// SampleSince is called some time after the reply came, the sample is wider, but not wrong.
func SampleSince(sent time.Time) Sample {
	return Sample{Sent: InstantOf(sent), Received: time.Since(Started)}
}

// A Mapping bounds how far Redis's clock is ahead of the local one: at least low and at most high. Samples narrow these
// bounds, age widens them.
//
//	          ├─────────── sample 1 ───────────┤
//	                     ├──────── sample 2 ─────────┤
//	                     ├─────────────────────┤           both are right: known
//	├── 3 ──┤                                              cannot be: start anew from the latest
//
// The zero Mapping knows no bounds.
type Mapping struct {
	Known     bool
	low, high instant // Redis time minus local time, as of at
	at        instant
}

const (
	// drift is the most by which two clocks may run apart, in ppm: 1 ms per second. A quartz is off by up to 50 ppm; the rest
	// allows for clocks on either side that are slewed (adjtime slews by 500 ppm).
	drift = 1000
	// resolution is the unit in which a reply shows Redis's clock.
	resolution = time.Microsecond
)

// With returns the mapping after one more sample.
func (m Mapping) With(s Sample) Mapping {
	redis := instant(s.Stamp) * time.Microsecond
	fresh := Mapping{Known: true, low: redis - s.Received, high: redis + resolution - s.Sent, at: s.Received}
	if !m.Known {
		return fresh
	}
	m = m.aged(s.Received) // samples come in any order
	m.low, m.high = max(m.low, fresh.low), min(m.high, fresh.high)
	if m.low > m.high {
		return fresh
	}
	return m
}

// contradicts reports whether a sample is of another clock than the mapping: the clock was stepped, or another server
// replied. A clock that is slewed, by less than a tenth, is still the same clock.
func (m Mapping) contradicts(s Sample) bool {
	if !m.Known {
		return false
	}
	fresh := Mapping{}.With(s)
	tolerance := min((fresh.at-m.at).Abs()/10, time.Second) + 10*time.Millisecond
	m = m.aged(fresh.at)
	return max(fresh.low-m.high, m.low-fresh.high) > tolerance
}

// aged returns the mapping for another moment, earlier or later.
func (m Mapping) aged(at instant) Mapping {
	slack := (at - m.at).Abs() / (1e6 / drift) // multiplied first, it would overflow after a hundred days
	return Mapping{Known: m.Known, low: m.low - slack, high: m.high + slack, at: at}
}

// NotAfter returns a Redis time, in µs, that is before the local moment t. A script that runs at t or later finds that the
// Redis time has passed; a script that runs shortly before t may find so, too. If no bounds are known, NotAfter returns 0, a
// time that has always passed.
func (m Mapping) NotAfter(t instant) int64 {
	if !m.Known {
		return 0
	}
	latest := t + m.aged(t).low
	return max(0, int64((latest-1)/resolution))
}

// Earliest returns the first local moment at which Redis's clock can have shown stamp, the time in a message that arrived at
// the moment arrived. It returns false if no bounds are known. It does not round to milliseconds, since a grant is compared
// with the replies to commands that were sent just before it. Keys expire up to a millisecond early; the margin of a lease
// covers that.
func (m Mapping) Earliest(stamp int64, arrived instant) (instant, bool) {
	if !m.Known {
		return 0, false
	}
	redis := instant(stamp) * time.Microsecond
	high := max(m.aged(redis-m.high).high, m.aged(arrived).high) // as of the stamp, which lies before arrived
	return redis - high, true
}

// A Clock keeps the mapping for one Redis node. It is safe for concurrent use.
type Clock struct {
	Jumped func() // called without the mutex when a sample shows another clock; may be nil. Set before use

	mu      sync.Mutex
	Mapping Mapping
	last    Mapping // the mapping after the latest sample; a lost connection does not reset it
}

// Saw adds a sample.
func (c *Clock) Saw(s Sample) {
	c.mu.Lock()
	another := c.last.contradicts(s)
	c.Mapping = c.Mapping.With(s)
	c.last = c.Mapping
	c.mu.Unlock()
	if another && c.Jumped != nil {
		c.Jumped()
	}
}

// Forget drops the mapping. It is called when the connection was lost: the next one may lead to a node with another clock.
func (c *Clock) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Mapping = Mapping{}
}

// Restart drops the mapping and also forgets the latest sample, so the next sample cannot contradict it, and Jumped is not
// called.
func (c *Clock) Restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Mapping, c.last = Mapping{}, Mapping{}
}

// NotAfter returns what NotAfter of the mapping returns.
func (c *Clock) NotAfter(t instant) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Mapping.NotAfter(t)
}

// Earliest returns what Earliest of the mapping returns. But if the message would have been written after it arrived, Redis's
// clock was stepped or is another one: then Earliest drops the mapping and returns false.
func (c *Clock) Earliest(stamp int64, arrived instant) (instant, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.Mapping.Earliest(stamp, arrived)
	if ok && at > arrived {
		c.Mapping = Mapping{}
		return 0, false
	}
	return at, ok
}

// Latest returns the latest time that Redis's clock can show at a moment, in µs; 0 when nothing is known.
func (c *Clock) Latest(t instant) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.Mapping.Known {
		return 0
	}
	return int64((t + c.Mapping.aged(t).high) / resolution)
}

// Clocks are the clocks of a deployment: one, or in a Cluster one for each slot in use. For two slots of one node the same
// mapping is kept twice. When a slot moves to another node, the client follows the redirection by itself, so only a sample
// of another clock shows the move. After such a sample all slots start anew, and the session renews its leases.
type Clocks struct {
	One    Clock
	mu     sync.Mutex // guards slots; taken before a Clock's mutex
	slots  map[uint16]*Clock
	BySlot bool   // set before use
	Jumped func() // Jumped of the clocks of slots; set before use
}

// Of returns the clock for a key.
func (c *Clocks) Of(key string) *Clock {
	if !c.BySlot {
		return &c.One
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := wire.Slot(key)
	if c.slots[n] == nil {
		if c.slots == nil {
			c.slots = make(map[uint16]*Clock)
		}
		c.slots[n] = &Clock{Jumped: c.Jumped}
	}
	return c.slots[n]
}

// Restart drops all mappings.
func (c *Clocks) Restart() {
	c.One.Restart()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.slots {
		one.Restart()
	}
}
