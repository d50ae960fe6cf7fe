// Package redistest is an embedded Redis for tests and examples. It needs no installed server and leaves nothing
// behind. Its keys expire by the clock, as in Redis, and it listens on a loopback port, so that other processes can
// share it:
//
//	server := redistest.Start(t)
//	session, err := reentrant.NewSession(server.Backend())
//
// It is miniredis, with its clock set before each command. It runs the same scripts as Redis does, some ten times
// slower. Test overload, failover and lack of memory with a real Redis.
package redistest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"

	"github.com/relock-go/relock/redisbackend"
)

// A Server is an embedded Redis. It is safe for concurrent use.
type Server struct {
	redis   *miniredis.Miniredis
	client  rueidis.Client
	backend *redisbackend.Backend
	mu      sync.Mutex // protects setting the clock, which never goes back; acquired before redis's own mutex
}

// Start starts a server that is closed when the test ends.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s, err := New()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

// New starts a server on a free loopback port.
func New() (*Server, error) {
	s := &Server{redis: miniredis.NewMiniRedis()}
	if err := s.start(); err != nil {
		s.Close()
		return nil, fmt.Errorf("redistest: %w", err)
	}
	return s, nil
}

func (s *Server) start() error {
	if err := s.redis.StartAddr("127.0.0.1:0"); err != nil {
		return err
	}
	s.redis.ClockTTL(true)
	s.redis.Server().SetPreHook(s.tick)
	var err error
	// miniredis has no client-side caching, and with RESP3 it does not know which commands a subscriber may send
	s.client, err = rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr()}, ForceSingleClient: true,
		AlwaysRESP2: true, DisableCache: true, PipelineMultiplex: -1, RingScaleEachConn: 6})
	if err != nil {
		return err
	}
	s.backend, err = redisbackend.New(s.client)
	return err
}

// tick sets the clock before a command, so that within a script it stands still, as in Redis: no key expires half way
// through one.
func (s *Server) tick(_ *server.Peer, command string, _ ...string) bool {
	if command == "EVAL" || command == "EVALSHA" || s.idle() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.redis.SetTime(time.Now())
	}
	return false
}

// idle reports whether no script runs. It is false for each command of a script, which calls tick too: setting the
// clock would then wait for the script to end.
func (s *Server) idle() bool {
	if s.redis.TryLock() {
		s.redis.Unlock()
		return true
	}
	return false
}

// Addr is the server's address, such as 127.0.0.1:40123. Another process opens it with
// redisbackend.Open(ctx, "redis://"+address).
func (s *Server) Addr() string { return s.redis.Addr() }

// Client is a client of the server. It is closed with the server.
func (s *Server) Client() rueidis.Client { return s.client }

// Backend is a backend over Client, without a prefix.
func (s *Server) Backend() *redisbackend.Backend { return s.backend }

// Close stops the server and forgets everything in it. Close the sessions first.
func (s *Server) Close() {
	if s.client != nil {
		s.client.Close()
	}
	s.redis.Close()
}
