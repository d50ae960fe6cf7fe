package push

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// Shards are a session's channels in a Cluster, in addition to the channel that reaches the session through any node. There
// is one for each hash tag of locks that the session waits for, <prefix>relock:session:{tag}:<session>, on the node that has
// the tag's slot. Messages on these channels do not travel to the other nodes. Nothing depends on these channels: a script
// that finds no subscriber uses PUBLISH.
//
//	an acquire waits ── SSUBSCRIBE, in the background ── open ─── idle for a while ── SUNSUBSCRIBE
//	                        │ MOVED: once more, there         │ the slot moved, the connection was lost
//	                        ▼ failed                          ▼
//	                     forgotten: the waiter's next beat tries again
type Shards struct {
	client   rueidis.Client
	channels string        // the part of the name before the tag
	session  string        // the part of the name after the tag
	idle     time.Duration // after which a channel that no waiter used is closed

	ctx    context.Context // ended by Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	wanted chan string // tags to listen for

	mu       sync.Mutex // held while the listener is called: it never blocks
	listener Listener   // immutable
	closed   bool
	off      bool // the server has no such channels, or the user lacks the right to them
	byTag    map[string]*channel
	nodes    map[string]*node
}

// A channel is the session's channel for one hash tag. Before it is open, either its tag is in Shards.wanted once, or listen is
// opening it; before it is open only listen removes it from Shards.byTag.
type channel struct {
	used time.Time     // when a waiter last wanted the channel; Shards.mu guards used and node
	node *node         // the node that confirmed the channel; nil for none yet
	open chan struct{} // closed when a node has confirmed the channel; immutable
}

// A node is a connection to one node of the Cluster, with any number of channels.
type node struct {
	addr   string
	client rueidis.DedicatedClient
	ended  <-chan error  // receives and is closed when the connection is lost
	left   chan struct{} // closed when the connection is forgotten
}

const (
	// ShardIdle is well above a heartbeat: a session that still waits has asked again by then.
	ShardIdle = time.Minute
	// maxShards bounds the channels of one session. Messages about locks with further tags come by PUBLISH.
	maxShards = 1000
	// shardBacklog is how many tags may wait for listen. A waiter whose tag finds no room tries again at its next beat.
	shardBacklog = 100
)

