package push

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// A Listener receives the messages of a channel. Its methods are called one at a time, and not after Close or Abandon has
// returned.
type Listener interface {
	Opened()                 // the subscription has been confirmed; earlier messages are lost
	Received(message string) // never called before Opened
}

// A Subscription listens to one channel for as long as it is open, over one connection after another. Each connection is
// taken from the client with Dedicate: subscribing on one that carries commands would make rueidis serve the commands in
// its slower, concurrent mode for good.
//
//	dedicate ── SUBSCRIBE ── confirmed: opened ── received, received … ── connection lost, or another master
//	    ▲            │ failed                                                │
//	    └─ pause ◀───┴───────────────────────────────────────────────────────┘
type Subscription struct {
	client  rueidis.Client
	channel string

	ctx    context.Context // ended by Close and Abandon
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended

	mu       sync.Mutex // held while the listener is called: it never blocks
	listener Listener   // immutable
	current  *conn      // the connection whose messages the listener gets; nil for none
}

const (
	// minRetry and MaxRetry bound the pause before the channel is opened again. Pauses are random, since all sessions lose
	// their channels at once when a server restarts. While a channel is not open, waiters depend on their heartbeats.
	minRetry = 20 * time.Millisecond
	MaxRetry = time.Second
	// subscribeTimeout bounds one try, unless the caller of Subscribe has set a deadline for the first.
	subscribeTimeout = 5 * time.Second
)

// Subscribe opens a channel. It returns when the subscription is confirmed, or with the error of the first try. The first try
// lasts until ctx's deadline, and so waits for a server that is silent for a while.
func Subscribe(ctx context.Context, client rueidis.Client, channel string, l Listener) (*Subscription, error) {
	s := &Subscription{client: client, channel: channel, listener: l, done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	first := make(chan error, 1)
	go s.Run(firstLimit(ctx), first)
	select {
	case err := <-first:
		if err != nil {
			s.Abandon()
			return nil, wire.Fail(ctx, fmt.Errorf("subscribe: %w", err))
		}
		return s, nil
	case <-ctx.Done():
		s.Abandon()
		return nil, wire.Fail(ctx, fmt.Errorf("subscribe: %w", ctx.Err()))
	}
}

// firstLimit returns how long the first try may last.
func firstLimit(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return time.Until(deadline)
	}
	return subscribeTimeout
}

// Close ends the subscription and waits for its goroutine. If the server is silent, to close its connections takes some seconds.
func (s *Subscription) Close() {
	s.cancel()
	<-s.done
}

// Abandon ends the subscription, and leaves it to its goroutine to close the connections.
func (s *Subscription) Abandon() {
	s.cancel()
	s.listenTo(nil)
}

// Run keeps the channel open. The first try to open it lasts for limit at most. Run sends the result of that try to first, and
// returns if the try failed.
func (s *Subscription) Run(limit time.Duration, first chan<- error) {
	defer close(s.done)
	c, err := s.open(limit)
	if first <- err; err != nil {
		s.shut(c)
		return
	}
	for failures := 0; ; {
		if err != nil {
			failures++
		} else {
			failures = 0
			c.wait(s.ctx)
			s.shut(c)
		}
		if !pause(s.ctx, failures) {
			return
		}
		if c, err = s.open(subscribeTimeout); err != nil {
			s.shut(c)
		}
	}
}

