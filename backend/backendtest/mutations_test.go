package backendtest_test

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
)

// The faults of the mutants. Each fault is made of correct verbs that are called in a wrong way.

const forever = 1000 * time.Hour

// requests is a Backend that changes requests.
func requests(change func(*backend.AcquireRequest)) func() hooks {
	return func() hooks {
		return hooks{acquire: func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
			change(&q)
			return r.Remote.Acquire(ctx, q)
		}}
	}
}

// answers is a Backend that changes replies.
func answers(change func(*backend.AcquireReply)) func() hooks {
	return func() hooks {
		return hooks{acquire: func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
			a, err := r.Remote.Acquire(ctx, q)
			if err == nil {
				change(&a)
			}
			return a, err
		}}
	}
}

func reenters(change func(*remote, *backend.ReenterRequest)) func() hooks {
	return func() hooks {
		return hooks{reenter: func(ctx context.Context, r *remote, q backend.ReenterRequest) (backend.ReenterReply, error) {
			change(r, &q)
			return r.Remote.Reenter(ctx, q)
		}}
	}
}

func reenterReplies(change func(*backend.ReenterReply)) func() hooks {
	return func() hooks {
		return hooks{reenter: func(ctx context.Context, r *remote, q backend.ReenterRequest) (backend.ReenterReply, error) {
			a, err := r.Remote.Reenter(ctx, q)
			change(&a)
			return a, err
		}}
	}
}

func releases(change func(*remote, *backend.ReleaseRequest)) func() hooks {
	return func() hooks {
		return hooks{release: func(ctx context.Context, r *remote, q backend.ReleaseRequest) (backend.ReleaseResult, error) {
			change(r, &q)
			return r.Remote.Release(ctx, q)
		}}
	}
}

func states(change func(*backend.State)) func() hooks {
	return func() hooks {
		return hooks{inspect: func(_ context.Context, _ *remote, st backend.State) backend.State { change(&st); return st }}
	}
}

// reads is a Backend that changes the replies to InspectAll.
func reads(change func([]backend.Inspection)) func() hooks {
	return func() hooks { return hooks{inspectAll: change} }
}

// pushes is a Backend that changes grants before it sends their messages. If change is nil, a message gets lost.
func pushes(change func(*backend.Grant)) func() hooks {
	return func() hooks {
		return hooks{granted: func(to backend.Sink, g backend.Grant) {
			if change != nil {
				change(&g)
				to.Granted(g)
			}
		}}
	}
}

func names(change func(string) string) func() hooks {
	return func() hooks {
		return hooks{bind: func(c backend.Conn, name string) (backend.Remote, error) { return c.Bind(change(name)) }}
	}
}

func connects(change func(ctx context.Context, id string) (context.Context, string)) func() hooks {
	return func() hooks {
		return hooks{connect: func(ctx context.Context, b backend.Backend, id string, to backend.Sink) (backend.Conn, error) {
			ctx, id = change(ctx, id)
			return b.Connect(ctx, id, to)
		}}
	}
}

// acquires is a Backend whose Acquire calls f in place of the real verb.
func acquires(f func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error)) hooks {
	return hooks{acquire: f}
}

var waiting = backend.AcquireReply{Status: backend.Waiting, TTL: time.Second}

// An attempt is a session's attempt.
type attempt struct {
	session string
	epoch   uint64
}

func resendIsNew() hooks {
	copies := map[attempt]backend.Token{}
	return acquires(func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
		a, err := r.Remote.Acquire(ctx, q)
		n := copies[attempt{r.conn.session, q.Epoch}]
		copies[attempt{r.conn.session, q.Epoch}]++
		a.First, a.Last = a.First+n, a.Last+n
		return a, err
	})
}

func resendResets() hooks {
	return acquires(func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
		_, _ = r.Remote.Reenter(ctx, backend.ReenterRequest{Epoch: q.Epoch, Owner: q.Owner, Op: math.MaxInt32, Holds: q.Holds})
		return r.Remote.Acquire(ctx, q)
	})
}

func takeoverKeepsToken() hooks {
	var last backend.AcquireReply
	return acquires(func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
		mine := r.mine()
		a, err := r.Remote.Acquire(ctx, q)
		if mine {
			return last, err
		}
		last = a
		return a, err
	})
}

