package redisbackend_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

func TestNewChecksItsArguments(t *testing.T) {
	_, err := redisbackend.New(nil)
	require.ErrorContains(t, err, "nil client")
	client := redistest.Start(t).Client()
	_, err = redisbackend.New(client, nil)
	require.ErrorContains(t, err, "option 1 is nil")
	for prefix, want := range map[string]string{
		"a{b": "braces", "a}": "braces", "{a}": "braces", "relock:": "reserved", "x:relock:y": "reserved",
		strings.Repeat("p", 257): "257 bytes",
	} {
		_, err = newBackend(client, prefix)
		require.ErrorContains(t, err, "WithPrefix", prefix)
		require.ErrorContains(t, err, want, prefix)
		_, err = redisbackend.Open(t.Context(), "redis://127.0.0.1:1", redisbackend.WithPrefix(prefix))
		require.ErrorContains(t, err, want, "%s: refused before anything is opened", prefix)
	}
}

func TestOpen(t *testing.T) {
	server := redisserver.Start(t, "--requirepass", "pass word/#")
	admin := connect(t, server.Addr(), password("pass word/#"))
	require.NoError(t, admin.Do(t.Context(), admin.B().Arbitrary("ACL", "SETUSER", "me", "on", ">s3cret", "allkeys",
		"allchannels", "+@all", "-ping").Build()).Error())
	for _, url := range []string{
		"redis://:pass%20word%2F%23@" + server.Addr(),
		"redis://me:s3cret@" + server.Addr() + "/3",
		"redis://me:s3cret@" + server.Addr() + "?protocol=2",
		"valkey://me:s3cret@" + server.Addr(),
	} {
		b, err := redisbackend.Open(t.Context(), patiently(url))
		require.NoError(t, err, url)
		s := &site{T: t, client: admin, b: b, name: unique("lock")}
		m, err := b.Connect(t.Context(), "m", newMember())
		require.NoError(t, err, url)
		remote, err := m.Bind(s.name)
		require.NoError(t, err)
		reply, err := remote.Acquire(t.Context(), request(1))
		require.NoError(t, err)
		assert.Equal(t, backend.Granted, reply.Status)
		require.NoError(t, m.Close())
		b.Close()
		_, err = remote.Acquire(t.Context(), request(2))
		require.Error(t, err, "Close closes the client that Open made")
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	server := redisserver.Start(t, "--requirepass", "s3cret")
	for url, want := range map[string]string{
		"redis://:wrong1@" + server.Addr():                         "WRONGPASS",
		"redis://unknown:wrong1@" + server.Addr():                  "WRONGPASS",
		"redis://:wrong1@" + server.Addr() + "?protocol=2":         "WRONGPASS",
		"redis://" + server.Addr():                                 "NOAUTH",
		"redis://" + server.Addr() + "?protocol=2":                 "NOAUTH",
		"redis://:s3cret@" + server.Addr() + "/99":                 "DB index is out of range",
		"redis://:s3cret@127.0.0.1:1":                              "connection refused",
		"rediss://:s3cret@" + server.Addr() + "?dial_timeout=50ms": "no connection",
		"":                                                       "redis://",
		"localhost:6379":                                         "redis://",
		"http://:s3cret@localhost":                               "redis://",
		"redis://:s3cret/x@" + server.Addr():                     "percent-encoded",
		"redis://:s3cret#x@" + server.Addr():                     "percent-encoded",
		"redis://:s3cret%zz@" + server.Addr():                    "percent-encoded",
		"redis://:s3cret@" + server.Addr() + "/s3cret":           "database",
		"redis://:s3cret@" + server.Addr() + "/1/s3cret":         "database",
		"redis://:s3cret@" + server.Addr() + "?write_timeout=-x": "parameters",
		"redis://:s3cret@\n":                                     "percent-encoded",
	} {
		_, err := redisbackend.Open(t.Context(), patiently(url))
		require.ErrorContains(t, err, want, "%q", url)
		assert.NotContains(t, err.Error(), "s3cret", "a password is not repeated")
		assert.NotContains(t, err.Error(), "wrong1")
	}
	_, err := redisbackend.Open(t.Context(), patiently("redis://:wrong1@"+server.Addr()))
	assert.True(t, backend.Refused(err))
}

func TestOpenHonoursItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // this server accepts connections and never replies
	require.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = redisbackend.Open(ctx, "redis://"+l.Addr().String())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	cancel()
	_, err = redisbackend.Open(ctx, "redis://"+l.Addr().String())
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// If the server accepts the password and then stops replying, Open returns when its context ends.
func TestOpenReturnsWhenItsContextEndsAfterTheServerStopped(t *testing.T) {
	server := redisserver.Start(t)
	pinged := make(chan struct{}, 1)
	option := rueidis.ClientOption{InitAddress: []string{server.Addr()}, ConnWriteTimeout: limit,
		DialCtxFn: func(ctx context.Context, address string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, "tcp", address)
			return &deafToPing{c, pinged}, err
		}}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-pinged
		cancel()
	}()
	_, err := redisbackend.OpenClient(ctx, option)
	require.ErrorIs(t, err, context.Canceled)
}

