package quorum

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/push"
	"github.com/relock-go/relock/redisbackend/internal/single"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// A Quorum is several independent masters that decide by majority. Package redisbackend has its documentation.
type Quorum struct {
	nodes []*single.Deployment
	need  int           // a majority
	Limit time.Duration // nodeLimit, except in tests
}

var _ backend.Backend = (*Quorum)(nil)

// New returns a quorum of nodes, unless two of them have one address.
func New(nodes []*single.Deployment) (*Quorum, error) {
	q := &Quorum{nodes: nodes, need: len(nodes)/2 + 1, Limit: nodeLimit}
	seen := make(map[string]int)
	for i, d := range nodes {
		addr := push.OnlyAddr(d.Client)
		if other, ok := seen[addr]; ok {
			return nil, fmt.Errorf("nodes %d and %d are the same: %s", other+1, i+1, addr)
		}
		seen[addr] = i
	}
	return q, nil
}

// A Conn is one session's connection to the nodes.
type Conn struct {
	quorum      *Quorum
	session     string
	sink        backend.Sink
	nodes       []*single.Conn
	subscribers []*subscriber
	Jobs        sync.WaitGroup // the verbs that run, and the work at nodes that goes on after a verb has returned

	hearing sync.Mutex // held while the sink is called: one call at a time, and none after Close
	mu      sync.Mutex // guards the fields below; no other mutex is taken under it
	waiting map[string]*waiter
	closed  bool
	refused error // why these nodes must not be used
}

// refuse makes every verb fail from here on.
func (c *Conn) refuse(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = err
}

// ended reports whether the conn has been closed.
func (c *Conn) ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// begin returns why a verb cannot be sent: its caller has left, the conn is closed, or two of the nodes are one server. If
// the verb can be sent, it counts as a job, and its caller calls Jobs.Done at the end, so that Close waits for the verb.
func (c *Conn) begin(ctx context.Context) error {
	if err := wire.ContextErr(ctx, time.Now()); err != nil {
		return fmt.Errorf("redisbackend: not sent: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("redisbackend: not sent: the session is closed")
	}
	if c.refused != nil {
		return fmt.Errorf("redisbackend: %w", c.refused)
	}
	c.Jobs.Add(1)
	return nil
}