func takeoverKeepsOwner() hooks {
	return acquires(func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
		if r.mine() {
			q.Owner = r.state().Owner
		}
		return r.Remote.Acquire(ctx, q)
	})
}

func takeoverIsConfirmation() hooks {
	return acquires(func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
		if r.mine() {
			q.Epoch = r.state().Epoch
		}
		return r.Remote.Acquire(ctx, q)
	})
}

func lowerEpochs() hooks {
	highest := map[string]uint64{}
	return acquires(func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
		q.Epoch = max(q.Epoch, highest[r.conn.session])
		highest[r.conn.session] = q.Epoch
		return r.Remote.Acquire(ctx, q)
	})
}

func twoTurns() hooks {
	return acquires(func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
		a, err := r.Remote.Acquire(ctx, q)
		if a.Status == backend.Stale {
			q.Epoch += 1000
			return r.Remote.Acquire(ctx, q)
		}
		return a, err
	})
}

func bargeForces() hooks {
	return acquires(func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
		if q.Barge && !r.mine() {
			_, _ = r.Remote.ForceUnlock(ctx, time.Now().Add(forever))
		}
		return r.Remote.Acquire(ctx, q)
	})
}

func fixedKeepsGrantTTL() hooks {
	return acquires(func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
		if q.Fixed && r.mine() {
			q.Lease = r.state().TTL
		}
		return r.Remote.Acquire(ctx, q)
	})
}

func dishonest() hooks {
	return acquires(func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
		a, err := r.Remote.Acquire(context.WithoutCancel(ctx), q)
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return a, err
	})
}

func sometimesForces() hooks {
	var n atomic.Int64
	return acquires(func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
		a, err := r.Remote.Acquire(ctx, q)
		if a.Status == backend.Waiting && n.Add(1)%5 == 0 {
			_, _ = r.Remote.ForceUnlock(ctx, time.Now().Add(forever))
		}
		return a, err
	})
}

// Re-entry.

func oldOps() hooks {
	n := uint64(math.MaxInt32)
	return reenters(func(_ *remote, q *backend.ReenterRequest) { n++; q.Op = n })()
}

func opsGoOn() hooks {
	var last uint64
	return hooks{reenter: func(ctx context.Context, r *remote, q backend.ReenterRequest) (backend.ReenterReply, error) {
		if q.Op <= last {
			return backend.ReenterReply{Holds: r.state().Holds}, nil
		}
		last = q.Op
		return r.Remote.Reenter(ctx, q)
	}}
}

func reenterSetsLease() hooks {
	return hooks{reenter: func(ctx context.Context, r *remote, q backend.ReenterRequest) (backend.ReenterReply, error) {
		a, err := r.Remote.Reenter(ctx, q)
		if q.Lease > 0 {
			r.conn.Conn.Renew(ctx, []backend.Renewal{{Remote: r.Remote, Epoch: q.Epoch, Lease: q.Lease}})
		}
		return a, err
	}}
}

// retake takes a lock for a session that did not ask for it, with a new epoch.
func (r *remote) retake(ctx context.Context) {
	_, _ = r.Remote.Acquire(ctx, backend.AcquireRequest{
		Epoch: 1000, Owner: "1", Holds: 1, Lease: time.Minute, NotAfter: time.Now().Add(time.Minute), Tokens: 1,
	})
}

func reenterRecreates() hooks {
	return hooks{reenter: func(ctx context.Context, r *remote, q backend.ReenterRequest) (backend.ReenterReply, error) {
		a, err := r.Remote.Reenter(ctx, q)
		if a.Gone {
			r.retake(ctx)
		}
		return a, err
	}}
}

func reenterRetakes() hooks {
	return hooks{reenter: func(ctx context.Context, r *remote, q backend.ReenterRequest) (backend.ReenterReply, error) {
		r.retake(ctx)
		return backend.ReenterReply{Holds: q.Holds}, nil
	}}
}

// Release.

// releasing is a Backend whose Release calls f in place of the real verb.
func releasing(f func(ctx context.Context, r *remote, q backend.ReleaseRequest) (backend.ReleaseResult, error)) hooks {
	return hooks{release: f}
}