// deafToPing is a connection on which PING gets lost.
type deafToPing struct {
	net.Conn
	pinged chan<- struct{}
}

func (d *deafToPing) Write(b []byte) (int, error) {
	if !bytes.Contains(b, []byte("PING")) {
		return d.Conn.Write(b)
	}
	d.pinged <- struct{}{}
	return len(b), nil
}

// rueidis starts a reading goroutine for each connection that it serves in its slower, concurrent mode. The connection for
// commands must stay in the fast mode, even if Open's context can be cancelled and has no deadline.
func TestOpenKeepsTheConnectionInItsFastMode(t *testing.T) {
	const concurrent = "rueidis.(*pipe)._backgroundRead"
	server := redisserver.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before := goroutinesIn(concurrent) // goroutines of earlier tests may be about to end
	b, err := redisbackend.Open(ctx, patiently(server.URL()))
	require.NoError(t, err)
	defer b.Close()
	session, err := reentrant.NewSession(b)
	require.NoError(t, err)
	defer func() { require.NoError(t, session.Close(t.Context())) }()
	l := session.NewLock("lock")
	for range 2 {
		require.NoError(t, l.Lock(ctx))
		require.NoError(t, orLater(l.Unlock)(ctx))
	}
	require.NoError(t, again(func(ctx context.Context) error { return second(l.Inspect(ctx)) })(ctx))
	started := slices.DeleteFunc(goroutinesIn(concurrent), func(number string) bool { return slices.Contains(before, number) })
	assert.Len(t, started, 1, "only the connection of the session's channel has a reading goroutine")
}

// The connection of the client has ended before NewSession. A client in its fast mode notices that only at its next command.
func TestASessionOpensThoughTheConnectionHasEnded(t *testing.T) {
	server := redisserver.Start(t)
	b, err := redisbackend.Open(t.Context(), patiently(server.URL()))
	require.NoError(t, err)
	defer b.Close()
	admin := connect(t, server.Addr())
	require.NoError(t, admin.Do(t.Context(), admin.B().ClientKill().TypeNormal().SkipmeYes().Build()).Error())
	session, err := reentrant.NewSession(b)
	require.NoError(t, err)
	require.NoError(t, session.Close(t.Context()))
}

// OpenClient accepts options that a URL cannot express, and Close closes the client that OpenClient made.
func TestOpenClient(t *testing.T) {
	server := redisserver.Start(t)
	s := &site{T: t, client: connect(t, server.Addr()), name: "lock"}
	before := len(connections(s))
	var dialed atomic.Int32
	option := rueidis.ClientOption{InitAddress: []string{"behind.the.tunnel:1"}, ConnWriteTimeout: limit,
		DialCtxFn: func(ctx context.Context, address string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
			dialed.Add(1)
			return dialer.DialContext(ctx, "tcp", server.Addr())
		}}
	b, err := redisbackend.OpenClient(t.Context(), option)
	require.NoError(t, err)
	assert.EqualValues(t, 1, dialed.Load())
	assert.Equal(t, 1, len(connections(s))-before, "one connection for commands, as with Open")
	b.Close()
	require.Eventually(t, func() bool { return len(connections(s)) == before }, limit, tick)

	option.InitAddress = nil
	_, err = redisbackend.OpenClient(t.Context(), option)
	require.ErrorContains(t, err, "OpenClient: backend unavailable: no alive address")
	_, err = redisbackend.OpenClient(t.Context(), option, redisbackend.WithPrefix("{}"))
	require.ErrorContains(t, err, "braces", "options are checked before anything is opened")
}

func TestOpenUsesOneConnectionForCommands(t *testing.T) {
	server := redisserver.Start(t)
	s := &site{T: t, client: connect(t, server.Addr()), name: "lock"}
	before := len(connections(s))
	b, err := redisbackend.Open(t.Context(), patiently(server.URL()))
	require.NoError(t, err)
	defer b.Close()
	assert.Equal(t, 1, len(connections(s))-before)
	conn, err := b.Connect(t.Context(), "m", newMember())
	require.NoError(t, err)
	assert.Equal(t, 2, len(connections(s))-before, "one more connection for the session's channel")
	require.NoError(t, conn.Close())
}
