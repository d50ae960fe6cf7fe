package clock

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	ms = time.Millisecond
	// ahead is how far Redis's clock is ahead of the local clock in these tests.
	ahead = 1_800_000_000 * time.Second
)

// stampAt returns the time in µs that a clock shows at a local time. The clock is ahead by the given duration.
func stampAt(local, ahead time.Duration) int64 { return int64((local + ahead) / time.Microsecond) }

// answered returns the sample of a command that Redis ran at a local time.
func answered(sent, ran, received time.Duration) Sample {
	return Sample{Sent: sent, Received: received, Stamp: stampAt(ran, ahead)}
}

func TestOneSampleBoundsTheClock(t *testing.T) {
	m := Mapping{}.With(answered(1000*ms, 1001*ms, 1005*ms))
	assert.Equal(t, ahead-4*ms, m.low, "if Redis answered at the last moment")
	assert.Equal(t, ahead+1*ms+resolution, m.high, "if it read its clock at once")
}

func TestSamplesNarrowEachOther(t *testing.T) {
	slow, quick := answered(1000*ms, 1001*ms, 1050*ms), answered(1000*ms, 1003*ms, 1004*ms)
	m := Mapping{}.With(slow).With(quick)
	assert.InDelta(t, ahead-1*ms, m.low, float64(ms)/10)
	assert.InDelta(t, ahead+1*ms, m.high, float64(ms)/10)
	n := Mapping{}.With(quick).With(slow)
	assert.InDelta(t, m.low, n.low, float64(ms)/10, "the order of the samples does not matter")
	assert.InDelta(t, m.high, n.high, float64(ms)/10)
}

func TestAgeWidensTheMapping(t *testing.T) {
	m := Mapping{}.With(answered(1000*ms, 1001*ms, 1002*ms))
	for _, at := range []time.Duration{m.at + 10*time.Second, m.at - 10*time.Second} {
		old := m.aged(at)
		assert.Equal(t, m.low-10*ms, old.low, "1000 ppm of 10 s")
		assert.Equal(t, m.high+10*ms, old.high)
	}
	late := m.With(Sample{Sent: m.at + 10*time.Second, Received: m.at + 11*time.Second,
		Stamp: stampAt(m.at+10*time.Second+500*ms, ahead)})
	assert.Less(t, late.high-late.low, 30*ms, "a loose sample does not replace an older tight one")
}

func TestAgeIsCountedForMonths(t *testing.T) {
	m := Mapping{}.With(answered(1000*ms, 1001*ms, 1002*ms))
	old, older := m.aged(24*time.Hour), m.aged(150*24*time.Hour)
	assert.Less(t, older.low, old.low)
	assert.Greater(t, older.high, old.high)
}

func TestClocksThatRunApartAgreeAllTheSame(t *testing.T) {
	var m Mapping
	for i := range 1000 {
		local := time.Duration(i) * time.Second
		skew := local * 900 / 1e6 // 900 ppm
		before := m
		m = m.With(Sample{Sent: local, Received: local + ms, Stamp: stampAt(local+ms/2, ahead+skew)})
		if before.Known {
			require.Greater(t, m.high-m.low, time.Duration(0))
		}
		require.LessOrEqual(t, m.low, ahead+skew)
		require.GreaterOrEqual(t, m.high, ahead+skew)
	}
}

func TestSamplesThatDisagreeStartAnew(t *testing.T) {
	m := Mapping{}.With(answered(1000*ms, 1001*ms, 1002*ms))
	stepped := Sample{Sent: 2000 * ms, Received: 2010 * ms, Stamp: stampAt(2005*ms, ahead-3*time.Second)}
	m = m.With(stepped)
	assert.Equal(t, Mapping{}.With(stepped), m)
}

func TestNotAfterIsNeverTooLate(t *testing.T) {
	limit := 3000 * ms
	for _, c := range []struct{ sent, ran, received time.Duration }{
		{1000 * ms, 1000 * ms, 1010 * ms}, {1000 * ms, 1010 * ms, 1010 * ms}, {1000 * ms, 1005 * ms, 1010 * ms},
	} {
		m := Mapping{}.With(answered(c.sent, c.ran, c.received))
		// A script that runs at the limit or later reads at least this time. The time is more than notAfter, so the script is
		// refused.
		assert.Greater(t, stampAt(limit, ahead), m.NotAfter(limit))
		assert.Greater(t, m.NotAfter(limit), stampAt(limit-15*ms, ahead), "and not much too early")
	}
	assert.Zero(t, Mapping{}.NotAfter(limit), "without a mapping the attempt is refused, and the reply has the clock")
	assert.Zero(t, Mapping{}.With(answered(0, 0, ahead)).NotAfter(-ahead), "no Redis time is negative")
}

func TestEarliestIsNeverTooLate(t *testing.T) {
	for _, ran := range []time.Duration{1000 * ms, 1004 * ms, 1010 * ms} {
		m := Mapping{}.With(answered(1000*ms, ran, 1010*ms))
		granted := 1500 * ms
		got, ok := m.Earliest(stampAt(granted, ahead), 1600*ms)
		require.True(t, ok)
		assert.LessOrEqual(t, got, granted)
		assert.Greater(t, got, granted-15*ms, "and not much too early")
	}
	_, ok := Mapping{}.Earliest(stampAt(1500*ms, ahead), 1600*ms)
	assert.False(t, ok)
}

