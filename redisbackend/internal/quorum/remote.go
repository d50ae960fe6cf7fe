package quorum

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// A remote is one lock as the nodes know it, seen by one session. All copies of an attempt go through one remote, and
// so do the commands that give it up. After a message for which no caller waits, a session gives its attempt up once more,
// through another remote, which has no record of copies under way. By then the attempt has been given up through the
// first remote, or its votes give back all that it got.
type remote struct {
	conn     *Conn
	name     string
	replicas []*replica
	asked    atomic.Uint64 // counts the copies of attempts and the commands that give attempts up, in the order of the calls

	mu           sync.Mutex // guards the fields below; no other mutex is taken under it
	held         hold
	releasedUpTo uint64 // attempts up to this epoch were or are being given back at nodes that had granted them
}

var _ backend.Remote = (*remote)(nil)

// A hold is what a remote remembers of the session's hold, to put the hold back on a node that has lost it.
type hold struct {
	epoch  uint64 // 0 for none
	owner  string
	holds  int
	tokens int
	last   backend.Token
}

// Bind implements backend.Conn.
func (c *Conn) Bind(name string) (backend.Remote, error) {
	r := &remote{conn: c, name: name}
	for _, n := range c.nodes {
		one, err := n.RemoteOf(name)
		if err != nil {
			return nil, err
		}
		hold, prefix := one.Keys.Hold(), n.Deployment.Prefix
		r.replicas = append(r.replicas, &replica{remote: one, limit: c.quorum.Limit, sem: make(chan struct{}, 1),
			wanted: prefix + wire.Reserved + "{" + wire.HashTag(hold) + "}:n:" + name})
	}
	return r, nil
}

// Name implements backend.Remote.
func (r *remote) Name() string { return r.name }

// remember remembers the hold of an attempt that was granted.
func (r *remote) remember(req *backend.AcquireRequest, got backend.AcquireReply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	holds := req.Holds
	if r.held.epoch == req.Epoch {
		holds = r.held.holds // a resend leaves the count alone
	}
	r.held = hold{epoch: req.Epoch, owner: req.Owner, holds: holds, tokens: int(got.Last-got.First) + 1, last: got.Last}
}

// holds returns the hold of an attempt, if it has one.
func (r *remote) holds(epoch uint64) (hold, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held, r.held.epoch == epoch
}

// recount remembers the hold count of an attempt.
func (r *remote) recount(epoch uint64, holds int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held.epoch == epoch {
		r.held.holds = holds
	}
}

// Forget forgets the hold if it is of an attempt up to an epoch. It is called before attempts are given up, so that no hold of
// them is put back afterwards.
func (r *remote) Forget(epoch uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held.epoch <= epoch {
		r.held = hold{}
	}
}

// Reenter implements backend.Remote. It recreates no hold. A node that has missed a change of the count shows the old count
// until the next change, which does no harm.
func (r *remote) Reenter(ctx context.Context, req backend.ReenterRequest) (backend.ReenterReply, error) {
	if req.Holds < 1 {
		return backend.ReenterReply{}, wire.Invalid("the hold count must be at least 1")
	}
	if err := r.conn.begin(ctx); err != nil {
		return backend.ReenterReply{}, err
	}
	defer r.conn.Jobs.Done()
	q := r.conn.quorum
	has := func(a backend.ReenterReply) bool { return !a.Gone }
	got := ask(ctx, r.conn, q.budget(ctx, time.Time{}), func(ctx context.Context, i int) (backend.ReenterReply, error) {
		rep := r.replicas[i]
		if err := rep.enter(ctx); err != nil {
			return backend.ReenterReply{}, err
		}
		defer rep.leave()
		return rep.remote.Reenter(ctx, req)
	}, func(got []reply[backend.ReenterReply]) bool {
		_, gone := count(got, has)
		return alike(got, func(a backend.ReenterReply) int { return a.Holds }) >= q.need || gone >= q.blocks()
	})
	switch done, gone := count(got, has); {
	case done >= q.need:
		holds := commonest(got, func(a backend.ReenterReply) int { return a.Holds })
		r.recount(req.Epoch, holds)
		return backend.ReenterReply{Holds: holds}, nil
	case gone >= q.blocks():
		return backend.ReenterReply{Gone: true}, nil
	}
	return backend.ReenterReply{}, q.tooFew(ctx, failures(got, len(r.replicas)))
}

// commonest returns the most frequent value; if several are equally frequent, the highest of them.
func commonest[T any, V cmp.Ordered](got []reply[T], of func(T) V) (most V) {
	best := 0
	for v, n := range census(got, of) {
		if n > best || n == best && v > most {
			most, best = v, n
		}
	}
	return most
}

// alike returns how many replies have the most frequent value.
func alike[T any, V comparable](got []reply[T], of func(T) V) (best int) {
	for _, n := range census(got, of) {
		best = max(best, n)
	}
	return best
}

