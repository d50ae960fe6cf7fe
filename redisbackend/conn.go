package redisbackend

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
)

// A conn is one session's standing: its channel, what it knows of Redis's clock, and the verbs. The verbs go over
// the client's command connections, which they share with the caller's other commands; the channel has a connection
// of its own.
type conn struct {
	deployment *deployment
	session    string
	sink       backend.Sink
	clocks     clocks
	channel    *subscription
	shards     *shards     // nil unless in a Cluster
	probed     chan string // 1-buffered: the last probe that came back over the channel
	hearing    sync.Mutex  // of opened and received: the sink hears one thing at a time
}

var _ backend.Conn = (*conn)(nil)

const (
	// maxSession bounds a session's id, which stands in every queue.
	maxSession = 128
	// probeWait is how long the channel may take to bring back what was published to it.
	probeWait = 5 * time.Second
	// probeMark is how a probe begins.
	probeMark = "probe "
	// probeName is the lock that is looked at, and never taken, to see whether scripts run.
	probeName = "~relock-probe"
)

// connect gives a session its standing with a deployment, as backend.Backend's Connect says.
func connect(ctx context.Context, d *deployment, session string, sink backend.Sink) (*conn, error) {
	if err := checkSession(session); err != nil {
		return nil, err
	}
	if sink == nil {
		return nil, errors.New("redisbackend: connect: nil sink")
	}
	c := &conn{deployment: d, session: session, sink: sink, probed: make(chan string, 1)}
	c.clocks.jumped, c.clocks.one.jumped = c.opened, c.opened
	c.clocks.bySlot = d.cluster
	var err error
	if c.channel, err = subscribe(ctx, d.client, d.channels+session, c); err != nil {
		return nil, err
	}
	if err := c.probe(ctx); err != nil {
		c.channel.close()
		return nil, err
	}
	if d.cluster && d.scripted() { // only a script reports whether a channel of one slot was heard
		c.shards = newShards(d.client, d.channels, session, shardIdle, c)
	}
	return c, nil
}

// checkSession refuses ids that would break the records they stand in. A UUID is fine.
func checkSession(session string) error {
	if session == "" || len(session) > maxSession {
		return fmt.Errorf("redisbackend: connect: a session's id has 1 to %d bytes, not %d", maxSession, len(session))
	}
	for _, r := range session {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_', r == '.':
		default:
			return fmt.Errorf("redisbackend: connect: a session's id has only letters, digits, - _ and dots, not %q", session)
		}
	}
	return nil
}

// probe runs a script, publishes to the session's own channel and waits for the message.
func (c *conn) probe(ctx context.Context) error {
	remote, err := c.remoteOf(probeName)
	if err != nil {
		return err
	}
	if err := c.deployment.verbs.probe(ctx, remote); err != nil {
		return err
	}
	client, text := c.deployment.client, probeMark+rand.Text()
	cmd := client.B().Publish().Channel(c.deployment.channels + c.session).Message(text).Build()
	if err := client.Do(ctx, cmd).Error(); err != nil {
		return fail(ctx, fmt.Errorf("publish: %w", err))
	}
	timeout := time.NewTimer(probeWait)
	defer timeout.Stop()
	for {
		select {
		case got := <-c.probed:
			if got == text {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("redisbackend: waiting for a published message: %w", ctx.Err())
		case <-timeout.C:
			return fmt.Errorf("redisbackend: a message published to the session's channel did not arrive within %v: is there a proxy between?", probeWait)
		}
	}
}

// Bind implements backend.Conn.
func (c *conn) Bind(name string) (backend.Remote, error) {
	r, err := c.remoteOf(name)
	if err != nil {
		return nil, err // not a nil *remote
	}
	return c.deployment.verbs.bind(r), nil
}

func (c *conn) remoteOf(name string) (*remote, error) {
	keys, err := keysOf(c.deployment.prefix, name)
	if err != nil {
		return nil, err
	}
	return &remote{conn: c, keys: keys, clock: c.clocks.of(keys.hold())}, nil
}

// Close implements backend.Conn. It waits for the channel's goroutine: a second, if the server is silent.
func (c *conn) Close() error {
	if c.shards != nil {
		c.shards.close()
	}
	c.channel.close()
	return nil
}

// listenFor sees to it that messages about a lock arrive: it is waited for.
func (c *conn) listenFor(r *remote) {
	if c.shards != nil {
		c.shards.want(hashed(r.keys.hold()))
	}
	c.follow()
}

// follow has the channel go where the commands go, if that may change: with Sentinel.
func (c *conn) follow() {
	if c.deployment.client.Mode() == rueidis.ClientModeSentinel {
		c.channel.follow()
	}
}

// opened and received are called by the channels' connections, and not after close has returned.

// opened is called when the subscription has been confirmed, before the first message; when another one was lost; and by a
// verb that finds another clock than it knew. In each case another server may answer now.
func (c *conn) opened() {
	c.hearing.Lock()
	defer c.hearing.Unlock()
	c.clocks.restart()
	c.sink.Resumed()
}

// received takes a message. What is not understood is ignored.
func (c *conn) received(message string) {
	c.hearing.Lock()
	defer c.hearing.Unlock()
	if p, ok := parsePush(message); ok {
		c.granted(p)
		return
	}
	if ticket, placed, hold, ok := parseSignal(message); ok {
		if name, ours := strings.CutPrefix(hold, c.deployment.prefix); ours && name != "" {
			c.sink.Signalled(name, ticket, placed)
		}
		return
	}
	if epoch, hold, ok := parseWanted(message); ok {
		if name, ours := strings.CutPrefix(hold, c.deployment.prefix); ours && name != "" {
			c.sink.Wanted(name, epoch)
		}
		return
	}
	if epoch, hold, ok := parseTaken(message); ok {
		if name, ours := strings.CutPrefix(hold, c.deployment.prefix); ours && name != "" {
			c.sink.Taken(name, epoch)
		}
		return
	}
	if strings.HasPrefix(message, probeMark) {
		select {
		case <-c.probed: // an older one that nobody waited for
		default:
		}
		c.probed <- message
	}
}

// granted passes a grant on, with the earliest local moment at which it can have been made. One without that moment is
// confirmed by the next acquire, whose answer has the tokens.
func (c *conn) granted(p push) {
	prefix := len(c.deployment.prefix)
	if len(p.hold) <= prefix || p.hold[:prefix] != c.deployment.prefix {
		return
	}
	g := backend.Grant{Name: p.hold[prefix:], Epoch: p.epoch,
		First: backend.Token(p.first), Last: backend.Token(p.last), TTL: p.ttl}
	// A grant that the replicas are to have is not taken at its word: the next acquire waits for them.
	if at, ok := c.clocks.of(p.hold).earliest(p.stamp, instantOf(time.Now())); ok && c.deployment.replicas.n == 0 && p.plausible() {
		g.NotBefore = started.Add(at)
	}
	c.sink.Granted(g)
}