// After a reply to wait, a session refuses a grant that may be older than the reply. It accepts a grant that was made just
// after the reply, without another command.
func TestAGrantJustAfterARefusalIsNoEarlier(t *testing.T) {
	const us = time.Microsecond
	for _, sent := range []time.Duration{1000 * ms, 1000*ms + 300*us, 1000*ms + 900*us} {
		m := Mapping{}.With(answered(800*ms, 801*ms, 802*ms)).With(answered(sent, sent+30*us, sent+60*us))
		at, ok := m.Earliest(stampAt(sent+80*us, ahead), sent+150*us)
		require.True(t, ok)
		assert.GreaterOrEqual(t, at, sent)
		assert.LessOrEqual(t, at, sent+80*us)
	}
}

func TestMessageFromTheFutureDropsTheMapping(t *testing.T) {
	var c Clock
	c.Saw(answered(1000*ms, 1001*ms, 1002*ms))
	_, ok := c.Earliest(stampAt(1600*ms, ahead), 1500*ms)
	assert.False(t, ok, "the message arrived before it was sent")
	_, ok = c.Earliest(stampAt(1400*ms, ahead), 1500*ms)
	assert.False(t, ok, "the mapping was dropped")
	assert.Zero(t, c.NotAfter(5000*ms))
	c.Saw(answered(1700*ms, 1701*ms, 1702*ms))
	_, ok = c.Earliest(stampAt(1800*ms, ahead), 1900*ms)
	assert.True(t, ok, "the next sample makes a mapping again")
}

func TestForgetDropsTheMapping(t *testing.T) {
	for _, bySlot := range []bool{false, true} {
		c := Clocks{BySlot: bySlot}
		one := c.Of("a")
		one.Saw(answered(1000*ms, 1001*ms, 1002*ms))
		assert.NotZero(t, one.NotAfter(2000*ms))
		c.Restart()
		assert.Zero(t, one.NotAfter(2000*ms))
	}
}

func TestClocksOfACluster(t *testing.T) {
	c := Clocks{BySlot: true}
	assert.Same(t, c.Of("{a}1"), c.Of("{a}2"))
	assert.NotSame(t, c.Of("{a}1"), c.Of("{b}1"))
	var standalone Clocks
	assert.Same(t, standalone.Of("{a}1"), standalone.Of("{b}1"))
}

func TestStressClock(t *testing.T) {
	var c Clock
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 1000 {
				at := time.Duration(i+g) * ms
				c.Saw(answered(at, at+ms/2, at+ms))
				if n := c.NotAfter(at + time.Second); n != 0 {
					assert.Less(t, n, stampAt(at+time.Second, ahead))
				}
				if got, ok := c.Earliest(stampAt(at, ahead), at+time.Second); ok {
					assert.LessOrEqual(t, got, at)
				}
			}
		})
	}
	all.Wait()
}

func TestAnotherClockIsNoticed(t *testing.T) {
	for name, test := range map[string]struct {
		later, off time.Duration
		another    bool
	}{
		"the same":                          {later: time.Second},
		"slewed by chrony":                  {later: 3 * time.Second, off: 3 * time.Second * 8 / 100},
		"slewed back":                       {later: 3 * time.Second, off: -3 * time.Second * 8 / 100},
		"stepped":                           {later: time.Second, off: 200 * ms, another: true},
		"stepped back":                      {later: time.Second, off: -200 * ms, another: true},
		"stepped by no more than a command": {later: time.Second, off: ms},
		"stepped long ago":                  {later: time.Hour, off: time.Minute, another: true},
	} {
		t.Run(name, func(t *testing.T) {
			jumps := 0
			c := Clock{Jumped: func() { jumps++ }}
			c.Saw(answered(1000*ms, 1001*ms, 1002*ms))
			c.Forget() // the connection was lost, but the clock behind the next connection is still compared
			at := 1000*ms + test.later
			c.Saw(Sample{Sent: at, Received: at + 2*ms, Stamp: stampAt(at+ms, ahead+test.off)})
			assert.Equal(t, test.another, jumps == 1)
		})
	}
}

// If a node with another clock has taken over a slot, the node may have taken over other slots, too.
func TestAnotherClockMakesAllSlotsStartAnew(t *testing.T) {
	jumps := 0
	c := &Clocks{BySlot: true}
	c.Jumped = func() { // Conn calls these in this order
		c.Restart()
		jumps++
	}
	one, two := c.Of("{a}"), c.Of("{b}")
	require.NotSame(t, one, two)
	for _, c := range []*Clock{one, two} {
		c.Saw(answered(1000*ms, 1001*ms, 1002*ms))
	}
	one.Saw(Sample{Sent: 2000 * ms, Received: 2002 * ms, Stamp: stampAt(2001*ms, ahead+9*time.Second)})
	assert.Equal(t, 1, jumps, "leases are renewed, and places refreshed")
	_, known := two.Earliest(stampAt(1500*ms, ahead), 2000*ms)
	assert.False(t, known, "a grant in another slot has to be confirmed")
	two.Saw(Sample{Sent: 2000 * ms, Received: 2002 * ms, Stamp: stampAt(2001*ms, ahead+9*time.Second)})
	assert.Equal(t, 1, jumps, "the change is reported once")
}

// Before the first reply of a new node, the old node's clock gives the new node's grants their times. No grant gets a time
// after the arrival of its message.
func TestAGrantByAnotherClockIsNoLaterThanItsMessage(t *testing.T) {
	for _, off := range []time.Duration{-9 * time.Second, -ms, 0, ms, 50 * ms, 9 * time.Second} {
		var c Clock
		c.Saw(answered(1000*ms, 1001*ms, 1002*ms))
		const granted, arrived = 1500 * ms, 1600 * ms
		at, ok := c.Earliest(stampAt(granted, ahead+off), arrived)
		assert.True(t, !ok || at <= arrived, "%v", off)
		if off <= 0 {
			assert.True(t, ok && at <= granted, "%v: a clock that is behind dates the grant too early, which is safe", off)
		}
	}
}