func census[T any, V comparable](got []reply[T], of func(T) V) map[V]int {
	count := make(map[V]int)
	for _, one := range got {
		if one.err == nil {
			count[of(one.value)]++
		}
	}
	return count
}

// Release implements backend.Remote. It returns when a majority has decided; nodes that do not reply get the release again,
// in the background.
func (r *remote) Release(ctx context.Context, req backend.ReleaseRequest) (backend.ReleaseResult, error) {
	if err := r.conn.begin(ctx); err != nil {
		return 0, err
	}
	defer r.conn.Jobs.Done()
	req.Prior = backend.Prior{}
	r.Forget(req.Epoch)
	r.conn.stop(r.name, req.Epoch)
	given := fence{r.asked.Add(1), req.Epoch}
	replies := make(chan reply[backend.ReleaseResult], len(r.replicas))
	decided := make(chan struct{})
	defer close(decided)
	for i, rep := range r.replicas {
		r.conn.Jobs.Go(func() {
			if rep.release(req, given, i, replies) == backend.Released {
				<-decided // a session that got the message earlier would find the other nodes still taken
				rep.call()
			}
		})
	}
	q := r.conn.quorum
	released := func(a backend.ReleaseResult) bool { return a == backend.Released }
	got := collect(ctx, replies, nil, q.budget(ctx, time.Time{}), majority(q, released))
	switch had, not := count(got, released); {
	case had >= q.need:
		return backend.Released, nil
	case not >= q.blocks():
		return backend.Nothing, nil
	}
	return 0, q.tooFew(ctx, failures(got, len(r.replicas)))
}

// turnLimit is how long a release waits for earlier commands to the node. By then rueidis has given them up.
const turnLimit = 10 * time.Second

// release sends the release to a node, and sends it again if the node does not reply. The result of the first try is sent to
// replies; that of the last is returned.
func (rep *replica) release(req backend.ReleaseRequest, given fence, i int, replies chan<- reply[backend.ReleaseResult]) (result backend.ReleaseResult) {
	ctx, cancel := context.WithTimeout(context.Background(), turnLimit)
	defer cancel()
	if err := rep.enter(ctx); err != nil {
		replies <- reply[backend.ReleaseResult]{node: i, err: err}
		return 0
	}
	defer rep.leave()
	rep.refuseBefore = fence{max(rep.refuseBefore.order, given.order), max(rep.refuseBefore.epoch, given.epoch)}
	if rep.unknownUntil.After(req.Until) {
		req.Until = rep.unknownUntil
	}
	first := true
	rep.retry(func(ctx context.Context) (err error) {
		result, err = rep.remote.Release(ctx, req)
		if first {
			first = false
			replies <- reply[backend.ReleaseResult]{i, result, err}
		}
		return err
	})
	return result
}

// isWanted reports whether the nodes know of another waiting session.
func (r *remote) isWanted(ctx context.Context) bool {
	other := func(session string) bool { return session != "" && session != r.conn.session }
	got := ask(ctx, r.conn, r.conn.quorum.budget(ctx, time.Time{}), func(ctx context.Context, i int) (string, error) {
		return r.replicas[i].readWanted(ctx)
	}, func(got []reply[string]) bool {
		yes, no := count(got, other)
		return yes > 0 || no >= r.conn.quorum.need
	})
	yes, _ := count(got, other)
	return yes > 0
}

// yield gives the session's hold back, so that the next waiter can have it, and makes the session wait if req.Queue is set.
// The next waiter needs two more round trips to get the lock, and the release took one. So this session tries again after
// four round trips at the earliest, or after half a second if that is less.
func (r *remote) yield(ctx context.Context, req *backend.AcquireRequest) (backend.AcquireReply, error) {
	began := time.Now()
	if _, err := r.Release(ctx, backend.ReleaseRequest{Epoch: req.Epoch - 1}); err != nil {
		return backend.AcquireReply{}, err
	}
	if req.Queue {
		r.conn.wait(r.name, req.Epoch, min(8*time.Since(began), time.Second))
	}
	return backend.AcquireReply{Status: backend.Waiting, TTL: -1}, nil
}

// ForceUnlock implements backend.Remote. It reports that a session had the lock if that cannot be ruled out.
func (r *remote) ForceUnlock(ctx context.Context, notAfter time.Time) (bool, error) {
	if err := r.conn.begin(ctx); err != nil {
		return false, err
	}
	defer r.conn.Jobs.Done()
	if !notAfter.After(time.Now()) {
		return false, wire.Unavailable(errors.New("not sent: its time is over"))
	}
	q := r.conn.quorum
	yes := func(had bool) bool { return had }
	got := ask(ctx, r.conn, q.budget(ctx, notAfter), func(ctx context.Context, i int) (bool, error) {
		return r.replicas[i].force(ctx, notAfter)
	}, majority(q, yes))
	had, not := count(got, yes)
	if had+not < q.need {
		return false, q.tooFew(ctx, failures(got, len(r.replicas)))
	}
	return had > 0 && not < q.blocks(), nil
}