func releaseEndsAStay() hooks {
	return releasing(func(ctx context.Context, r *remote, q backend.ReleaseRequest) (backend.ReleaseResult, error) {
		if r.state().Unlocked {
			_, _ = r.Remote.ForceUnlock(ctx, time.Now().Add(time.Minute))
		}
		return r.Remote.Release(ctx, q)
	})
}

func forceLeavesAStay() hooks {
	return hooks{force: func(ctx context.Context, r *remote, notAfter time.Time) (bool, error) {
		if r.state().Unlocked {
			return true, nil
		}
		return r.Remote.ForceUnlock(ctx, notAfter)
	}}
}

func staysWithoutAHold() hooks {
	return releasing(func(ctx context.Context, r *remote, q backend.ReleaseRequest) (backend.ReleaseResult, error) {
		if !r.state().Locked {
			_, _ = r.Remote.Acquire(ctx, backend.AcquireRequest{Epoch: q.Epoch, Owner: "1", Holds: 1, Lease: time.Minute, NotAfter: time.Now().Add(time.Minute), Tokens: 1})
		}
		return r.Remote.Release(ctx, q)
	})
}

// staysWithTheOwner shortens the hold in place of making it a hold of no session.
func staysWithTheOwner() hooks {
	return releasing(func(ctx context.Context, r *remote, q backend.ReleaseRequest) (backend.ReleaseResult, error) {
		if q.StaysUntil.IsZero() {
			return r.Remote.Release(ctx, q)
		}
		r.conn.Conn.Renew(ctx, []backend.Renewal{{Remote: r.Remote, Epoch: q.Epoch, Lease: time.Until(q.StaysUntil)}})
		return backend.Released, nil
	})
}

func releaseAlwaysReleases() hooks {
	return releasing(func(ctx context.Context, r *remote, q backend.ReleaseRequest) (backend.ReleaseResult, error) {
		_, err := r.Remote.Release(ctx, q)
		return backend.Released, err
	})
}

func releaseForces() hooks {
	return releasing(func(ctx context.Context, r *remote, q backend.ReleaseRequest) (backend.ReleaseResult, error) {
		if had, err := r.Remote.ForceUnlock(ctx, time.Now().Add(forever)); had {
			return backend.Released, err
		}
		return r.Remote.Release(ctx, q)
	})
}

func releaseNeedsEpoch() hooks {
	return releasing(func(ctx context.Context, r *remote, q backend.ReleaseRequest) (backend.ReleaseResult, error) {
		if r.mine() && r.state().Epoch != q.Epoch {
			return backend.Nothing, nil
		}
		return r.Remote.Release(ctx, q)
	})
}

func releaseKeepsPlaces() hooks {
	return releasing(func(ctx context.Context, r *remote, q backend.ReleaseRequest) (backend.ReleaseResult, error) {
		if r.waits() {
			return backend.Withdrawn, nil
		}
		return r.Remote.Release(ctx, q)
	})
}

// releaseForgetsToGrant makes the hold's lease end at once, in place of the release.
func releaseForgetsToGrant() hooks {
	return releasing(func(ctx context.Context, r *remote, q backend.ReleaseRequest) (backend.ReleaseResult, error) {
		if !r.mine() {
			return r.Remote.Release(ctx, q)
		}
		r.conn.Conn.Renew(ctx, []backend.Renewal{{Remote: r.Remote, Epoch: r.state().Epoch, Lease: -1}})
		return backend.Released, nil
	})
}

// The queue.

func lifo() hooks {
	type place struct {
		r *remote
		q backend.AcquireRequest
	}
	var places []place
	return acquires(func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
		for _, p := range places {
			_, _ = p.r.Remote.Release(ctx, backend.ReleaseRequest{Epoch: p.q.Epoch})
		}
		a, err := r.Remote.Acquire(ctx, q)
		for _, p := range places {
			_, _ = p.r.Remote.Acquire(ctx, p.q)
		}
		if a.Status == backend.Waiting {
			places = slices.Insert(places, 0, place{r, q})
		}
		return a, err
	})
}

func beatGoesToTheEnd() hooks {
	return acquires(func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
		if r.waits() {
			_, _ = r.Remote.Release(ctx, backend.ReleaseRequest{Epoch: q.Epoch})
		}
		return r.Remote.Acquire(ctx, q)
	})
}