// pause waits before the next try: at least half of a time that doubles with each failure. It returns false when ctx has
// ended.
func pause(ctx context.Context, failures int) bool {
	d := min(minRetry<<min(failures, 10), MaxRetry)
	timer := time.NewTimer(d/2 + rand.N(d/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// A conn is one connection with the channel open, or about to be.
type conn struct {
	client    rueidis.DedicatedClient
	addr      string        // of the server, if the client has only one
	ended     <-chan error  // receives and is closed when the connection is lost
	confirmed chan struct{} // closed when the server says that the channel is open
	open      bool          // whether confirmed is closed; guarded by Subscription.mu
	left      chan struct{} // closed when the client's commands go to another server
	behind    bool          // whether left is closed; guarded by Subscription.mu
}

// wait returns when the connection is lost or left, or ctx has ended. The reason of a loss does not matter: the next try to
// connect shows it.
func (c *conn) wait(ctx context.Context) {
	select {
	case <-c.ended: //nolint:errcheck // see above
	case <-c.left:
	case <-ctx.Done():
	}
}

// Follow opens the channel anew if the client's commands go to another server now. The commands of a Sentinel client do so as
// soon as there is a new master; the old master keeps the channel's connection for some ten seconds more.
func (s *Subscription) Follow() {
	addr := OnlyAddr(s.client)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.current; c != nil && c.open && !c.behind && c.addr != addr {
		c.behind = true
		close(c.left)
	}
}

// OnlyAddr returns the address of the server that a client sends all commands to; "" if there are several.
func OnlyAddr(client rueidis.Client) string {
	nodes := client.Nodes()
	if len(nodes) != 1 {
		return ""
	}
	for addr := range nodes {
		return addr
	}
	return ""
}

// open takes a connection and subscribes. It returns when the subscription is confirmed. If it returns an error, the caller
// shuts the connection, which may be nil. limit is how long to wait for the server's reply.
func (s *Subscription) open(limit time.Duration) (*conn, error) {
	addr := OnlyAddr(s.client)
	client, _, err := Dedicate(s.ctx, s.client)
	if err != nil {
		return nil, err
	}
	c := &conn{client: client, addr: addr, confirmed: make(chan struct{}), left: make(chan struct{})}
	s.listenTo(c)
	c.ended = client.SetPubSubHooks(rueidis.PubSubHooks{
		OnSubscription: func(sub rueidis.PubSubSubscription) {
			if sub.Kind == "subscribe" && sub.Channel == s.channel {
				s.confirm(c)
			}
		},
		OnMessage: func(m rueidis.PubSubMessage) {
			if m.Channel == s.channel {
				s.deliver(c, m.Message)
			}
		},
	})
	return c, s.request(c, limit)
}

// request sends SUBSCRIBE and waits until the hooks get the confirmation. The reply alone is not enough: with RESP2 rueidis
// subscribes on a second connection, and after an error on yet another one without the hooks.
func (s *Subscription) request(c *conn, limit time.Duration) error {
	select {
	case err := <-c.ended:
		return lost(err)
	default:
	}
	ctx, cancel := context.WithTimeoutCause(s.ctx, limit, fmt.Errorf("no confirmation within %v", limit.Round(time.Millisecond)))
	defer cancel()
	if err := c.client.Do(ctx, c.client.B().Subscribe().Channel(s.channel).Build()).Error(); err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	select {
	case <-c.confirmed:
		return nil
	case err := <-c.ended:
		return lost(err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func lost(err error) error {
	if err == nil {
		return errors.New("the connection was lost")
	}
	return err
}

// shut ends a connection, if there is one. The listener gets no more messages from it.
func (s *Subscription) shut(c *conn) {
	if c == nil {
		return
	}
	s.listenTo(nil)
	c.client.Close()
}

// listenTo makes c the listener's connection, unless the subscription has ended. Messages that still come over an older one are
// dropped.
func (s *Subscription) listenTo(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c == nil || s.ctx.Err() == nil {
		s.current = c
	}
}

func (s *Subscription) confirm(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == c && !c.open {
		c.open = true
		s.listener.Opened()
		close(c.confirmed)
	}
}

func (s *Subscription) deliver(c *conn, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == c && c.open {
		s.listener.Received(message)
	}
}

// Dedicate takes a connection of the client. The client's own Dedicate takes no context: it dials, or waits for a place
// in the client's pool, for as long as that takes. If ctx ends first, the connection is given back as soon as it exists.
// release puts the connection back into the pool as it is; dedicated.Close ends the connection.
func Dedicate(ctx context.Context, client rueidis.Client) (dedicated rueidis.DedicatedClient, release func(), err error) {
	type taken struct {
		client  rueidis.DedicatedClient
		release func()
	}
	coming := make(chan taken, 1)
	go func() {
		client, release := client.Dedicate()
		coming <- taken{client, release}
	}()
	select {
	case t := <-coming:
		return t.client, t.release, nil
	case <-ctx.Done():
		go func() { (<-coming).release() }()
		return nil, nil, ctx.Err()
	}
}

// GiveBack ends a verb's use of its connection. Without an error the next verb may use the connection. After an error GiveBack
// closes it, since it is unknown which keys the connection still watches, or which replies are still to come.
func GiveBack(dedicated rueidis.DedicatedClient, release func(), err error) {
	if err != nil {
		dedicated.Close()
		return
	}
	release()
}
