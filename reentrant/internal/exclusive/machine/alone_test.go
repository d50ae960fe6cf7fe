package machine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// pass lets an owner have the lock once, and reports whether its session asked for the lock in order to keep it.
func pass(r *rig, freed bool) (kept bool) {
	r.m.Begin(&r.at, &r.head)
	kept = r.send().Lease < r.at.Lease
	r.granted()
	r.m.Exit(&r.at)
	r.m.Released(true, freed && !kept)
	return kept
}

// passes lets owners have the lock until the session keeps it, and returns how many owners had it before that.
func passes(r *rig) (n int) {
	for !pass(r, true) {
		n++
	}
	return n
}

func TestASessionKeepsALockThatItHadThreeTimesInARow(t *testing.T) {
	r := newRig()
	r.head.Alone = true
	assert.Equal(t, aloneAfter, passes(r))
	for name, ends := range map[string]func(*rig){
		"another session waited at the release": func(r *rig) { pass(r, false) },
		"the release had no reply": func(r *rig) {
			r.reach(Freeing)
			r.m.Released(false, false)
		},
		"another session had it": func(r *rig) {
			r.reach(Asking)
			r.refuted()
			r.m.GiveUp()
		},
		"a command had no reply": func(r *rig) {
			r.reach(Asking)
			answer(true, false)(r)
			r.m.GiveUp()
		},
		"a command took long": func(r *rig) {
			r.reach(Asking)
			r.wait(r.at.Heartbeat / 4)
			r.granted()
			r.m.Exit(&r.at)
			r.m.Released(true, false)
		},
		"it is wanted": func(r *rig) {
			r.reach(Held)
			r.m.Wanted(r.next)
			r.m.Exit(&r.at)
			r.m.Released(true, false)
		},
		"the hold was lost":   func(r *rig) { r.reach(Lost); r.m.Evicted() },
		"the lease ended":     func(r *rig) { r.reach(Held); of(tooLate, exit)(r) },
		"it is another lock":  func(r *rig) { r.m.Reuse(false) },
		"its owner waits":     func(r *rig) { r.reach(Leaving); r.m.Left() },
		"an owner comes back": func(r *rig) { r.head.Ticket = r.next + 1; begin(r); r.head.Ticket = 0; r.m.GiveUp() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig()
			r.head.Alone = true
			for range aloneAfter {
				require.False(t, pass(r, true))
			}
			ends(r)
			r.next = max(r.next, r.m.Sent())
			assert.GreaterOrEqual(t, passes(r), aloneAfter)
		})
	}
}

func TestALockOfAnotherKindIsNotKept(t *testing.T) {
	r := newRig()
	for range 10 {
		assert.False(t, pass(r, true))
	}
}

// keeps lets the session keep the lock, and n owners inherit it.
func keeps(r *rig, n int) {
	r.at.Block = 100
	r.m.Begin(&r.at, &r.head)
	r.send()
	r.replied(backend.AcquireReply{Status: backend.Granted, First: 100, Last: 199})
	for range n {
		linger(r)
		inherit(r)
	}
	linger(r)
}

func TestASessionThatIsAskedTooSoonKeepsTheLockLater(t *testing.T) {
	r := newRig()
	alone(r)
	for n := range maxWary + 1 {
		keeps(r, aloneAfter-1)
		r.m.Wanted(r.next)
		clean(r)
		r.m.Released(true, false)
		for want := range aloneAfter << min(n+1, maxWary) {
			require.False(t, pass(r, true), "%d, %d", n, want)
		}
	}
	keeps(r, aloneAfter)
	r.m.Wanted(r.next)
	r.m.Wanted(r.next) // the other session asks at every heartbeat
	clean(r)
	r.m.Released(true, false)
	assert.EqualValues(t, maxWary, r.m.wary, "it was worth it, but is wanted")
	alone(r)
	keeps(r, aloneAfter)
	clean(r)
	r.m.Released(true, false)
	assert.Zero(t, r.m.wary)
	r.m.Begin(&r.at, &r.head)
	assert.Equal(t, r.at.GrantTTL, r.send().Lease, "it goes on as it was")
}

