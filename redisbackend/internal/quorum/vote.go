package quorum

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/clock"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// A vote is one copy of an attempt, which is sent to all nodes. For each node a job takes these steps:
//
//	ask ── counted: won? ── write the token ── final: kept? ── yes: the hold stays
//	 │                                            └────────── no: give the lock back where it was, or may have been, granted
//	 └─ the caller counts the replies, and does not wait for the last ones
type vote struct {
	r       *remote
	req     backend.AcquireRequest // as sent to the nodes
	queue   bool                   // the caller is going to wait
	again   bool                   // the attempt has been granted before, with a token that a majority has
	order   uint64                 // its number among the calls, see remote.asked
	sent    time.Time              // the moment before anything was sent
	limit   time.Duration          // of the first round
	answers chan reply[backend.AcquireReply]
	written chan reply[struct{}]

	counted chan struct{} // closed when won, first and size are known
	won     bool          //
	first   backend.Token // of the block
	size    int           // of the block: no larger than that of any node that gave the lock

	final chan struct{} // closed when kept is known
	kept  bool
}

// tokenLead is how far the proposed token is ahead of the fastest clock. No attempt is under way for so long, so all nodes
// give the proposed token, and none gives the time of its own clock.
const tokenLead = 2 * time.Second

// Acquire implements backend.Remote. It returns Waiting if other sessions have the lock at so many nodes that this session
// has no majority. The other sessions may have no majority either.
func (r *remote) Acquire(ctx context.Context, req backend.AcquireRequest) (backend.AcquireReply, error) {
	if err := wire.CheckAcquire(&req); err != nil {
		return backend.AcquireReply{}, err
	}
	req.Prior = backend.Prior{} // the nodes' records differ
	if err := r.conn.begin(ctx); err != nil {
		return backend.AcquireReply{}, err
	}
	defer r.conn.Jobs.Done()
	if !req.NotAfter.After(time.Now()) {
		return backend.AcquireReply{}, wire.Unavailable(errors.New("not sent: its time is over"))
	}
	r.Forget(req.Epoch - 1) // earlier holds are no longer trusted
	r.conn.pause(r.name, req.Epoch)
	if _, had := r.holds(req.Epoch); req.Yield && !had && r.isWanted(ctx) {
		return r.yield(ctx, &req)
	}
	if r.isWithdrawn(req.Epoch) {
		return backend.AcquireReply{Status: backend.Stale}, nil
	}
	v := r.newVote(ctx, &req)
	for i, rep := range r.replicas {
		r.conn.Jobs.Go(func() { v.at(ctx, i, rep) })
	}
	reply, err := v.count(ctx)
	switch {
	case v.kept:
		r.remember(&v.req, reply)
		r.conn.stop(r.name, req.Epoch)
	case err == nil && reply.Status == backend.Waiting && req.Queue:
		r.conn.wait(r.name, req.Epoch, 0)
	}
	close(v.final)
	return reply, err
}

// isWithdrawn reports whether an attempt was given back at a node. At that node the attempt is stale. Sent again, it would take
// the other nodes and keep all sessions from them, although these nodes may be too few for a majority. The next epoch has a
// fair chance.
func (r *remote) isWithdrawn(epoch uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return epoch <= r.releasedUpTo
}

func (r *remote) withdraw(epoch uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.releasedUpTo = max(r.releasedUpTo, epoch)
}

func (r *remote) newVote(ctx context.Context, req *backend.AcquireRequest) *vote {
	n := len(r.replicas)
	v := &vote{r: r, req: *req, queue: req.Queue, order: r.asked.Add(1), sent: time.Now(), limit: r.conn.quorum.budget(ctx, req.NotAfter),
		answers: make(chan reply[backend.AcquireReply], n), written: make(chan reply[struct{}], n),
		counted: make(chan struct{}), final: make(chan struct{})}
	_, v.again = r.holds(req.Epoch)
	v.req.Queue, v.req.Yield, v.req.Barge = false, false, true // a node that queued the session would grant it the lock by itself
	// The lease differs from node to node: the shortest may be at a node that missed a renewal.
	v.req.KeepTTL = false
	v.req.Seen = max(req.Seen, r.conn.ahead())
	return v
}

