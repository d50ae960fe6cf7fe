package push

import (
	"context"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// A ChannelListener receives the messages of channels. Its methods are called one at a time, and not after Close has returned.
type ChannelListener interface {
	Opened(channel string)   // the subscription has been confirmed; earlier messages are lost
	Received(channel string) // a message arrived; never called before Opened
	Closed(channel string)   // the channel was closed, since it was not wanted for a while
}

// Channels are any number of channels that a session listens to while it wants them, over one connection after another.
// The first connection is opened for the first channel.
//
//	Want ── dedicate ── SUBSCRIBE ── Opened ── Received, Received … ── idle ── UNSUBSCRIBE, Closed
//	            ▲                                      │
//	            └── pause ◀── connection lost ◀────────┘
type Channels struct {
	client rueidis.Client
	idle   time.Duration // after which a channel that is not wanted again is closed

	ctx     context.Context // ended by Close
	cancel  context.CancelFunc
	done    chan struct{} // closed when the goroutine has ended
	changed chan struct{} // 1-buffered: another channel is wanted

	mu       sync.Mutex // held while the listener is called: it never blocks
	listener ChannelListener
	wanted   map[string]time.Time // the channels, and when each was wanted last
	current  *connection          // the connection whose messages the listener gets; nil for none
}

// A connection is one connection to Redis.
type connection struct {
	client rueidis.DedicatedClient
	ended  <-chan error    // receives and is closed when the connection is lost
	open   map[string]bool // the channels that were requested, and whether they are confirmed; guarded by Channels.mu
}

// NewChannels returns channels of which none is open.
func NewChannels(client rueidis.Client, idle time.Duration, l ChannelListener) *Channels {
	c := &Channels{client: client, idle: idle, listener: l, done: make(chan struct{}), changed: make(chan struct{}, 1),
		wanted: make(map[string]time.Time)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	go c.run()
	return c
}

// Close ends the connection and waits for the goroutine.
func (c *Channels) Close() {
	c.cancel()
	<-c.done
}

// Want opens a channel, or keeps it open. It does not block.
func (c *Channels) Want(channel string) {
	c.mu.Lock()
	_, known := c.wanted[channel]
	c.wanted[channel] = time.Now()
	c.mu.Unlock()
	if known {
		return
	}
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// run waits until a channel is wanted, and from then on keeps a connection open.
func (c *Channels) run() {
	defer close(c.done)
	select {
	case <-c.changed:
	case <-c.ctx.Done():
	}
	for failures := 0; c.ctx.Err() == nil; failures++ {
		if c.serve() {
			failures = 0
		}
		pause(c.ctx, failures)
	}
}

// serve opens a connection and keeps the channels open until the connection is lost. It returns
// false if it cannot connect or subscribe.
func (c *Channels) serve() (subscribed bool) {
	client, _, err := Dedicate(c.ctx, c.client)
	if err != nil {
		return false
	}
	defer client.Close()
	r := &connection{client: client, open: make(map[string]bool)}
	c.listenTo(r)
	defer c.listenTo(nil)
	r.ended = client.SetPubSubHooks(rueidis.PubSubHooks{
		OnSubscription: func(sub rueidis.PubSubSubscription) {
			if sub.Kind == "subscribe" {
				c.confirm(r, sub.Channel)
			}
		},
		OnMessage: func(m rueidis.PubSubMessage) { c.deliver(r, m.Channel) },
	})
	sweep := time.NewTicker(c.idle / 2)
	defer sweep.Stop()
	for c.subscribe(r) == nil {
		subscribed = true
		select {
		case <-c.changed:
		case now := <-sweep.C:
			c.sweep(r, now)
		case <-r.ended: //nolint:errcheck // whatever the reason
			return true
		case <-c.ctx.Done():
			return true
		}
	}
	return subscribed
}

// subscribe subscribes, over the connection r, to the wanted channels for which it has not done so yet.
func (c *Channels) subscribe(r *connection) error {
	c.mu.Lock()
	var missing []string
	for channel := range c.wanted {
		if _, asked := r.open[channel]; !asked {
			missing = append(missing, channel)
			r.open[channel] = false
		}
	}
	c.mu.Unlock()
	if len(missing) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, subscribeTimeout)
	defer cancel()
	return r.client.Do(ctx, r.client.B().Subscribe().Channel(missing...).Build()).Error()
}

// sweep closes the channels that have not been wanted for long.
func (c *Channels) sweep(r *connection, now time.Time) {
	c.mu.Lock()
	var old []string
	for channel, used := range c.wanted {
		if now.Sub(used) > c.idle {
			old = append(old, channel)
			delete(c.wanted, channel)
			delete(r.open, channel)
			c.listener.Closed(channel)
		}
	}
	c.mu.Unlock()
	if len(old) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, subscribeTimeout)
	defer cancel()
	// If it fails, the connection is being lost, and the channels with it.
	_ = r.client.Do(ctx, r.client.B().Unsubscribe().Channel(old...).Build()).Error()
}

// listenTo makes r the listener's connection. Messages that still come over an older one are dropped.
func (c *Channels) listenTo(r *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = r
}

func (c *Channels) confirm(r *connection, channel string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if open, asked := r.open[channel]; c.current == r && asked && !open {
		r.open[channel] = true
		c.listener.Opened(channel)
	}
}

func (c *Channels) deliver(r *connection, channel string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == r && r.open[channel] {
		c.listener.Received(channel)
	}
}
