package quorum

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// Inspect implements backend.Remote. A lock that no session can have at a majority is free, whatever single nodes say.
// The state lists no waiting sessions.
func (r *remote) Inspect(ctx context.Context) (backend.State, error) {
	if err := r.conn.begin(ctx); err != nil {
		return backend.State{}, err
	}
	defer r.conn.Jobs.Done()
	q := r.conn.quorum
	got := ask(ctx, r.conn, q.budget(ctx, time.Time{}), func(ctx context.Context, i int) (backend.State, error) {
		return r.replicas[i].remote.Inspect(ctx)
	}, q.agreed)
	return q.state(ctx, got)
}

// state combines the nodes' replies about one lock.
func (q *Quorum) state(ctx context.Context, got []reply[backend.State]) (backend.State, error) {
	of, sure := q.holder(got)
	if !sure {
		return backend.State{}, q.tooFew(ctx, failures(got, len(q.nodes)))
	}
	state := backend.State{Token: commonest(of, func(s backend.State) backend.Token { return s.Token })}
	if !of[0].value.Locked {
		return state, nil
	}
	state.Locked, state.Session, state.Epoch = true, of[0].value.Session, of[0].value.Epoch
	state.Unlocked = slices.ContainsFunc(of, func(one reply[backend.State]) bool { return one.value.Unlocked })
	state.Owner = commonest(of, func(s backend.State) string { return s.Owner })
	state.Holds = commonest(of, func(s backend.State) int { return s.Holds })
	slices.SortFunc(of, func(a, b reply[backend.State]) int { return cmp.Compare(b.value.TTL, a.value.TTL) })
	state.TTL = of[q.need-1].value.TTL // a majority has the hold for at least this long
	return state, nil
}

// InspectAll implements backend.Inspector. Every node is asked for all locks at once.
func (c *Conn) InspectAll(ctx context.Context, inspections []backend.Inspection) {
	err := c.begin(ctx)
	if err == nil {
		defer c.Jobs.Done()
	}
	asked, remotes := c.inspections(inspections, err)
	if len(asked) == 0 {
		return
	}
	q := c.quorum
	got := ask(ctx, c, q.budget(ctx, time.Time{}), func(ctx context.Context, i int) ([]backend.Inspection, error) {
		at := make([]backend.Inspection, len(remotes))
		for j, r := range remotes {
			at[j].Remote = r.replicas[i].remote
		}
		c.nodes[i].InspectAll(ctx, at)
		return at, nil
	}, func(got []reply[[]backend.Inspection]) bool {
		for j := range asked {
			if !q.agreed(statesOf(got, j)) {
				return false
			}
		}
		return true
	})
	for j, n := range asked {
		n.State, n.Err = q.state(ctx, statesOf(got, j))
	}
}

// inspections returns the inspections to send, and sets Err of the others: those that are not of this session's locks, and all
// if err is not nil.
func (c *Conn) inspections(all []backend.Inspection, err error) (asked []*backend.Inspection, remotes []*remote) {
	for i := range all {
		n := &all[i]
		switch own, ok := n.Remote.(*remote); {
		case !ok || own.conn != c:
			n.Err = wire.Invalid("the lock is not one of this session")
		case err != nil:
			n.Err = err
		default:
			asked, remotes = append(asked, n), append(remotes, own)
		}
	}
	return asked, remotes
}

// statesOf returns the nodes' replies about one of the locks.
func statesOf(got []reply[[]backend.Inspection], j int) []reply[backend.State] {
	answers := make([]reply[backend.State], len(got))
	for i, one := range got {
		answers[i] = reply[backend.State]{one.node, one.value[j].State, one.value[j].Err}
	}
	return answers
}

// essentials are equal at all nodes that are up to date. A node that is behind has another hold count, or the previous
// token.
type essentials struct {
	session, owner string
	epoch          uint64
	holds          int
	token          backend.Token
	unlocked       bool
}

func essence(s backend.State) essentials {
	return essentials{s.Session, s.Owner, s.Epoch, s.Holds, s.Token, s.Unlocked}
}

// agreed reports whether a majority of the nodes have sent replies that are alike, TTLs included. The TTL of a node that has
// not received a renewal is shorter than the others: then the session waits for more replies.
func (q *Quorum) agreed(got []reply[backend.State]) bool {
	return slices.ContainsFunc(got, func(one reply[backend.State]) bool {
		like, _ := count(got, func(s backend.State) bool {
			return essence(s) == essence(one.value) && near(s.TTL, one.value.TTL)
		})
		return one.err == nil && like >= q.need
	})
}

// near reports whether two nodes can have set their TTLs by copies of one command that arrived at different times.
func near(a, b time.Duration) bool { return (a - b).Abs() <= max(a, b)/10+50*time.Millisecond }

// holder returns the nodes' replies about the lock's holder, and whether the holder is known: a majority agrees, or no
// session can have a majority whatever the other nodes reply.
func (q *Quorum) holder(got []reply[backend.State]) (of []reply[backend.State], sure bool) {
	by := make(map[essentials][]reply[backend.State])
	var free []reply[backend.State] // all nodes' replies, as if the lock were free
	most := 0                       // the most nodes that one holder has
	for _, one := range got {
		if one.err != nil {
			continue
		}
		key := essentials{session: one.value.Session, epoch: one.value.Epoch}
		by[key] = append(by[key], one)
		if one.value.Locked {
			most = max(most, len(by[key]))
		}
		free = append(free, reply[backend.State]{value: backend.State{Token: one.value.Token}})
	}
	for _, of := range by {
		if len(of) >= q.need {
			return of, true
		}
	}
	return free, len(free) > 0 && most+len(q.nodes)-len(free) < q.need
}
