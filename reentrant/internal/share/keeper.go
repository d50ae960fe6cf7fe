package share

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/lease"
)

// A keeper renews the units of a room's names every third of their lease, all due ones in one batch, and takes them
// from their users when their lease can no longer be trusted. Renewals are sent by a goroutine of their own, so a
// hanging one does not delay that.
type keeper struct {
	r     *Room
	woken chan struct{} // 1-buffered: a lease is due before the keeper would wake
	once  sync.Once
	work  sync.WaitGroup

	asleep   atomic.Int64 // when it wakes by itself, in nanoseconds since the session was opened
	renewing atomic.Bool  // a batch is under way
	stale    atomic.Int64 // leases that began before this time are renewed at once
}

// A dueName is a name whose lease is renewed, and the units that it has when the renewal is sent.
type dueName struct {
	*Name
	had int
}

// maxSleep bounds how long the keeper sleeps while the session has units. After a suspension of the machine the keeper
// notices it within this time.
const maxSleep = time.Second

func newKeeper(r *Room) *keeper {
	k := &keeper{r: r, woken: make(chan struct{}, 1)}
	k.asleep.Store(math.MinInt64)
	return k
}

// expect makes sure that the keeper wakes by the given time. It starts the keeper if necessary.
func (k *keeper) expect(at time.Time) {
	k.once.Do(func() {
		if k.r.quit.Err() == nil {
			k.work.Go(k.watch)
		}
	})
	if int64(at.Sub(k.r.session.Opened)) < k.asleep.Load() {
		k.wakeUp()
	}
}

func (k *keeper) wakeUp() {
	select {
	case k.woken <- struct{}{}:
	default:
	}
}

// refresh renews all leases at once.
func (k *keeper) refresh() {
	k.stale.Store(int64(time.Since(k.r.session.Opened)))
	k.wakeUp()
}

// wait waits until the keeper has ended. A keeper that has not started never starts.
func (k *keeper) wait() {
	k.once.Do(func() {})
	k.work.Wait()
}

func (k *keeper) watch() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		k.asleep.Store(math.MaxInt64) // a lease that comes too late for this survey wakes the keeper
		wake := k.survey(time.Now())
		k.asleep.Store(int64(wake.Sub(k.r.session.Opened)))
		timer.Reset(time.Until(wake))
		select {
		case <-timer.C:
		case <-k.woken:
		case <-k.r.quit.Done():
			return
		}
	}
}

// survey looks at every name, and returns when to look again.
func (k *keeper) survey(now time.Time) (wake time.Time) {
	wake = k.r.session.Opened.Add(math.MaxInt64 / 2)
	var due []dueName
	var batch []backend.Renewal
	ahead, stale := k.r.session.Ahead(), k.r.session.Opened.Add(time.Duration(k.stale.Load()))
	for _, n := range k.r.all() {
		n.mu.Lock()
		n.sleptLocked(now, ahead)
		switch at, renew := n.dueLocked(now, stale); {
		case at.IsZero():
			n.mu.Unlock()
			continue
		case renew && !k.renewing.Load():
			due = append(due, dueName{n, n.units})
			batch = append(batch, backend.Renewal{Remote: n.remote, Epoch: n.epoch, Under: n.under, Lease: k.r.session.Config.Lease})
			wake = earliest(wake, n.trust.Until())
		case renew:
			wake = earliest(wake, n.trust.Until()) // the batch under way wakes the keeper
		default:
			wake = earliest(wake, at)
		}
		wake = earliest(wake, now.Add(maxSleep))
		ended := !n.trust.Trusted(now)
		n.mu.Unlock()
		if ended {
			n.expire()
		}
	}
	if len(batch) > 0 {
		k.renewing.Store(true)
		k.work.Go(func() { k.renew(due, batch) })
	}
	return wake
}

// sleptLocked shortens the lease if the machine was suspended.
func (n *Name) sleptLocked(now time.Time, ahead time.Duration) {
	if n.units == 0 {
		return
	}
	t := n.trust.Slept(now, ahead)
	if t.Until().Before(n.trust.Until()) {
		until := t.Until().Sub(n.room.session.Opened)
		n.until.Store(int64(until))
		n.tier.Trust(until)
		if n.claim != nil {
			n.claim.again = now
			n.wakeLocked()
		}
	}
	n.trust = t
}

// dueLocked returns when the name's lease must be renewed or given up, the zero time if it has none, and whether to
// renew it now. While a claim is under way its copies renew the lease, if the server replies to them in time.
func (n *Name) dueLocked(now, stale time.Time) (at time.Time, renew bool) {
	if n.units == 0 {
		return time.Time{}, false
	}
	slack := n.trust.Length / 10
	if n.renewalFailed || !n.settledLocked() { // it is a retry, or may have to be repeated as one
		slack = 0
	}
	return n.trust.Wake(), n.trust.Due(now, slack) || !n.renewalFailed && n.trust.Sent.Before(stale)
}

// renew sends a batch of renewals.
func (k *keeper) renew(names []dueName, batch []backend.Renewal) {
	s := k.r.session
	sent, ahead := time.Now(), s.Ahead()
	ctx, cancel := context.WithDeadline(k.r.quit, sent.Add(s.Config.CommandTimeout))
	defer cancel()
	s.Counts.Commands.Add(1)
	s.Conn.Renew(ctx, batch)
	for i, n := range names {
		n.renewed(&batch[i], n.had, lease.New(sent, ahead, s.Config.Lease, false))
	}
	k.renewing.Store(false)
	k.wakeUp()
}

// renewed handles the reply to a renewal. While a later claim is under way only a success counts: the server has not
// carried that claim out yet, so the units it keeps are among those renewed. Otherwise it may have done so, which is not
// known before its reply. The renewal was to find had units: the claim whose place it found can have been granted more since.
func (n *Name) renewed(r *backend.Renewal, had int, t lease.Lease) {
	s := n.room.session
	n.mu.Lock()
	notify := func() {}
	switch {
	case n.units == 0 || n.epoch != r.Epoch:
	case r.Err != nil:
		n.trust = n.trust.Retried(time.Now())
		if !n.renewalFailed {
			s.ReportRenewal(n.name, true, core.WrapUnavailable(context.Background(), r.Err))
		}
		n.renewalFailed = true
	case !n.settledLocked() && (r.Gone || r.Units < had):
		n.trust = n.trust.Retried(time.Now())
	case r.Gone || r.Units < had:
		notify = n.loseLocked("the server no longer had it at renewal")
		n.wakeLocked()
	default:
		if n.renewalFailed {
			s.ReportRenewal(n.name, false, nil)
		}
		n.renewalFailed = false
		s.Counts.Renewals.Add(1)
		n.trustLocked(t)
	}
	n.mu.Unlock()
	notify()
}
