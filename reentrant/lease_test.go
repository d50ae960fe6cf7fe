package reentrant

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestLeaseIsTrustedUntilTheMarginBeforeItsEnd(t *testing.T) {
	sent := time.Now()
	l := newLease(sent, 0, 10*time.Second, false)
	end := sent.Add(10*time.Second - 100*time.Millisecond - 2*time.Millisecond)
	assert.Equal(t, end, l.until())
	assert.True(t, l.trusted(end.Add(-1)))
	assert.False(t, l.trusted(end), "the end itself is outside")
	assert.Equal(t, time.Second, l.remaining(end.Add(-time.Second)))
}

func TestLeaseIsDueAtAThird(t *testing.T) {
	sent := time.Now()
	l := newLease(sent, 0, 9*time.Second, false)
	assert.False(t, l.due(sent.Add(3*time.Second-1), 0))
	assert.True(t, l.due(sent.Add(3*time.Second), 0))
	assert.True(t, l.due(sent.Add(2*time.Second), time.Second), "within the slack of a batch")
	assert.Equal(t, sent.Add(3*time.Second), l.wake())
}

func TestFixedLeaseIsNeverDue(t *testing.T) {
	sent := time.Now()
	l := newLease(sent, 0, time.Second, true)
	assert.False(t, l.due(sent.Add(time.Hour), time.Hour))
	assert.Equal(t, l.until(), l.wake(), "it is looked at when it ends")
}

func TestLeaseAfterAFailedRenewalIsTriedAgainSoonAndNeverLasts(t *testing.T) {
	sent := time.Now()
	l := newLease(sent, 0, 9*time.Second, false)
	for now := sent.Add(3 * time.Second); l.trusted(now); now = l.wake() {
		r := l.retried(now)
		assert.Equal(t, l.until(), r.until(), "no answer extends nothing")
		assert.True(t, r.wake().After(now))
		assert.LessOrEqual(t, r.wake().Sub(now), time.Second)
		l = r
	}
}

func TestTheWallClockIsNotAheadOfOneThatGoesOn(t *testing.T) {
	assert.InDelta(t, 0, ahead(time.Now()), float64(napTolerance))
	// A time without a monotonic reading is compared by wall clock alone.
	assert.Zero(t, ahead(time.Now().Add(-time.Hour).Round(0)))
}

func TestALeaseAfterASleep(t *testing.T) {
	sent := time.Now()
	now := sent.Add(time.Second)
	l := newLease(sent, 0, 9*time.Second, false)
	short := l.woken(now, 2*time.Second)
	assert.Equal(t, l.until().Add(-2*time.Second), short.until())
	assert.True(t, short.due(now, 0), "it is renewed at once")
	long := l.woken(now, time.Hour)
	assert.Equal(t, now.Add(time.Second), long.until(), "the clock may only have been set")
	late := l.woken(l.until().Add(-time.Millisecond), time.Hour)
	assert.Equal(t, l.until(), late.until(), "no sleep extends anything")

	fixed := newLease(sent, 0, 9*time.Second, true)
	assert.Equal(t, fixed.until().Add(-2*time.Second), fixed.woken(now, 2*time.Second).until())
	assert.False(t, fixed.woken(now, time.Hour).trusted(now))
}

func TestNoMarginReachesALease(t *testing.T) {
	for _, d := range []time.Duration{minLease, 100 * time.Millisecond, time.Hour} {
		assert.Less(t, margin(d), d/3, "a lease of %v can be renewed before its end", d)
	}
}
