package quorum

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// nodeLimit is how long a verb waits for a node in one round, or half of the remaining time if that is less, since an attempt
// has two rounds. A node in the same region replies in a few milliseconds, so a longer limit is of no use; a shorter limit
// would give up on a healthy node that forks or frees memory.
const nodeLimit = 500 * time.Millisecond

// budget returns the time that the nodes have for a round, given the time left until a moment (zero: none) and in ctx.
func (q *Quorum) budget(ctx context.Context, until time.Time) time.Duration {
	limit := q.Limit
	if !until.IsZero() {
		limit = min(limit, time.Until(until)/2)
	}
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)/2)
	}
	return max(limit, time.Millisecond)
}

// A reply is the reply of one node.
type reply[T any] struct {
	node  int
	value T
	err   error
}

// collect adds replies to got until they decide, the limit is over or ctx has ended.
func collect[T any](ctx context.Context, replies <-chan reply[T], got []reply[T], limit time.Duration, decided func([]reply[T]) bool) []reply[T] {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for len(got) < cap(replies) && !decided(got) {
		select {
		case one := <-replies:
			got = append(got, one)
		case <-timer.C:
			return got
		case <-ctx.Done():
			return got
		}
	}
	return got
}

// ask calls do for all nodes at once and collects replies until they decide. Later replies are dropped.
func ask[T any](ctx context.Context, c *Conn, limit time.Duration, do func(ctx context.Context, node int) (T, error),
	decided func([]reply[T]) bool,
) []reply[T] {
	replies := make(chan reply[T], len(c.nodes))
	for i := range c.nodes {
		c.Jobs.Go(func() {
			ctx, cancel := detached(ctx, limit)
			defer cancel()
			value, err := do(ctx, i)
			replies <- reply[T]{i, value, err}
		})
	}
	return collect(ctx, replies, nil, limit, decided)
}

// detached returns a context for one node's command. It does not end when ctx ends, since the caller may leave as soon as the
// other nodes have decided.
func detached(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

// majority returns a function that reports whether a verb is decided: yes is true for a majority of the nodes, or false for so
// many that it cannot be true for a majority.
func majority[T any](q *Quorum, yes func(T) bool) func([]reply[T]) bool {
	return func(got []reply[T]) bool {
		y, n := count(got, yes)
		return y >= q.need || n >= q.blocks()
	}
}

// count counts the replies for which yes is true, and those for which it is false. It does not count errors.
func count[T any](got []reply[T], yes func(T) bool) (y, n int) {
	for _, one := range got {
		switch {
		case one.err != nil:
		case yes(one.value):
			y++
		default:
			n++
		}
	}
	return y, n
}

// blocks returns how many nodes are enough to keep all others from a majority.
func (q *Quorum) blocks() int { return len(q.nodes) - q.need + 1 }

// errNoReply is the error of a node whose reply has not come.
var errNoReply = backend.WithOutcomeUnknown(errors.New("no reply in time"))

// failures returns each node's error, nil for a reply.
func failures[T any](got []reply[T], nodes int) []error {
	errs := make([]error, nodes)
	for i := range errs {
		errs[i] = errNoReply
	}
	for _, one := range got {
		errs[one.node] = one.err
	}
	return errs
}

func heardFrom(errs []error) (n int) {
	for _, err := range errs {
		if err == nil {
			n++
		}
	}
	return n
}

// tooFew returns the error of a verb that the replies do not decide. The error is a refusal if so many nodes refused that no
// majority is left. All nodes' errors are only added as text, so that none of them classifies the whole error.
func (q *Quorum) tooFew(ctx context.Context, errs []error) error {
	var said []string
	var refused []error
	unknown := false
	for i, err := range errs {
		if err == nil {
			continue
		}
		said = append(said, fmt.Sprintf("node %d: %s", i+1, strings.TrimPrefix(err.Error(), "redisbackend: ")))
		unknown = unknown || backend.OutcomeUnknown(err)
		if backend.Refused(err) {
			refused = append(refused, err)
		}
	}
	err := fmt.Errorf("redisbackend: %w (%d of %d replied): %s",
		backend.ErrNoQuorum, heardFrom(errs), len(errs), strings.Join(said, "; "))
	if ended := wire.ContextErr(ctx, time.Now()); ended != nil {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	switch {
	case len(refused) >= q.blocks():
		return backend.WithRefused(err)
	case unknown:
		return backend.WithOutcomeUnknown(err)
	}
	return err
}