func beatShowsNoLife() hooks {
	return acquires(func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
		if r.waits() {
			return waiting, nil
		}
		return r.Remote.Acquire(ctx, q)
	})
}

func olderTakesPlace() hooks {
	return acquires(func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
		if r.waits() {
			_, _ = r.Remote.Release(ctx, backend.ReleaseRequest{Epoch: math.MaxInt32})
		}
		return r.Remote.Acquire(ctx, q)
	})
}

func tryForgetsPlace() hooks {
	return acquires(func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
		if !q.Queue && r.waits() {
			return waiting, nil
		}
		return r.Remote.Acquire(ctx, q)
	})
}

func bargerKeepsPlace() hooks {
	ghost := ""
	h := acquires(func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
		if q.Barge && r.waits() {
			ghost = r.conn.session
		}
		return r.Remote.Acquire(ctx, q)
	})
	h.inspect = func(_ context.Context, _ *remote, st backend.State) backend.State {
		if ghost != "" {
			st.Waiting = append(st.Waiting, ghost)
		}
		return st
	}
	return h
}

// Grants.

// arrivalCounts sends each message 50 ms late.
func arrivalCounts() hooks {
	return hooks{granted: func(to backend.Sink, g backend.Grant) {
		<-time.After(50 * time.Millisecond)
		g.NotBefore = time.Now()
		to.Granted(g)
	}}
}

func sentToAll() hooks {
	var mu sync.Mutex
	var all []backend.Sink
	return hooks{granted: func(to backend.Sink, g backend.Grant) {
		mu.Lock()
		defer mu.Unlock()
		if !slices.Contains(all, to) {
			all = append(all, to)
		}
		for _, one := range all {
			one.Granted(g)
		}
	}}
}

func firstPushLost() hooks {
	var mu sync.Mutex
	seen := map[backend.Sink]bool{}
	return hooks{granted: func(to backend.Sink, g backend.Grant) {
		mu.Lock()
		defer mu.Unlock()
		if seen[to] {
			to.Granted(g)
		}
		seen[to] = true
	}}
}

func unconfirmed() hooks {
	confirmed := map[attempt]bool{}
	h := acquires(func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
		a, err := r.Remote.Acquire(ctx, q)
		confirmed[attempt{r.conn.session, q.Epoch}] = a.Status == backend.Granted
		return a, err
	})
	h.reenter = func(ctx context.Context, r *remote, q backend.ReenterRequest) (backend.ReenterReply, error) {
		if !confirmed[attempt{r.conn.session, q.Epoch}] {
			return backend.ReenterReply{Gone: true}, nil
		}
		return r.Remote.Reenter(ctx, q)
	}
	return h
}

// Yielding.

func yieldWithdraws() hooks {
	return acquires(func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
		a, err := r.Remote.Acquire(ctx, q)
		if q.Yield && a.Status == backend.Waiting {
			_, _ = r.Remote.Release(ctx, backend.ReleaseRequest{Epoch: q.Epoch})
		}
		return a, err
	})
}

func yieldTwice() hooks {
	return acquires(func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
		if q.Yield && r.mine() && len(r.state().Waiting) > 0 && r.state().Epoch == q.Epoch {
			_, _ = r.Remote.ForceUnlock(ctx, time.Now().Add(forever))
		}
		return r.Remote.Acquire(ctx, q)
	})
}

func yieldFrees() hooks {
	return acquires(func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
		if q.Yield && r.mine() {
			_, _ = r.Remote.ForceUnlock(ctx, time.Now().Add(forever))
			return waiting, nil
		}
		return r.Remote.Acquire(ctx, q)
	})
}

// tombs are tombstones that the mutant keeps itself. A session's next tombstone replaces its previous one.
type tombs struct {
	shared bool // the tombstones refuse the attempts of every session
	single bool // there is room for only one tombstone
}