// NewShards returns the channels of a session, none of them open.
func NewShards(client rueidis.Client, channels, session string, idle time.Duration, l Listener) *Shards {
	s := &Shards{client: client, channels: channels, session: session, idle: idle, listener: l,
		wanted: make(chan string, shardBacklog), byTag: make(map[string]*channel), nodes: make(map[string]*node)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.tasks.Go(s.Run)
	return s
}

// Close ends all connections and waits for their goroutines.
func (s *Shards) Close() {
	s.cancel()
	s.mu.Lock()
	s.closed = true
	for _, n := range s.nodes {
		s.drop(n)
	}
	s.mu.Unlock()
	s.tasks.Wait()
}

// Want says that the session waits for a lock with this tag. It does not block.
func (s *Shards) Want(tag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byTag[tag]; e != nil {
		e.used = time.Now()
		return
	}
	if s.closed || s.off || len(s.byTag) >= maxShards {
		return
	}
	select {
	case s.wanted <- tag:
		s.byTag[tag] = &channel{used: time.Now(), open: make(chan struct{})}
	default:
	}
}

// Run keeps the channels that are wanted open until Close.
func (s *Shards) Run() {
	sweep := time.NewTicker(s.idle / 2)
	defer sweep.Stop()
	for {
		select {
		case tag := <-s.wanted:
			s.listen(tag)
		case now := <-sweep.C:
			s.sweep(now)
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *Shards) channel(tag string) string { return s.channels + "{" + tag + "}:" + s.session }

// listen opens the channel of a tag: it asks any node, and then the node that the reply names.
func (s *Shards) listen(tag string) {
	s.mu.Lock()
	e := s.byTag[tag]
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.ctx, subscribeTimeout)
	defer cancel()
	addr, err := s.anyNode(), error(nil)
	for range 3 { // the slot may move once more meanwhile
		if err = s.request(ctx, addr, tag, e); err == nil {
			return
		}
		var answer *rueidis.RedisError
		moved := false
		if errors.As(err, &answer) {
			addr, moved = answer.IsMoved()
		}
		if !moved {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byTag[tag] == e { // else e was opened and lost; a new channel for the tag, if there is one, has its tag in s.wanted
		delete(s.byTag, tag)
	}
	s.off = s.off || wire.Lasting(err)
}

// anyNode returns a node to begin with, if possible one that is connected already.
func (s *Shards) anyNode() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for addr := range s.nodes {
		return addr
	}
	for addr := range s.client.Nodes() {
		return addr
	}
	return ""
}

// request asks a node for the channel of a tag and waits for the confirmation, which comes to the hooks.
func (s *Shards) request(ctx context.Context, addr, tag string, e *channel) error {
	n, err := s.connected(ctx, addr)
	if err != nil {
		return err
	}
	err = n.client.Do(ctx, n.client.B().Ssubscribe().Channel(s.channel(tag)).Build()).Error()
	if wire.ErrorCode(err) != "" {
		return err // a reply: the connection is good
	}
	if err == nil {
		select {
		case <-e.open:
			return nil
		case <-n.left:
			err = lost(nil)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(n) // the channel may be open although no confirmation came, and closes with the connection
	return err
}

// connected returns the connection to a node, and opens one if there is none.
func (s *Shards) connected(ctx context.Context, addr string) (*node, error) {
	s.mu.Lock()
	n := s.nodes[addr]
	s.mu.Unlock()
	if n != nil {
		return n, nil
	}
	client := s.client.Nodes()[addr]
	if client == nil {
		return nil, errors.New("not a node that the client knows")
	}
	dedicated, _, err := Dedicate(ctx, client)
	if err != nil {
		return nil, err
	}
	n = &node{addr: addr, client: dedicated, left: make(chan struct{})}
	n.ended = dedicated.SetPubSubHooks(rueidis.PubSubHooks{
		OnSubscription: func(sub rueidis.PubSubSubscription) { s.confirmed(n, sub) },
		OnMessage:      func(m rueidis.PubSubMessage) { s.deliver(n, m.Message) },
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[addr] = n // if this is after Close, the request fails, and then drops n
	s.tasks.Go(func() { s.watch(n) })
	return n, nil
}

// watch waits until a connection is lost or forgotten, and then closes it.
func (s *Shards) watch(n *node) {
	defer n.client.Close() // not under the mutex, for which the hooks wait
	select {
	case <-n.ended: //nolint:errcheck // whatever the reason
	case <-n.left:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(n)
}

// drop forgets a connection and its channels. Messages there are lost from now on, so waiters must ask again.
func (s *Shards) drop(n *node) {
	if s.nodes[n.addr] != n {
		return
	}
	delete(s.nodes, n.addr)
	close(n.left)
	heard := false
	for tag, e := range s.byTag {
		if e.node == n {
			delete(s.byTag, tag)
			heard = true
		}
	}
	if heard && !s.closed {
		s.listener.Opened()
	}
}

// confirmed is called when a channel has been opened or closed. A channel that this session closes it has forgotten already.
// A server closes a channel when it no longer has the slot: the waiters' next attempts find the new node, which has another
// clock.
func (s *Shards) confirmed(n *node, sub rueidis.PubSubSubscription) {
	tag := wire.HashTag(sub.Channel)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byTag[tag]
	if e == nil || s.nodes[n.addr] != n || sub.Channel != s.channel(tag) {
		return
	}
	switch {
	case sub.Kind == "ssubscribe" && e.node == nil:
		e.node = n
		close(e.open)
	case sub.Kind == "sunsubscribe" && e.node == n:
		delete(s.byTag, tag)
		s.listener.Opened()
	}
}

func (s *Shards) deliver(n *node, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes[n.addr] == n {
		s.listener.Received(message)
	}
}

// sweep closes the channels that no waiter has used for long.
func (s *Shards) sweep(now time.Time) {
	s.mu.Lock()
	old := make(map[string]*node)
	for tag, e := range s.byTag {
		if e.node != nil && now.Sub(e.used) > s.idle {
			old[tag] = e.node
			delete(s.byTag, tag)
		}
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.ctx, subscribeTimeout)
	defer cancel()
	for tag, n := range old {
		// If it fails, the connection is being lost, and the channel with it.
		_ = n.client.Do(ctx, n.client.B().Sunsubscribe().Channel(s.channel(tag)).Build()).Error()
	}
}
