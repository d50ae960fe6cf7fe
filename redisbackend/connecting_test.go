package redisbackend_test

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// The connections of a client go through a door. While the door is shut, new connections wait until it is open.
type door struct {
	server *redistest.Server
	client rueidis.Client

	mu    sync.Mutex
	open  chan struct{} // closed while the door is open
	conns []net.Conn
}

// behind opens a session whose client's connections go through a door.
func behind(t *testing.T, server *redistest.Server) (*reentrant.Session, *door) {
	t.Helper()
	d := &door{server: server, open: make(chan struct{})}
	close(d.open)
	option := server.ClientOption()
	option.DialCtxFn = d.dial
	client, err := rueidis.NewClient(option)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	d.client = client
	b, err := redisbackend.New(client)
	require.NoError(t, err)
	session, err := reentrant.NewSession(b)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = session.Close(ctx)
	})
	return session, d
}

func (d *door) dial(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
	d.mu.Lock()
	open := d.open
	d.mu.Unlock()
	select {
	case <-open:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	conn, err := d.server.Dial()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns = append(d.conns, conn)
	return conn, err
}

// shut shuts the door and ends all connections. The client notices that, and has no connection until the door is open.
func (d *door) shut(t *testing.T) {
	t.Helper()
	d.mu.Lock()
	d.open = make(chan struct{})
	for _, conn := range d.conns {
		_ = conn.Close()
	}
	d.mu.Unlock()
	require.Error(t, d.client.Do(t.Context(), d.client.B().Ping().Build()).Error(), "as of another user of the client")
}

// tried returns the result of a TryLock with a time limit for its context, and how long that took.
func tried(t *testing.T, s *reentrant.Session, name string, limit time.Duration) <-chan try {
	t.Helper()
	result := make(chan try, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		begun := time.Now()
		got, err := s.NewLock(name).TryLock(ctx)
		result <- try{got, err, time.Since(begun)}
	}()
	synctest.Wait()
	return result
}

type try struct {
	got  bool
	err  error
	took time.Duration
}

// While the client opens a connection for one call, other calls wait for it. The end of the first call's context does not end
// the other calls.
func TestACallIsNotRefusedForTheContextOfAnother(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, s *reentrant.Session){
		"after a pause": func(*testing.T, *reentrant.Session) {},
		"in a long silence": func(t *testing.T, s *reentrant.Session) {
			<-tried(t, s, "c", time.Millisecond)
			time.Sleep(time.Hour) // until the session no longer tries to give back what the call may have got
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, d := behind(t, redistest.InBubble(t))
				require.NoError(t, s.NewLock("x").Do(t.Context(), func(context.Context) error { return nil }))
				d.shut(t)
				before(t, s)
				short, long := tried(t, s, "a", 50*time.Millisecond), tried(t, s, "b", time.Second)
				time.Sleep(100 * time.Millisecond)
				close(d.open)
				one, other := <-short, <-long
				require.ErrorIs(t, one.err, context.DeadlineExceeded)
				assert.Equal(t, 50*time.Millisecond, one.took)
				require.NoError(t, other.err)
				assert.True(t, other.got)
				assert.Equal(t, 100*time.Millisecond, other.took)
			})
		})
	}
}

func TestInspectAllIsNotRefusedForTheContextOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := behind(t, redistest.InBubble(t))
		require.NoError(t, s.NewLock("x").Do(t.Context(), func(context.Context) error { return nil }))
		d.shut(t)
		short := tried(t, s, "a", 50*time.Millisecond)
		time.AfterFunc(100*time.Millisecond, func() { close(d.open) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		states, err := s.InspectAll(ctx, "b", "c")
		require.NoError(t, err)
		assert.Len(t, states, 2)
		require.ErrorIs(t, (<-short).err, context.DeadlineExceeded)
	})
}

// ways are two functions that publish a client's first two messages. nil stands for the usual way.
type ways [2]func(ctx context.Context, client rueidis.Client, message rueidis.Completed) rueidis.RedisResult

// A publisher is a client that publishes its first two messages in other ways.
type publisher struct {
	rueidis.Client
	messages atomic.Int32
	ways     ways
}

func (p *publisher) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if cmd.Commands()[0] == "PUBLISH" {
		if i := int(p.messages.Add(1)) - 1; i < len(p.ways) && p.ways[i] != nil {
			return p.ways[i](ctx, p.Client, cmd)
		}
	}
	return p.Client.Do(ctx, cmd)
}

// loses publishes a message that no session receives.
func loses(ctx context.Context, client rueidis.Client, _ rueidis.Completed) rueidis.RedisResult {
	return client.Do(ctx, client.B().Publish().Channel("elsewhere").Message("").Build())
}

// takes returns a way to publish a message that takes some time.
func takes(d time.Duration) func(context.Context, rueidis.Client, rueidis.Completed) rueidis.RedisResult {
	return func(ctx context.Context, client rueidis.Client, message rueidis.Completed) rueidis.RedisResult {
		time.Sleep(d)
		return client.Do(ctx, message)
	}
}

// late publishes a message after a second and a half, and replies at once.
func late(ctx context.Context, client rueidis.Client, message rueidis.Completed) rueidis.RedisResult {
	words := message.Commands()
	time.AfterFunc(1500*time.Millisecond, func() {
		client.Do(context.Background(), client.B().Publish().Channel(words[1]).Message(words[2]).Build())
	})
	return loses(ctx, client, message)
}

// silent replies when ctx ends.
func silent(ctx context.Context, client rueidis.Client, message rueidis.Completed) rueidis.RedisResult {
	<-ctx.Done()
	return client.Do(ctx, message)
}

// A session opens although its first message is lost or late: the nodes of a Cluster lose messages while they connect to each
// other, and servers can be slow.
func TestASessionOpensThoughItsFirstMessageIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		client   *publisher
		takes    time.Duration
		messages int32
	}{
		"lost":                             {&publisher{ways: ways{loses}}, time.Second, 2},
		"lost twice":                       {&publisher{ways: ways{loses, loses}}, 2 * time.Second, 3},
		"published after six seconds":      {&publisher{ways: ways{takes(6 * time.Second)}}, 6 * time.Second, 1},
		"late, and the second not replied": {&publisher{ways: ways{late, silent}}, 1500 * time.Millisecond, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.client.Client = redistest.InBubble(t).Client()
				b, err := redisbackend.New(c.client)
				require.NoError(t, err)
				began := time.Now()
				session, err := reentrant.NewSession(b)
				require.NoError(t, err)
				assert.Equal(t, c.takes, time.Since(began))
				assert.Equal(t, c.messages, c.client.messages.Load())
				require.NoError(t, session.Close(t.Context()))
			})
		})
	}
}
