// Package redistest is an embedded Redis for tests and examples. It needs no installed server and leaves nothing
// behind. Its keys expire by the clock, as in Redis, and it listens on a loopback port, so that other processes can
// share it:
//
//	server := redistest.Start(t)
//	session, err := reentrant.NewSession(server.Backend())
//
// In a bubble of testing/synctest it has no port, and its clock is the bubble's. An hour of renewals takes half a second
// there, and a lease ends at an exact moment:
//
//	synctest.Test(t, func(t *testing.T) {
//		server := redistest.InBubble(t)
//
// It is miniredis, with a clock that stands still while a script runs. It runs the same scripts as Redis does, some ten
// times slower. Test overload, failover and lack of memory with a real Redis.
package redistest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"

	"github.com/relock-go/relock/redisbackend"
)

// A Server is an embedded Redis. It is safe for concurrent use.
type Server struct {
	redis   *miniredis.Miniredis
	options rueidis.ClientOption // immutable
	client  rueidis.Client
	backend *redisbackend.Backend
	mu      sync.Mutex    // guards the next two, and the setting of redis's clock; acquired before redis's own mutex
	ahead   time.Duration // how far the server's clock is ahead of the process's
	closed  bool          // no connection is made any more
}

// Start starts a server that is closed when the test ends.
func Start(tb testing.TB) *Server {
	tb.Helper()
	return started(tb, New)
}

// New starts a server on a free loopback port. It returns an error where int has 32 bits: there the embedded Redis cuts
// the numbers that scripts return.
func New() (*Server, error) {
	s := newServer()
	if err := s.redis.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	s.redis.Server().SetPreHook(s.tick)
	s.options.InitAddress = []string{s.Addr()}
	return s.open()
}

// URL returns the URL of a server that the first call starts, and that lives as long as the process. It is for a first try,
// in the place of the URL of a real Redis. URL panics where [New] returns an error.
func URL() string { return own().URL() }

var own = sync.OnceValue(func() *Server {
	s, err := New()
	if err != nil {
		panic(err)
	}
	return s
})

// InBubble starts a server in the bubble of testing/synctest in which it is called. It is closed when the bubble's test
// ends. The server has no address: its connections are made in memory, so nothing waits for the network, and the clock
// of its keys and scripts is the bubble's. All sessions must be opened in the bubble and closed before the test ends;
// t.Cleanup will do.
//
// In a bubble time passes only when every goroutine waits, and a command takes no time at all. A test that fails by
// waiting for something that never happens does not end by itself, since sessions renew for ever: give such a wait a
// context with a timeout, which costs nothing.
func InBubble(tb testing.TB) *Server {
	tb.Helper()
	if !bubbled() {
		tb.Fatal("redistest: InBubble is called outside of a bubble of testing/synctest")
	}
	return started(tb, newInBubble)
}

// bubbled reports whether the caller is in a bubble of testing/synctest.
func bubbled() (is bool) {
	defer func() { is = recover() == nil }()
	synctest.Wait() // panics outside
	return
}

func newInBubble() (*Server, error) {
	s := newServer()
	if err := s.withoutPort(); err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	s.redis.Server().SetPreHook(s.tick)
	s.options.InitAddress = []string{"redistest"}
	s.options.Dialer.KeepAlive = -1 // no PING each second: the connections do not fail
	s.options.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) { return s.Dial() }
	return s.open()
}

func started(tb testing.TB, start func() (*Server, error)) *Server {
	tb.Helper()
	s, err := start()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

// newServer returns a server that is not started yet.
func newServer() *Server {
	s := &Server{redis: miniredis.NewMiniRedis()}
	s.redis.ClockTTL(true)
	// miniredis has no client-side caching, and with RESP3 it does not know which commands a subscriber may send
	s.options = rueidis.ClientOption{ForceSingleClient: true, AlwaysRESP2: true, DisableCache: true, PipelineMultiplex: -1,
		RingScaleEachConn: 6, ReadBufferEachConn: 1 << 12, WriteBufferEachConn: 1 << 12} // half a megabyte each by default
	return s
}

var errTooNarrow = errors.New("the embedded Redis needs an int of 64 bits: use a real one on " + runtime.GOARCH)

// open opens the server's own client. If that fails it closes the server.
func (s *Server) open() (_ *Server, err error) {
	if strconv.IntSize == 32 {
		err = errTooNarrow
	} else if s.client, err = rueidis.NewClient(s.options); err == nil {
		s.backend, err = redisbackend.New(s.client)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("redistest: %w", err)
	}
	return s, nil
}

// tick sets the clock before a command, and not within a script. So the clock stands still while a script runs, as in Redis,
// and no key expires half way through.
func (s *Server) tick(_ *server.Peer, command string, _ ...string) bool {
	if command == "EVAL" || command == "EVALSHA" || s.idle() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.redis.SetTime(time.Now().Add(s.ahead))
	}
	return false
}

// idle reports whether no script runs. A script's own commands call tick too: to set the clock for one of them would wait
// for the script to end.
func (s *Server) idle() bool {
	if s.redis.TryLock() {
		s.redis.Unlock()
		return true
	}
	return false
}

// StepClock moves the server's clock ahead by d, as after a correction or a failover to a server whose clock is ahead.
// From the next command on every lease and expiry is shorter by d. A negative d moves the clock back, and makes them
// longer. The clock of the process does not change.
func (s *Server) StepClock(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += d
}

// Addr returns the server's address, such as 127.0.0.1:40123; "" in a bubble. Another process opens the server by its URL.
func (s *Server) Addr() string { return s.redis.Addr() }

// URL returns the address as relock.Open and redisbackend.Open take it, such as redis://127.0.0.1:40123. In a bubble
// there is none.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Client returns a client of the server. It is closed with the server.
func (s *Server) Client() rueidis.Client { return s.client }

// ClientOption returns the options of Client, for another client: one of another process, or one whose connections fail
// because its DialCtxFn wraps those of Dial. In a bubble a client with these options sends no PING each second to find out
// that a connection has fallen silent, unless Dialer.KeepAlive is set.
func (s *Server) ClientOption() rueidis.ClientOption {
	o := s.options
	o.InitAddress = slices.Clone(o.InitAddress)
	return o
}

// Dial connects to the server in memory, also in a bubble. Most clients of Redis have an option for a function that
// connects. Dial returns net.ErrClosed when the server is closed.
func (s *Server) Dial() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("redistest: %w", net.ErrClosed)
	}
	client, served := newPipe()
	s.redis.Server().ServeConn(served)
	return client, nil
}

// Backend returns a backend over Client, without a prefix.
func (s *Server) Backend() *redisbackend.Backend { return s.backend }

// Close stops the server and forgets everything in it. Close the sessions first.
func (s *Server) Close() {
	if s.client != nil {
		s.client.Close()
	}
	s.mu.Lock()
	s.closed = true // before the connections are closed: none is made afterwards
	s.mu.Unlock()
	s.redis.Close()
}

// withoutPort starts the server without a port.
func (s *Server) withoutPort() error {
	conn, err := s.redis.Dial() // starts the server. The connection is not used: it blocks its writers
	if err != nil {
		return err
	}
	return conn.Close()
}
