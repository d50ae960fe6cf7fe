package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestLeaseIsTrustedUntilTheMarginBeforeItsEnd(t *testing.T) {
	sent := time.Now()
	l := New(sent, 0, 10*time.Second, false)
	end := sent.Add(10*time.Second - 100*time.Millisecond - 2*time.Millisecond)
	assert.Equal(t, end, l.Until())
	assert.True(t, l.Trusted(end.Add(-1)))
	assert.False(t, l.Trusted(end), "the end itself is outside")
	assert.Equal(t, time.Second, l.Remaining(end.Add(-time.Second)))
}

func TestLeaseIsDueAtAThird(t *testing.T) {
	sent := time.Now()
	l := New(sent, 0, 9*time.Second, false)
	assert.False(t, l.Due(sent.Add(3*time.Second-1), false))
	assert.True(t, l.Due(sent.Add(3*time.Second), false))
	assert.False(t, l.Due(sent.Add(2100*time.Millisecond-1), true))
	assert.True(t, l.Due(sent.Add(2100*time.Millisecond), true), "within the slack of a batch")
	pushed := Pushed(sent, 0, 9*time.Second)
	assert.False(t, pushed.Due(sent.Add(600*time.Millisecond-1), true), "the slack is less than the time until it")
	assert.True(t, pushed.Due(sent.Add(600*time.Millisecond), true))
	assert.Equal(t, sent.Add(3*time.Second), l.Wake())
}

func TestFixedLeaseIsNeverDue(t *testing.T) {
	sent := time.Now()
	l := New(sent, 0, time.Second, true)
	assert.False(t, l.Due(sent.Add(time.Hour), true))
	assert.Equal(t, l.Until(), l.Wake(), "a fixed lease is checked when it ends")
}

func TestLeaseAfterAFailedRenewalIsTriedAgainSoonAndNeverLasts(t *testing.T) {
	sent := time.Now()
	l := New(sent, 0, 9*time.Second, false)
	for now := sent.Add(3 * time.Second); l.Trusted(now); now = l.Wake() {
		r := l.Retried(now)
		assert.Equal(t, l.Until(), r.Until(), "a renewal without a reply extends nothing")
		assert.True(t, r.Wake().After(now))
		assert.LessOrEqual(t, r.Wake().Sub(now), time.Second)
		l = r
	}
}

func TestTheWallClockIsNotAheadOfOneThatGoesOn(t *testing.T) {
	assert.InDelta(t, 0, Ahead(time.Now()), float64(napTolerance))
	// A time without a monotonic reading is compared by wall clock alone.
	assert.Zero(t, Ahead(time.Now().Add(-time.Hour).Round(0)))
}

func TestALeaseAfterASleep(t *testing.T) {
	sent := time.Now()
	now := sent.Add(time.Second)
	l := New(sent, 0, 9*time.Second, false)
	short := l.woken(now, 2*time.Second)
	assert.Equal(t, l.Until().Add(-2*time.Second), short.Until())
	assert.True(t, short.Due(now, false), "the lease is renewed at once")
	long := l.woken(now, time.Hour)
	assert.Equal(t, now.Add(time.Second), long.Until(), "the clock may only have been set")
	late := l.woken(l.Until().Add(-time.Millisecond), time.Hour)
	assert.Equal(t, l.Until(), late.Until(), "no sleep extends anything")

	fixed := New(sent, 0, 9*time.Second, true)
	assert.Equal(t, fixed.Until().Add(-2*time.Second), fixed.woken(now, 2*time.Second).Until())
	assert.False(t, fixed.woken(now, time.Hour).Trusted(now))
}

// A wall clock that was set back is less far ahead from then on. A later sleep must not be hidden by that.
func TestASleepAfterTheClockWasSetBackCountsInFull(t *testing.T) {
	now := time.Now()
	for _, fixed := range []bool{false, true} {
		l := New(now, 0, 9*time.Second, fixed)
		back := l.Slept(now, -time.Hour)
		assert.Equal(t, l.Until(), back.Until(), "a clock that was set back proves nothing")
		assert.Equal(t, l.Until().Add(-2*time.Second), back.Slept(now, 2*time.Second-time.Hour).Until())
	}
}

func TestACheckShortensTheTrustToWhatRedisHasLeft(t *testing.T) {
	sent := time.Now()
	l := New(sent, 0, 9*time.Second, false)
	asked := sent.Add(time.Second)
	short := l.Left(asked, asked, 3*time.Second)
	assert.Equal(t, New(asked, 0, 3*time.Second, false).Until(), short.Until())
	assert.True(t, short.Due(asked, false), "the lease is renewed at once")
	assert.Equal(t, l, l.Left(asked, asked, time.Minute), "no reply extends the trust")
}

// What Redis had left of a lease before it was renewed says nothing about the lease after that.
func TestACheckFromBeforeARenewalChangesNothing(t *testing.T) {
	sent := time.Now()
	l := New(sent, 0, 9*time.Second, false)
	assert.Equal(t, l, l.Left(sent.Add(-1), sent, time.Second))
	assert.NotEqual(t, l, l.Left(sent, sent, time.Second))
}

func TestNoMarginReachesALease(t *testing.T) {
	for _, d := range []time.Duration{Min, 100 * time.Millisecond, time.Hour} {
		assert.Less(t, margin(d), d/3, "a lease of %v can be renewed before its end", d)
	}
}

// Keys expire at whole milliseconds: a key that is written late in a millisecond expires almost a millisecond early.
func TestTheMarginCoversTheServersResolution(t *testing.T) {
	sent := time.Now()
	for _, length := range []time.Duration{Min, time.Second, time.Minute} {
		trusted := New(sent, 0, length, false).Until().Sub(sent)
		assert.Less(t, trusted+length/marginShare, length-time.Millisecond, "with clocks that drift, too")
	}
}