// ahead returns the token just below the one to propose, for AcquireRequest.Seen; 0 if no clock is known.
func (c *Conn) ahead() backend.Token {
	var latest int64
	for _, n := range c.nodes {
		latest = max(latest, n.Clocks.One.Latest(clock.InstantOf(time.Now())))
	}
	if latest == 0 {
		return 0 // no clock is known
	}
	return backend.Token(latest + tokenLead.Microseconds())
}

// at does the job for one node.
func (v *vote) at(ctx context.Context, i int, rep *replica) {
	command, cancel := detached(ctx, v.limit)
	defer cancel()
	if err := rep.enter(command); err != nil {
		v.answers <- reply[backend.AcquireReply]{node: i, err: err}
		v.written <- reply[struct{}]{node: i, err: err}
		return
	}
	defer rep.leave()
	answer, err := rep.acquire(command, v.req, v.order)
	v.answers <- reply[backend.AcquireReply]{i, answer, err}
	<-v.counted
	has := err == nil && answer.Status == backend.Granted
	v.written <- reply[struct{}]{node: i, err: v.agree(ctx, rep, has, answer)}
	<-v.final
	switch {
	case v.kept:
	case has || backend.OutcomeUnknown(err):
		rep.giveBack(v.req.Epoch)
	case v.queue && err == nil && answer.Status == backend.Waiting:
		rep.Want(v.req.Patience)
	}
}

// agree writes the token to a node that granted the lock, if the attempt won.
func (v *vote) agree(ctx context.Context, rep *replica, has bool, answer backend.AcquireReply) error {
	switch {
	case !has || !v.won:
		return errors.New("it did not give the lock")
	case answer.First == v.first && answer.Last >= v.last():
		return nil
	}
	ctx, cancel := detached(ctx, v.limit)
	defer cancel()
	return rep.write(ctx, v.req.Epoch, v.first, v.last())
}

func (v *vote) last() backend.Token { return v.first + backend.Token(v.size) - 1 }

// count collects the replies. It sets won and kept, and closes counted.
func (v *vote) count(ctx context.Context) (backend.AcquireReply, error) {
	q := v.r.conn.quorum
	decided := func(got []reply[backend.AcquireReply]) bool { return v.tally(got).decided(q) }
	enough := func(got []reply[backend.AcquireReply]) bool {
		return decided(got) || v.tally(got).answered() >= q.need
	}
	got := collect(ctx, v.answers, nil, v.limit, enough)
	got = collect(ctx, v.answers, got, v.grace(), decided)
	t := v.tally(got)
	if t.granted >= q.need {
		v.won = true
		v.first, _ = t.token(q)
		v.size = t.size
	}
	close(v.counted)
	if t.granted > 0 && !v.won {
		v.r.withdraw(v.req.Epoch)
	}
	switch {
	case v.won:
		return v.settle(ctx, t)
	case t.answered() < q.need || wire.ContextErr(ctx, time.Now()) != nil && !t.decided(q):
		return backend.AcquireReply{}, t.doubt(q.tooFew(ctx, failures(got, len(v.r.replicas))))
	case t.granted+t.stale >= q.need:
		return backend.AcquireReply{Status: backend.Stale}, nil
	}
	return backend.AcquireReply{Status: backend.Waiting, TTL: t.ttl, Lingers: t.lingers}, nil
}

// grace returns how long to wait for the slower nodes if a majority has replied and their replies decide: a multiple of the
// time that the majority took. If it were the whole limit, and one node hung while sessions split the other nodes between
// them, each session would keep its nodes for so long.
func (v *vote) grace() time.Duration {
	took := time.Since(v.sent)
	return max(0, min(v.limit-took, max(v.limit/16, 4*took)))
}