func (t tombs) hooks() hooks {
	type tomb struct {
		epoch uint64
		until time.Time
	}
	graves := map[string]tomb{}
	h := acquires(func(ctx context.Context, r *remote, q backend.AcquireRequest) (backend.AcquireReply, error) {
		for session, g := range graves {
			if (t.shared || session == r.conn.session) && q.Epoch <= g.epoch && !time.Now().After(g.until) {
				return backend.AcquireReply{Status: backend.Stale}, nil
			}
		}
		return r.Remote.Acquire(ctx, q)
	})
	h.release = func(ctx context.Context, r *remote, q backend.ReleaseRequest) (backend.ReleaseResult, error) {
		if !q.Until.IsZero() {
			if t.single {
				clear(graves)
			}
			graves[r.conn.session] = tomb{q.Epoch, q.Until}
			q.Until = time.Time{}
		}
		return r.Remote.Release(ctx, q)
	}
	return h
}

// Renewal.

// renews is a Backend that calls f for each lock after a renewal.
func renews(f func(ctx context.Context, c *conn, r *remote, one *backend.Renewal)) func() hooks {
	return func() hooks {
		return hooks{renew: func(ctx context.Context, c *conn, all []backend.Renewal) {
			c.Conn.Renew(ctx, all)
			for i := range all {
				f(ctx, c, all[i].Remote.(*remote), &all[i])
			}
		}}
	}
}

var renewsAnyEpoch = renews(func(ctx context.Context, c *conn, r *remote, one *backend.Renewal) {
	if one.Gone && r.mine() {
		one.Epoch = r.state().Epoch
		again := []backend.Renewal{*one}
		c.Conn.Renew(ctx, again)
		one.Gone = again[0].Gone
	}
})

var renewRecreates = renews(func(ctx context.Context, _ *conn, r *remote, one *backend.Renewal) {
	if one.Gone {
		r.retake(ctx)
	}
})

var renewsForOthers = renews(func(_ context.Context, _ *conn, r *remote, one *backend.Renewal) {
	one.Gone = one.Gone && !r.state().Locked
})

// renewsFirst is a Backend that renews at most n locks, and reports all of them as renewed.
func renewsFirst(n int) func() hooks {
	return func() hooks {
		return hooks{renew: func(ctx context.Context, c *conn, all []backend.Renewal) { c.Conn.Renew(ctx, all[:min(len(all), n)]) }}
	}
}

func renewStops() hooks {
	return hooks{renew: func(ctx context.Context, c *conn, all []backend.Renewal) {
		c.Conn.Renew(ctx, all)
		stopped := false
		for i := range all {
			stopped = stopped || all[i].Gone
			all[i].Gone = stopped
		}
	}}
}

// Force.

func forceOwn() hooks {
	return hooks{force: func(ctx context.Context, r *remote, notAfter time.Time) (bool, error) {
		if !r.mine() {
			return false, nil
		}
		return r.Remote.ForceUnlock(ctx, notAfter)
	}}
}

func forceSays(had bool) func() hooks {
	return func() hooks {
		return hooks{force: func(ctx context.Context, r *remote, notAfter time.Time) (bool, error) {
			_, err := r.Remote.ForceUnlock(ctx, notAfter)
			return had, err
		}}
	}
}

// forceFrees also takes the lock away from each waiter that gets it, until the lock is free.
func forceFrees() hooks {
	return hooks{force: func(ctx context.Context, r *remote, notAfter time.Time) (bool, error) {
		had := false
		for {
			again, err := r.Remote.ForceUnlock(ctx, notAfter)
			if err != nil || !again {
				return had, err
			}
			had = true
		}
	}}
}

// Reading.

func inspectCounts() hooks {
	n := 0
	return states(func(st *backend.State) { n++; st.Holds = n })()
}

// A release of an epoch that has nothing hands a free lock to a waiter.
func inspectGrants() hooks {
	return hooks{inspect: func(ctx context.Context, r *remote, st backend.State) backend.State {
		_, _ = r.Remote.Release(ctx, backend.ReleaseRequest{})
		return st
	}}
}

// The Conn.

func closeReleases() hooks {
	return hooks{close: func(c *conn) {
		for _, r := range c.bound {
			_, _ = r.Remote.Release(context.Background(), backend.ReleaseRequest{Epoch: math.MaxInt32})
		}
	}}
}

func connEndsWithContext() hooks {
	return hooks{connect: func(ctx context.Context, b backend.Backend, id string, to backend.Sink) (backend.Conn, error) {
		c, err := b.Connect(ctx, id, to)
		if err == nil {
			context.AfterFunc(ctx, func() { _ = c.Close() })
		}
		return c, err
	}}
}