func TestALockThatIsKeptHasTheShortLeaseUntilItsRenewalAndIsThenNotKept(t *testing.T) {
	r := newRig()
	alone(r)
	r.at.Linger = time.Hour
	r.reach(Held)
	short := r.at.GrantTTL
	assert.Equal(t, r.at.Now.Add(short/2), r.m.Hold().Lease.Wake())
	assert.Equal(t, Nothing, tick(r).Do)
	for age, want := range map[time.Duration]time.Duration{0: short, short/3 - 1: short, short / 3: r.at.Lease} {
		r := newRig()
		alone(r)
		r.at.Linger = time.Hour
		r.reach(Held)
		r.wait(age)
		assert.Equal(t, Renew, r.m.Tick(&r.at, Survey{Refreshed: r.at.Now.Add(1)}).Do, "there may be another server")
		assert.Equal(t, r.at.Lease, r.m.Hold().Span)
		r.m.Renewed(&r.at, Renewed{Epoch: r.m.Epoch(), Sent: r.at.Now})
		assert.Equal(t, want, r.m.Hold().Lease.Length, "a copy may still come: %v", age)
		linger(r)
		assert.Equal(t, Held, r.m.Phase(), "Redis may have the full lease")
		assert.Equal(t, Nothing, tick(r).Do)
		r.wait(r.m.Hold().Lease.Wake().Sub(r.at.Now))
		assert.Equal(t, Renew, tick(r).Do)
		r.m.Renewed(&r.at, Renewed{Epoch: r.m.Epoch(), Sent: r.at.Now})
		assert.Equal(t, r.at.Lease, r.m.Hold().Lease.Length)
	}

	r = newRig()
	alone(r)
	r.at.Linger = time.Hour
	r.reach(Idle)
	s := tick(r.wait(short / 2))
	assert.Equal(t, Nothing, s.Do, "an idle one is not renewed")
	assert.Equal(t, start.Add(r.m.Hold().Lease.Trust-short/3), s.Wake)
	assert.Equal(t, Settle, inherit(r).Do)
	assert.Equal(t, Renew, tick(r).Do)
	assert.Equal(t, r.at.Lease, r.m.Hold().Span)
	r.m.Renewed(&r.at, Renewed{Epoch: r.m.Epoch(), Failed: true, Sent: r.at.Now})
	assert.Equal(t, start.Add(short-short/100-2*time.Millisecond), r.m.Hold().Lease.Until(), "Redis has confirmed no more")
	linger(r)
	assert.Equal(t, Held, r.m.Phase(), "the renewal may arrive")
	r.m.Renewed(&r.at, Renewed{Epoch: r.m.Epoch(), Sent: r.at.Now})
	assert.Equal(t, r.at.Lease, r.m.Hold().Lease.Length)
	linger(r)
	assert.Equal(t, Held, r.m.Phase())
}

func TestALockIsKeptOnlyWhileTheNextOwnerCouldInheritIt(t *testing.T) {
	for age, want := range map[time.Duration]bool{0: true, 1900 * time.Millisecond: true, 1970 * time.Millisecond: false} {
		r := newRig()
		alone(r)
		r.at.Linger = time.Hour
		r.reach(Held)
		r.wait(age)
		linger(r)
		if assert.Equal(t, want, r.m.Phase() == Idle, "%v", age) && want {
			assert.Equal(t, Settle, inherit(r).Do)
		}
	}
	r := newRig()
	alone(r)
	r.reach(Idle)
	r.wait(1970 * time.Millisecond)
	assert.Equal(t, Nothing, inherit(r).Do, "too little is left")
	r.at.Generation = time.Hour
	begin(r)
	req := r.send()
	assert.Equal(t, r.at.GrantTTL, req.Lease)
	assert.True(t, req.Yield, "if another session waits it goes first")
}

func TestATryDoesNotKeepALockThatItIsHanded(t *testing.T) {
	r := newRig()
	alone(r)
	try(r)
	r.reach(Handed)
	begin(r)
	assert.Equal(t, r.at.Lease, r.send().Lease, "it could not let another session go first")
}
