// Package keeper maintains the leases of a session, those of locks and those of shared names: it renews them every third
// of their length, all that are due in one batch, and has each lease looked at when it can no longer be trusted, even while a
// batch is under way.
package keeper

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/reentrant/internal/core"
)

// A Keeper maintains the leases of one session. One goroutine surveys them, and another one sends a batch, so that a
// renewal that hangs does not delay a loss.
type Keeper struct {
	session *core.Session
	rooms   []Room          // immutable after Start
	nudge   chan struct{}   // 1-buffered: a lease ends before the next survey
	renewed chan struct{}   // 1-buffered: the batch has its replies
	quit    context.Context // ends when the keeper sends no more
	stop    context.CancelFunc
	work    sync.WaitGroup

	// Both as the session's age in nanoseconds. wakes is when the next survey begins by itself. During a survey wakes is
	// never, so that a lease that comes too late for this survey causes another one.
	wakes     atomic.Int64 // written by run
	refreshed atomic.Int64 // leases that began before this moment are renewed as soon as possible
}

const never = math.MaxInt64

// maxSleep bounds the time between two surveys while there are leases: so the keeper soon notices that the machine was
// suspended.
const maxSleep = time.Second

// New returns a keeper of a session's leases. Nothing runs in it until Start.
func New(s *core.Session) *Keeper {
	k := &Keeper{session: s, nudge: make(chan struct{}, 1), renewed: make(chan struct{}, 1)}
	k.quit, k.stop = context.WithCancel(context.Background())
	k.wakes.Store(never)
	return k
}

// Start begins to maintain the leases in the rooms. The session has a connection by now.
func (k *Keeper) Start(rooms ...Room) {
	k.rooms = rooms
	k.work.Go(k.run)
}

// Stop ends the surveys, and the batch that is under way. It returns when nothing runs any more.
func (k *Keeper) Stop() {
	k.stop()
	k.work.Wait()
}

// Stopped reports whether Stop has begun.
func (k *Keeper) Stopped() bool { return k.quit.Err() != nil }

// WakeBy makes sure that a survey begins no later than at.
func (k *Keeper) WakeBy(at time.Time) {
	if int64(at.Sub(k.session.Opened)) < k.wakes.Load() {
		select {
		case k.nudge <- struct{}{}:
		default:
		}
	}
}

// Refresh renews every lease as soon as possible, due or not: there may be another server now.
func (k *Keeper) Refresh() {
	now := time.Now()
	k.refreshed.Store(int64(now.Sub(k.session.Opened)))
	k.WakeBy(now)
}

func (k *Keeper) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	renewing, nudged := false, false
	for {
		s := k.survey(renewing, nudged)
		if len(s.renewals) > 0 {
			renewing = true
			k.work.Go(func() { k.renew(s) })
		}
		k.wakes.Store(int64(s.wake.Sub(k.session.Opened)))
		timer.Reset(time.Until(s.wake))
		nudged = false
		select {
		case <-timer.C:
		case <-k.nudge:
			nudged = true
		case <-k.renewed:
			renewing = false
		case <-k.quit.Done():
			return
		}
	}
}

// survey has every room look at its leases. nudged says that a call of WakeBy caused it.
func (k *Keeper) survey(renewing, nudged bool) *Survey {
	s := &Survey{Now: time.Now(), Renewing: renewing}
	k.wakes.Store(never)
	s.Ahead, s.Refreshed = k.session.Ahead(), k.session.Opened.Add(time.Duration(k.refreshed.Load()))
	s.wake = k.session.Opened.Add(never / 2)
	if nudged {
		// The lease for which the keeper was woken may be passing from one owner to the next, so that this survey does not
		// see it. If the keeper then slept until it is woken, every such lease would wake it again.
		s.WakeBy(s.wake)
	}
	for _, r := range k.rooms {
		r.Survey(s)
	}
	return s
}

// renew sends a batch.
func (k *Keeper) renew(s *Survey) {
	sent, ahead := time.Now(), k.session.Ahead()
	ctx, cancel := context.WithDeadline(k.quit, sent.Add(k.session.Config.CommandTimeout))
	k.session.Counts.Commands.Add(1)
	k.session.Conn.Renew(ctx, s.renewals)
	cancel()
	for i, h := range s.holders {
		r := &s.renewals[i]
		r.Err = core.WrapUnavailable(context.Background(), r.Err)
		h.Renewed(r, sent, ahead)
	}
	k.renewed <- struct{}{}
}