// settle waits until a majority of the nodes has the token, and then keeps the lock that a majority has granted, if anything
// is left of the lease.
func (v *vote) settle(ctx context.Context, t tally) (backend.AcquireReply, error) {
	q := v.r.conn.quorum
	limit := q.budget(ctx, v.req.NotAfter)
	got := collect(ctx, v.written, nil, limit, func(got []reply[struct{}]) bool {
		has, _ := count(got, func(struct{}) bool { return true })
		return has >= q.need || len(got)-has >= q.blocks()
	})
	errs := failures(got, len(v.r.replicas))
	if heardFrom(errs) < q.need {
		return backend.AcquireReply{}, t.doubt(fmt.Errorf("the token: %w", q.tooFew(ctx, errs)))
	}
	if !v.valid(time.Now()) {
		return backend.AcquireReply{}, t.doubt(fmt.Errorf("redisbackend: a majority took %v, and nothing is left of the lease",
			time.Since(v.sent)))
	}
	v.kept = true
	return backend.AcquireReply{Status: backend.Granted, First: v.first, Last: v.last(), TTL: t.left}, nil
}

// sure returns for how long after the moment of sending a lease is certain not to have ended at a node: clocks run apart by
// up to one part in a hundred.
func sure(lease time.Duration) time.Duration { return lease - lease/100 - 2*time.Millisecond }

// valid reports whether something is certainly left of the lease. The first node may have counted it from the moment of
// sending.
func (v *vote) valid(now time.Time) bool {
	return sure(v.req.Lease) > now.Sub(v.sent)
}

// A tally has the nodes' replies so far.
type tally struct {
	granted, waiting, stale, failed int

	again   bool            // as in vote
	open    int             // nodes without a reply yet
	tokens  []backend.Token // of the nodes that granted the lock
	size    int             // of the smallest block among these nodes
	left    time.Duration   // the least that is left of a fixed lease
	ttl     time.Duration   // the most that is left of another holder's lease
	lingers bool            // a node says that another holder may give it up
}

func (v *vote) tally(got []reply[backend.AcquireReply]) tally {
	t := tally{open: len(v.r.replicas) - len(got), ttl: -1, again: v.again, size: v.req.Tokens}
	for _, one := range got {
		switch {
		case one.err != nil:
			t.failed++
		case one.value.Status == backend.Granted:
			if t.granted++; t.granted == 1 || one.value.TTL < t.left {
				t.left = one.value.TTL
			}
			t.tokens = append(t.tokens, one.value.First)
			t.size = min(t.size, int(one.value.Last-one.value.First)+1)
		case one.value.Status == backend.Stale:
			t.stale++
		default:
			t.waiting++
			t.ttl = max(t.ttl, one.value.TTL)
			t.lingers = t.lingers || one.value.Lingers
		}
	}
	return t
}

func (t tally) answered() int { return t.granted + t.waiting + t.stale }

// doubt marks an error as of unknown outcome if a node granted the lock: the lock is being given back, and the node may have
// it for a while.
func (t tally) doubt(err error) error {
	if t.granted == 0 || backend.OutcomeUnknown(err) || backend.Refused(err) {
		return err
	}
	return backend.WithOutcomeUnknown(err)
}

// decided reports whether the missing replies make no difference. When too few nodes can reply, every reply makes a
// difference: the replies determine whether the attempt was refused, and whether it may have been executed.
func (t tally) decided(q *Quorum) bool {
	if t.again && t.granted >= q.need { // a missing reply may give a majority the same token
		_, agreed := t.token(q)
		return agreed || t.open == 0
	}
	return t.granted >= q.need || t.granted+t.open < q.need && t.answered() >= q.need
}

// token returns the token that a majority has given, which is then the last one at a majority already. If no token has a
// majority, it returns the highest.
func (t tally) token(q *Quorum) (highest backend.Token, agreed bool) {
	count := make(map[backend.Token]int)
	for _, token := range t.tokens {
		if count[token]++; count[token] >= q.need {
			return token, true
		}
		highest = max(highest, token)
	}
	return highest, false
}
