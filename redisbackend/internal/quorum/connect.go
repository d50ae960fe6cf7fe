package quorum

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/single"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// Connect implements backend.Backend. It checks at all nodes at once that scripts run and messages arrive. A majority
// must reply within five seconds; Connect then waits up to half a second for the others. A node that cannot be reached may join
// later. A node that refuses (a wrong password, a missing right) is an error, and so are two nodes that are one server.
func (q *Quorum) Connect(ctx context.Context, session string, sink backend.Sink) (backend.Conn, error) {
	if err := single.CheckSession(session); err != nil {
		return nil, err
	}
	if sink == nil {
		return nil, errors.New("redisbackend: connect: nil sink")
	}
	c := &Conn{quorum: q, session: session, sink: sink, waiting: make(map[string]*waiter)}
	for _, d := range q.nodes {
		c.nodes = append(c.nodes, &single.Conn{Deployment: d, Session: session, Sink: sink, Probed: make(chan string, 1)})
	}
	if err := c.open(ctx); err != nil {
		_ = c.Close() // never fails
		return nil, err
	}
	return c, nil
}

// open opens the channels at all nodes. It returns when a majority is open or cannot be, and the others had a little time.
func (c *Conn) open(ctx context.Context) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	defer c.Jobs.Done()
	q, replies := c.quorum, c.listen(ctx)
	got := collect(ctx, replies, nil, single.ProbeWait, func(got []reply[struct{}]) bool {
		well, _ := count(got, func(struct{}) bool { return true })
		return well >= q.need || len(got)-well >= q.blocks()
	})
	got = collect(ctx, replies, got, q.budget(ctx, time.Time{}), func([]reply[struct{}]) bool { return false })
	errs := failures(got, len(c.nodes))
	for i, err := range errs {
		if backend.Refused(err) {
			return fmt.Errorf("redisbackend: connect: node %d: %w", i+1, err)
		}
	}
	if heardFrom(errs) < q.need {
		return q.tooFew(ctx, errs)
	}
	return nil
}

// listen joins every node in the background. It returns a channel with the results of the first tries, which last for
// ProbeWait, or until ctx's deadline if that is earlier.
func (c *Conn) listen(ctx context.Context) <-chan reply[struct{}] {
	deadline := time.Now().Add(single.ProbeWait)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	replies, mark := make(chan reply[struct{}], len(c.nodes)), rand.Text()
	for i, n := range c.nodes {
		e := &subscriber{conn: c, node: n}
		e.ctx, e.cancel = context.WithCancel(context.Background())
		c.subscribers = append(c.subscribers, e)
		e.done.Go(func() {
			err := e.mark(deadline, mark, i+1)
			if errors.Is(err, errTwin) { // perhaps after Connect has returned
				c.refuse(fmt.Errorf("node %d: %w", i+1, err))
			}
			replies <- reply[struct{}]{node: i, err: err}
			e.rejoin(err)
		})
	}
	return replies
}

// mark opens the channel at a node, and checks that everything works that a session does there. It also checks that no other
// node is the same server, since each of the two would receive the messages of the other.
func (s *subscriber) mark(deadline time.Time, mark string, number int) error {
	ctx, cancel := context.WithDeadline(s.ctx, deadline)
	defer cancel()
	if err := s.subscribe(ctx); err != nil {
		return err
	}
	if err := markNode(ctx, s.node, mark, number); err != nil {
		return err
	}
	return s.node.Probe(ctx)
}

// markNode stores at a node which of the session's nodes it is, for as long as the nodes are being joined. If the node is
// the same server as another, it already has the other node's mark, and markNode returns an error.
func markNode(ctx context.Context, c *single.Conn, mark string, number int) error {
	client, key, own := c.Deployment.Client, c.Deployment.Prefix+wire.Reserved+"node:"+mark, strconv.Itoa(number)
	err := client.Do(ctx, client.B().Set().Key(key).Value(own).Nx().Px(2*single.ProbeWait).Build()).Error()
	if err == nil {
		return nil
	}
	there := own
	if rueidis.IsRedisNil(err) {
		there, err = client.Do(ctx, client.B().Get().Key(key).Build()).ToString()
	}
	switch {
	case err != nil && wire.ErrorCode(err) != "" && !forbidden[wire.ErrorCode(err)]:
		return nil // a node that takes no writes now, because it is full for instance, is joined without the check
	case err != nil:
		return wire.Fail(ctx, fmt.Errorf("mark the node: %w", err))
	case there != own:
		return backend.WithRefused(fmt.Errorf("%w node %s", errTwin, there))
	}
	return nil
}

// errTwin is the error of a node that is the same server as another.
var errTwin = errors.New("it is the same server as")

// forbidden has the codes of errors for a missing right.
var forbidden = map[string]bool{"NOPERM": true, "NOAUTH": true, "WRONGPASS": true}
