package quorum

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// A renewal is the renewal of one hold. It is a copy of a backend.Renewal, which the caller may change after the majority has
// decided.
type renewal struct {
	remote *remote
	epoch  uint64
	lease  time.Duration
	until  time.Time // nodes refuse to put the hold back after that time, until which a majority has the hold without a gap
}

// Renew implements backend.Conn. Every node gets all renewals in one batch. A hold is renewed when a majority of the
// nodes has renewed it. In the background it is then put back on the nodes that have lost it.
func (c *Conn) Renew(ctx context.Context, renewals []backend.Renewal) {
	err := c.begin(ctx)
	if err == nil {
		defer c.Jobs.Done()
	}
	limit := c.quorum.budget(ctx, time.Time{})
	wanted, all := c.renewals(renewals, time.Now(), 2*limit, err)
	if len(all) == 0 {
		return
	}
	replies := make(chan reply[[]backend.Renewal], len(c.nodes))
	for i := range c.nodes {
		c.Jobs.Go(func() {
			ctx, cancel := detached(ctx, limit)
			defer cancel()
			replies <- reply[[]backend.Renewal]{node: i, value: c.renewAt(ctx, i, all)}
		})
	}
	got := collect(ctx, replies, nil, limit, func(got []reply[[]backend.Renewal]) bool {
		for j := range all {
			if has, gone := count(about(got, j), renewed); has < c.quorum.need && gone < c.quorum.blocks() {
				return false
			}
		}
		return true
	})
	for j, r := range wanted {
		answers := about(got, j)
		switch has, gone := count(answers, renewed); {
		case has >= c.quorum.need:
		case gone >= c.quorum.blocks():
			r.Gone = true
			all[j].remote.Forget(r.Epoch)
		default:
			r.Err = c.quorum.tooFew(ctx, failures(answers, len(c.nodes)))
		}
	}
	c.Jobs.Go(func() {
		got := collect(context.Background(), replies, got, limit, func([]reply[[]backend.Renewal]) bool { return false })
		for j := range all {
			all[j].repair(c.quorum, about(got, j))
		}
	})
}

// renewals returns the renewals to send, and sets Err of the others: those that are not valid or not of this session's locks,
// and all if err is not nil. most is the longest time after sent for which a hold may be put back.
func (c *Conn) renewals(renewals []backend.Renewal, sent time.Time, most time.Duration, err error) (wanted []*backend.Renewal, all []renewal) {
	for i := range renewals {
		r := &renewals[i]
		r.Gone, r.First, r.Err = false, 0, nil
		switch own, ok := r.Remote.(*remote); {
		case !ok || own.conn != c:
			r.Err = wire.Invalid("the lock is not one of this session")
		case r.Lease <= 0:
			r.Err = wire.Invalid("the lease must be positive")
		case err != nil:
			r.Err = err
		default:
			within := min(most, sure(r.Lease))
			wanted, all = append(wanted, r), append(all, renewal{own, r.Epoch, r.Lease, sent.Add(within)})
		}
	}
	return wanted, all
}

// renewAt sends the renewals to one node.
func (c *Conn) renewAt(ctx context.Context, i int, all []renewal) []backend.Renewal {
	batch := make([]backend.Renewal, len(all))
	for j, r := range all {
		batch[j] = backend.Renewal{Remote: r.remote.replicas[i].remote, Epoch: r.epoch, Lease: r.lease}
	}
	c.nodes[i].Renew(ctx, batch)
	return batch
}

// about returns the replies about one of the holds.
func about(got []reply[[]backend.Renewal], j int) []reply[backend.Renewal] {
	answers := make([]reply[backend.Renewal], len(got))
	for i, one := range got {
		answers[i] = reply[backend.Renewal]{one.node, one.value[j], one.value[j].Err}
	}
	return answers
}

func renewed(r backend.Renewal) bool { return !r.Gone }

// repair puts a hold back on the nodes that have lost it, if a majority has it.
func (r *renewal) repair(q *Quorum, answers []reply[backend.Renewal]) {
	if has, _ := count(answers, renewed); has < q.need {
		return
	}
	for _, one := range answers {
		if one.err == nil && one.value.Gone {
			r.remote.conn.Jobs.Go(func() { r.remote.putBack(one.node, *r) })
		}
	}
}

// The pauses of putBack. A waiting session that tries again and again takes a node that has lost the hold for a round trip or
// two each time.
const (
	putBackPause    = 5 * time.Millisecond // before the second try
	maxPutBackPause = 40 * time.Millisecond
)

// putBack puts a hold back on a node. While another session has the lock there, putBack tries again, up to the time
// of.until. It does nothing for a hold that is about to be given up.
func (r *remote) putBack(node int, of renewal) {
	for pause := putBackPause; r.tryPutBack(node, of); pause = min(2*pause, maxPutBackPause) {
		wait := pause/2 + rand.N(pause) // a fixed pause could match that of a session that polls: each try would come too late
		if time.Until(of.until) <= wait || r.conn.ended() {
			return
		}
		time.Sleep(wait)
	}
}

// tryPutBack puts a hold back on a node, if the lock is free there. It reports whether another session has the lock there. If
// this session gives the hold up meanwhile, it sends the release to the node after this command.
func (r *remote) tryPutBack(node int, of renewal) (taken bool) {
	rep := r.replicas[node]
	ctx, cancel := context.WithTimeout(context.Background(), rep.limit)
	defer cancel()
	if rep.enter(ctx) != nil {
		return false
	}
	defer rep.leave()
	if h, ok := r.holds(of.epoch); ok {
		taken, _ = rep.restore(ctx, h, of.lease, of.until)
	}
	return taken
}
