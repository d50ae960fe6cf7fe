package quorum

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/push"
	"github.com/relock-go/relock/redisbackend/internal/single"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// A waiter is a lock that this session waits for.
type waiter struct {
	epoch uint64
	tries int
	timer *time.Timer
}

const (
	// minBackoff and maxBackoff bound the pause before a session tries again. Half of the pause is random, so that sessions
	// that split the nodes between them do not try at the same time again. minBackoff is a few round trips. At maxBackoff a
	// session that gets no messages costs each node some ten tries a second.
	minBackoff = 4 * time.Millisecond
	maxBackoff = 128 * time.Millisecond
)

// backoff returns a random pause between half of d and d. d doubles with each try, up to maxBackoff, and is no shorter than
// least.
func backoff(tries int, least time.Duration) time.Duration {
	d := max(min(minBackoff<<min(tries, 10), maxBackoff), least)
	return d/2 + rand.N(d/2)
}

// wait makes the session try again after a pause, which is at least half of least.
func (c *Conn) wait(name string, epoch uint64, least time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	w := c.waiting[name]
	if w == nil {
		w = &waiter{timer: time.AfterFunc(time.Hour, func() { c.notify(func() { c.tryAgain(name) }) })}
		c.waiting[name] = w
	}
	w.epoch = epoch
	w.timer.Reset(backoff(w.tries, least))
	w.tries++
}

// pause stops the timer of the session's wait, since the session is trying now. epoch may be that of a new attempt. If a
// message that the lock was given back comes before the reply, that attempt tries again.
func (c *Conn) pause(name string, epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.waiting[name]; w != nil {
		w.timer.Stop()
		w.epoch = epoch
	}
}

// stop ends the wait of an attempt.
func (c *Conn) stop(name string, epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.waiting[name]; w != nil && w.epoch <= epoch {
		w.timer.Stop()
		delete(c.waiting, name)
	}
}

// tryAgain makes the session's attempt try again: it sends the sink a grant without a NotBefore, which has to be
// confirmed by an acquire.
func (c *Conn) tryAgain(name string) {
	c.mu.Lock()
	w, epoch := c.waiting[name], uint64(0)
	if w != nil {
		epoch = w.epoch
	}
	c.mu.Unlock()
	if epoch > 0 {
		c.sink.Granted(backend.Grant{Name: name, Epoch: epoch})
	}
}

// notify calls the sink, unless the conn is closed.
func (c *Conn) notify(call func()) {
	c.hearing.Lock()
	defer c.hearing.Unlock()
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if !closed {
		call()
	}
}

// A subscriber is the session's channel at one node. Its messages are hints, so nothing is wrong while the channel is not
// open: the session only gets no hints from the node.
type subscriber struct {
	conn *Conn
	node *single.Conn

	ctx    context.Context // ended by Close
	cancel context.CancelFunc
	done   sync.WaitGroup
	open   *push.Subscription // set by the goroutine that done waits for; nil if the channel was never opened
}

var _ push.Listener = (*subscriber)(nil)

// rejoin tries to open the channel until it is open, since the node may come up. It ends when the node refuses, since the node
// would refuse again. err is the error of the first try.
func (s *subscriber) rejoin(err error) {
	for s.open == nil && !backend.Refused(err) && s.ctx.Err() == nil {
		select {
		case <-time.After(push.MaxRetry/2 + rand.N(push.MaxRetry/2)):
			err = s.subscribe(s.ctx)
		case <-s.ctx.Done():
		}
	}
}

// subscribe opens the channel. From then on the push.Subscription keeps it open.
func (s *subscriber) subscribe(ctx context.Context) (err error) {
	b := s.node.Deployment
	s.open, err = push.Subscribe(ctx, b.Client, b.Channels+s.node.Session, s)
	return err
}

func (s *subscriber) Close() {
	s.cancel()
	s.done.Wait()
	if s.open != nil {
		s.open.Close()
	}
}

// Opened implements push.Listener. It keeps the mapping of the node's clock, since one address is one machine.
func (s *subscriber) Opened() { s.conn.notify(s.conn.sink.Reconnected) }

// Received implements push.Listener.
func (s *subscriber) Received(message string) {
	s.conn.notify(func() {
		if m, ok := wire.ParseMessage(message); ok && m.Kind == wire.Freed {
			if name, ours := strings.CutPrefix(m.Hold, s.node.Deployment.Prefix); ours {
				s.conn.tryAgain(name)
			}
			return
		}
		s.node.Received(message)
	})
}

// Close implements backend.Conn. It waits for releases under way: some seconds if a node is silent.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.closed = true
	for name, w := range c.waiting {
		w.timer.Stop()
		delete(c.waiting, name)
	}
	c.mu.Unlock()
	c.hearing.Lock()   // waits for a call of the sink that is under way
	c.hearing.Unlock() //nolint:staticcheck // see above
	for _, e := range c.subscribers {
		e.Close()
	}
	c.Jobs.Wait()
	return nil
}
