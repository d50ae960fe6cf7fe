package share

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/share/plan"
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
			k.work.Go(k.run)
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

func (k *keeper) run() {
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
		at := plan.Moment{Options: &k.r.options, Now: now, Ahead: ahead, Tier: n.tier}
		n.carry(n.plan.Slept(&at))
		then, renew := n.plan.Due(now, stale)
		if then.IsZero() {
			n.mu.Unlock()
			continue
		}
		until, _ := n.plan.Until()
		switch {
		case renew && !k.renewing.Load():
			r, had := n.plan.Renewal(n.remote, k.r.session.Config.Lease)
			due, batch = append(due, dueName{n, had}), append(batch, r)
			wake = earliest(wake, until)
		case renew:
			wake = earliest(wake, until) // the batch under way wakes the keeper
		default:
			wake = earliest(wake, then)
		}
		wake = earliest(wake, now.Add(maxSleep))
		n.mu.Unlock()
		if !now.Before(until) {
			n.expire()
		}
	}
	if len(batch) > 0 {
		k.renewing.Store(true)
		k.work.Go(func() { k.renew(due, batch) })
	}
	return wake
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
		b := &batch[i]
		n.renewed(plan.Renewed{Epoch: b.Epoch, Had: n.had, Failed: b.Err != nil, Gone: b.Gone, Units: b.Units, Sent: sent, Ahead: ahead}, b.Err)
	}
	k.renewing.Store(false)
	k.wakeUp()
}

// renewed handles the reply to a renewal, which failed with err unless that is nil.
func (n *Name) renewed(r plan.Renewed, err error) {
	s := n.room.session
	n.event(func(p *plan.Plan, at *plan.Moment) plan.Step {
		step, change := p.Renewed(at, r)
		switch change {
		case plan.Failing:
			s.ReportRenewal(n.name, true, core.WrapUnavailable(context.Background(), err))
		case plan.Recovered:
			s.ReportRenewal(n.name, false, nil)
		}
		if change == plan.Prolonged || change == plan.Recovered {
			s.Counts.Renewals.Add(1)
		}
		return step
	})
}

// earliest returns the earlier of two times.
func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
