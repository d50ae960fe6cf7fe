package single

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
	"github.com/relock-go/relock/redisbackend/internal/clock"
	"github.com/relock-go/relock/redisbackend/internal/push"
	"github.com/relock-go/relock/redisbackend/internal/redisson"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// A Conn is one session's connection to a deployment: its channel, what it knows of Redis's clock, and the verbs. The
// verbs go over the client's command connections, which they share with the caller's other commands; the channel has a
// connection of its own.
type Conn struct {
	Deployment *Deployment
	Session    string
	Sink       backend.Sink
	Clocks     clock.Clocks
	channel    *push.Subscription
	shards     *push.Shards       // nil unless in a Cluster
	redisson   *redisson.Listener // nil unless Redisson's clients use the same locks
	Probed     chan string        // 1-buffered: the last probe that came back over the channel
	hearing    sync.Mutex         // of Opened and Received: the sink gets one call at a time
}

var _ backend.Conn = (*Conn)(nil)

const (
	// maxSession bounds a session's id, which is part of every queue.
	maxSession = 128
	// ProbeWait is how long the channel may take to deliver a published message.
	ProbeWait = 5 * time.Second
	// probeAgain is the pause after which the message is published again: the nodes of a Cluster lose messages while they
	// connect to each other.
	probeAgain = time.Second
	// probeMark is how a probe begins.
	probeMark = "probe "
	// probeName is a lock that is read, and never taken, to see whether scripts run.
	probeName = "~relock-probe"
)

// Connect connects a session to a deployment, as backend.Backend's Connect says.
func Connect(ctx context.Context, d *Deployment, session string, sink backend.Sink) (*Conn, error) {
	if err := CheckSession(session); err != nil {
		return nil, err
	}
	if sink == nil {
		return nil, errors.New("redisbackend: connect: nil sink")
	}
	c := &Conn{Deployment: d, Session: session, Sink: sink, Probed: make(chan string, 1)}
	c.Clocks.Jumped, c.Clocks.One.Jumped = c.Opened, c.Opened
	c.Clocks.BySlot = d.cluster
	var err error
	if c.channel, err = push.Subscribe(ctx, d.Client, d.Channels+session, c); err != nil {
		return nil, err
	}
	if err := c.Probe(ctx); err != nil {
		c.channel.Abandon() // the server may be silent
		return nil, err
	}
	if d.cluster && d.Scripted() { // only a script can see whether a slot's channel has a subscriber
		c.shards = push.NewShards(d.Client, d.Channels, session, push.ShardIdle, c)
	}
	if d.Redisson {
		c.redisson = redisson.NewListener(d.Client)
	}
	return c, nil
}

// CheckSession refuses a session id that would make the records unreadable that contain it.
func CheckSession(session string) error {
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

// Probe runs a script, publishes a message to the session's own channel and waits for the message. If the server is
// unavailable, Probe does all this once more: the connection may have ended while the client did not use it, and the client
// notices that at the first command.
func (c *Conn) Probe(ctx context.Context) error {
	err := c.probe(ctx)
	if errors.Is(err, backend.ErrUnavailable) && ctx.Err() == nil {
		err = c.probe(ctx)
	}
	return err
}

func (c *Conn) probe(ctx context.Context) error {
	remote, err := c.RemoteOf(probeName)
	if err != nil {
		return err
	}
	if err := c.Deployment.Verbs.Probe(ctx, remote); err != nil {
		return err
	}
	if err := c.checkMaster(ctx, remote); err != nil {
		return err
	}
	return c.hearItself(ctx)
}

// hearItself publishes a message to the session's channel again and again until the message arrives. It returns the error of
// the first PUBLISH, and ignores the errors of the later ones.
func (c *Conn) hearItself(ctx context.Context) error {
	text := probeMark + rand.Text()
	if err := c.publish(ctx, text); err != nil {
		return wire.Fail(ctx, fmt.Errorf("publish: %w", err))
	}
	repeating, cancel := context.WithCancel(ctx)
	defer cancel()
	timeout, again := time.NewTimer(ProbeWait), time.NewTicker(probeAgain)
	defer timeout.Stop()
	defer again.Stop()
	for {
		select {
		case got := <-c.Probed:
			if got == text {
				return nil
			}
		case <-again.C:
			go func() { _ = c.publish(repeating, text) }() // its reply can be late while the message arrives
		case <-ctx.Done():
			return fmt.Errorf("redisbackend: waiting for a published message: %w", ctx.Err())
		case <-timeout.C:
			return fmt.Errorf("redisbackend: a message published to the session's channel did not arrive within %v: is there a proxy between?", ProbeWait)
		}
	}
}

// publish publishes a message to the session's channel.
func (c *Conn) publish(ctx context.Context, text string) error {
	client := c.Deployment.Client
	return client.Do(ctx, client.B().Publish().Channel(c.Deployment.Channels+c.Session).Message(text).Build()).Error()
}

// checkMaster returns an error if the server is a replica that takes no writes. To set the TTL of a key that does not exist is a
// write that changes nothing. Any other error in the server's reply is ignored, and shows itself when a write is needed.
func (c *Conn) checkMaster(ctx context.Context, r *Remote) error {
	client := c.Deployment.Client
	err := client.Do(ctx, client.B().Pexpire().Key(r.Keys[1]).Milliseconds(1).Build()).Error()
	switch wire.ErrorCode(err) {
	case "READONLY":
		return wire.Fail(ctx, fmt.Errorf("the server is a replica: connect to its master: %w", err))
	case "":
		if err != nil {
			return wire.Fail(ctx, err)
		}
	}
	return nil
}

// Bind implements backend.Conn.
func (c *Conn) Bind(name string) (backend.Remote, error) {
	r, err := c.RemoteOf(name)
	if err != nil {
		return nil, err // a nil *Remote in the interface would not be nil
	}
	return c.Deployment.Verbs.Bind(r), nil
}

// RemoteOf returns the verbs of one lock, which run scripts. It returns an error for an invalid name.
func (c *Conn) RemoteOf(name string) (*Remote, error) {
	keys, err := wire.KeysOf(c.Deployment.Prefix, name)
	if err != nil {
		return nil, err
	}
	return &Remote{Conn: c, Keys: keys, Clock: c.Clocks.Of(keys.Hold())}, nil
}

// Close implements backend.Conn. It waits for the channel's goroutine: some seconds, if the server is silent.
func (c *Conn) Close() error {
	if c.shards != nil {
		c.shards.Close()
	}
	c.redisson.Close()
	c.channel.Close()
	return nil
}

// Listen opens the channels for messages about a lock for which the session waits.
func (c *Conn) Listen(r *Remote) {
	if c.shards != nil {
		c.shards.Want(wire.HashTag(r.Keys.Hold()))
	}
	c.Follow()
}

// Follow moves the channel to the server to which the client sends commands. Only with Sentinel can that server change.
func (c *Conn) Follow() {
	if c.Deployment.Client.Mode() == rueidis.ClientModeSentinel {
		c.channel.Follow()
	}
}

// The channels' connections call Opened and Received, and not after Close has returned.

// Opened is called when the session's channel is open, before the first message; when the connection of a slot's channel was
// lost; and by a verb that finds another clock than before. In each case the server may be another one now.
func (c *Conn) Opened() {
	c.hearing.Lock()
	defer c.hearing.Unlock()
	c.Clocks.Restart()
	c.Sink.Reconnected()
}

// Received handles a message. Texts that are not messages are ignored.
func (c *Conn) Received(text string) {
	c.hearing.Lock()
	defer c.hearing.Unlock()
	if strings.HasPrefix(text, probeMark) {
		c.probed(text)
		return
	}
	m, ok := wire.ParseMessage(text)
	name, ours := strings.CutPrefix(m.Hold, c.Deployment.Prefix)
	if !ok || !ours || name == "" {
		return
	}
	switch m.Kind {
	case wire.Granted:
		c.redisson.Arrived(m.Hold)
		c.Sink.Granted(backend.Grant{Name: name, Epoch: m.Epoch, First: backend.Token(m.First), Last: backend.Token(m.Last),
			TTL: m.TTL, NotBefore: c.notBefore(&m)})
	case wire.Signalled:
		c.Sink.Signalled(name, m.Epoch, m.Placed)
	case wire.Wanted:
		c.Sink.Wanted(name, m.Epoch)
	case wire.Taken:
		c.Sink.Taken(name, m.Epoch)
	case wire.ShareGranted, wire.ShareWanted:
		c.receivedShared(name, &m)
	}
}

// receivedShared passes on a message about a shared name.
func (c *Conn) receivedShared(name string, m *wire.Message) {
	sink, ok := c.Sink.(backend.SharedSink)
	switch {
	case !ok:
	case m.Kind == wire.ShareWanted:
		sink.SharedWanted(name, m.May, m.Try)
	default:
		sink.Shared(backend.ShareGrant{Name: name, Epoch: m.Epoch, Units: m.Units, First: backend.Token(m.First), Last: backend.Token(m.Last),
			May: m.May, TTL: m.TTL, NotBefore: c.notBefore(m)})
	}
}

// probed passes a probe's message to Probe.
func (c *Conn) probed(text string) {
	select {
	case <-c.Probed: // an older message, for which no Probe waited
	default:
	}
	c.Probed <- text
}

// notBefore returns the earliest local moment at which a grant can have been made. It returns the zero time if that moment is
// not known, or if the tokens are not plausible: then the next acquire confirms the grant, and the acquire's reply has the
// tokens. With replicas it always returns the zero time, since the next acquire waits for the replicas.
func (c *Conn) notBefore(m *wire.Message) time.Time {
	at, ok := c.Clocks.Of(m.Hold).Earliest(m.Stamp, clock.InstantOf(time.Now()))
	if !ok || c.Deployment.Replicas.Count > 0 || !m.Plausible() {
		return time.Time{}
	}
	return clock.Started.Add(at)
}
