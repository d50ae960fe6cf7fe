package redisbackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/noscript"
	"github.com/relock-go/relock/redisbackend/internal/single"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// A Backend is a Redis deployment that the sessions of many processes share. It is safe for concurrent use; one Backend
// serves any number of sessions.
type Backend struct {
	deployment single.Deployment // immutable once New has returned
	owned      bool              // the client was made by Open or OpenClient
}

var _ backend.Backend = (*Backend)(nil)

// Connect implements backend.Backend. It subscribes to the session's channel, runs a script that only reads, and
// publishes a message to see it arrive. So a wrong address or password, a replica in the place of its master, a missing
// right to run scripts, subscribe or publish, and a proxy that holds messages back are found now and not at the first
// contended lock. The script's reply is also the first sample of Redis's clock.
func (b *Backend) Connect(ctx context.Context, session string, sink backend.Sink) (backend.Conn, error) {
	c, err := single.Connect(ctx, &b.deployment, session, sink)
	if err != nil {
		return nil, err // a nil *conn in the interface would not be nil
	}
	return c, nil
}

// An Option changes what New and Open make.
type Option func(*Backend) error

// WithPrefix puts prefix in front of the keys and channels of every lock, so that several applications can share a
// Redis. The default is "", with which lock N is the hash N. A prefix has at most 256 bytes, and neither braces, which
// would decide the Cluster slot of every lock, nor the text "relock:". Two Backends with the same prefix share their locks; no
// prefix should be the beginning of another, or lock names could meet: "app:" and "web:" are good, "a" and "ap" are not.
func WithPrefix(prefix string) Option {
	return func(b *Backend) error {
		if err := wire.CheckPrefix(prefix); err != nil {
			return err
		}
		b.deployment.Prefix = prefix
		return nil
	}
}

// WithReplicas makes every call that gets a Lock, either side of an RWLock, permits or slots wait until n replicas have
// acknowledged that (Redis's WAIT), so that a failover to one of these replicas does not forget the holder. If fewer
// acknowledge it within timeout, also because fewer are connected, the call fails at once with
// reentrant.ErrNotReplicated, however much time its context has left. It has nothing then: what the master gave is
// given back. Callers of the same session that wait for the same units of an RWLock or a Semaphore fail with it. A call
// that only waits until another session gives the lock back does not fail because of the replicas.
//
// A call of an owner that has the lock already does not fail at once, since the owner would lose the lock. A Condition's
// Await returns when n replicas have acknowledged that its owner has the lock again, and asks again until they have; if
// its wait ends first, it returns ErrLost, as it does without replicas. Lock.Resume is sent again until n replicas have
// the hold or the context ends. If the context ends first, the hold is not given back, and the error has OutcomeUnknown
// and reentrant.ErrNotReplicated. Re-entries, downgrades, Unlock, Signal and renewals do not wait for replicas.
//
// WithReplicas makes a lost lock after a failover unlikely, not impossible: a failover may promote a replica that did not
// acknowledge. Tokens protect the data then as always. It costs a second round trip for each acquire, and a connection
// from the client's pool (BlockingPoolSize) for both round trips, which then stays open for the next acquire; and a waiter
// confirms a lock that was pushed to it before Lock returns.
func WithReplicas(n int, timeout time.Duration) Option {
	return func(b *Backend) error {
		if n < 1 || timeout < time.Millisecond {
			return fmt.Errorf("WithReplicas(%d, %v): at least 1, and at least 1ms", n, timeout)
		}
		b.deployment.Replicas = single.Replicas{Count: n, Timeout: timeout}
		return nil
	}
}

// WithoutScripts runs the verbs without Lua, for servers that forbid Lua. Each verb reads the lock's keys under WATCH,
// decides in this process, and writes the changes with MULTI and EXEC; if another client was quicker, the verb starts
// again. The data in Redis is that of the scripts, so sessions with and without scripts can share locks.
//
// It costs two round trips and more for every command, more under contention (in each round one of the clients succeeds),
// a connection from the client's pool (BlockingPoolSize) for the time of each command, which then stays open for the next
// one, and as much traffic as the queue of the lock is long. A renewal takes one transaction for each lock. WithReplicas
// needs scripts.
func WithoutScripts() Option {
	return func(b *Backend) error {
		b.deployment.Verbs = noscript.Verbs{}
		return nil
	}
}

// WithRedisson makes locks fully compatible with those of Redisson's getLock of the same name (a [WithPrefix] is part
// of the name), waiting included: a session that frees a lock wakes a thread of Redisson's that waits for it, and the
// other way round. Without WithRedisson sessions and threads still exclude each other, but a waiting session asks again
// only at its next heartbeat, and a waiting thread when the lease that it was shown has ended. All processes that share
// locks with Redisson should use this option. It is for Locks alone: Redisson's clients do not see that an RWLock or a
// Semaphore has a name.
//
// It costs a PUBLISH within each command that frees a lock. A session that waits needs one connection for all channels of
// Redisson's that it listens to, and sends a command for each message. Sessions and threads have no common queue: a thread of
// Redisson's takes a free lock past the sessions that wait, and while sessions wait the lock passes between them. Redisson
// has no tokens: see docs/divergence.md. In a Cluster, Redisson's ShardedSubscriptionMode must be OFF for its messages to arrive
// here. WithRedisson needs scripts, and with ACLs the channels redisson_lock__channel:*.
func WithRedisson() Option {
	return func(b *Backend) error {
		b.deployment.Redisson = true
		return nil
	}
}

// New makes a Backend over the caller's client, for a standalone server, Sentinel or a Cluster, of Redis 6.2 or later or
// Valkey. New sends no command; opening a session does that. The package documentation lists what the client needs.
func New(client rueidis.Client, opts ...Option) (*Backend, error) {
	if client == nil {
		return nil, errors.New("redisbackend: New: nil client")
	}
	b := &Backend{deployment: single.NewDeployment(client)}
	if err := b.apply(opts); err != nil {
		return nil, fmt.Errorf("redisbackend: New: %w", err)
	}
	if err := b.deployment.Complete(); err != nil {
		return nil, fmt.Errorf("redisbackend: New: %w", err)
	}
	return b, nil
}

func (b *Backend) apply(opts []Option) error {
	for i, opt := range opts {
		if opt == nil {
			return fmt.Errorf("option %d is nil", i+1)
		}
		if err := opt(b); err != nil {
			return err
		}
	}
	return nil
}

const (
	// openWriteTimeout is how long a client made by Open waits for a reply when the caller's context does not end
	// before. rueidis's own default, 10 s, is as long as a lease: a lost command would be noticed when it is too late
	// to send it again. With 3 s a renewal at a third of the default lease gets a second try.
	openWriteTimeout = 3 * time.Second
	// openBuffer is the size of the read and of the write buffer of each connection of a client made by Open. A pipeline of
	// renewals is larger and is then written in several pieces; rueidis's default is half a megabyte each.
	openBuffer = 64 << 10
)

// Open makes a Backend with a client of its own: redis://[user:password@]host[:port][/db], or rediss:// for TLS,
// with the query parameters that rueidis.ParseURL knows; any other is an error. It connects at once and checks the
// password: on failure the error has the server's words, and never the password. If the server speaks TLS and the URL does
// not, or the other way round, the error says so. Close closes the client.
func Open(ctx context.Context, url string, opts ...Option) (*Backend, error) {
	option, err := clientOption(url)
	if err != nil {
		return nil, fmt.Errorf("redisbackend: Open: %w", err)
	}
	return open(ctx, "Open", option, opts)
}

// OpenClient does what Open does, with rueidis's options in place of a URL: for Sentinel, a Cluster with several
// addresses, a dialer or credentials that change. These options get the values that Open gives them, if they are zero:
// PipelineMultiplex, ConnWriteTimeout (3 s), BlockingPoolCleanup, the sizes of the buffers, and ClientName, which CLIENT
// LIST shows (host and process id, as in the ids of sessions). Client-side caching is off.
func OpenClient(ctx context.Context, option rueidis.ClientOption, opts ...Option) (*Backend, error) {
	return open(ctx, "OpenClient", option, opts)
}

// open makes a Backend with a client of its own. name is that of the exported function that calls open, for its errors.
func open(ctx context.Context, name string, option rueidis.ClientOption, opts []Option) (*Backend, error) {
	if err := new(Backend).apply(opts); err != nil { // return before anything is opened
		return nil, fmt.Errorf("redisbackend: %s: %w", name, err)
	}
	client, err := dial(ctx, withDefaults(option))
	if err != nil {
		return nil, openError{name, wire.Fail(ctx, err)}
	}
	b, err := New(client, opts...)
	if err != nil {
		client.Close()
		return nil, err
	}
	b.owned = true
	return b, nil
}

// An openError is the error of a function that connects. Its text has the function's name before the reason:
// "redisbackend: Open: backend unavailable: connection refused".
type openError struct {
	name string
	err  error
}

func (e openError) Error() string {
	return "redisbackend: " + e.name + ": " + strings.TrimPrefix(e.err.Error(), "redisbackend: ")
}

func (e openError) Unwrap() error { return e.err }

// clientOption reads a URL. Its errors do not quote the URL: a password with a slash or a hash in it ends up in any
// part of the URL.
func clientOption(address string) (rueidis.ClientOption, error) {
	u, err := url.Parse(address)
	if err != nil {
		return rueidis.ClientOption{}, errors.New("the URL is not well formed (it starts with redis:// or rediss://, and special characters in a password must be percent-encoded)")
	}
	if u.Fragment != "" || u.User == nil && strings.Contains(address, "@") { // perhaps a password with a #, / or ? in it
		return rueidis.ClientOption{}, errMisplaced
	}
	switch u.Scheme {
	case "redis", "rediss", "valkey", "valkeys", "unix":
	default:
		return rueidis.ClientOption{}, errors.New("the URL does not start with redis:// or rediss://")
	}
	if err := checkParameters(u.RawQuery); err != nil {
		return rueidis.ClientOption{}, err
	}
	option, err := rueidis.ParseURL(address)
	if err != nil || !validPort(u.Port()) {
		return rueidis.ClientOption{}, errInvalid
	}
	return option, nil
}

// withDefaults sets the options that the caller left zero.
func withDefaults(option rueidis.ClientOption) rueidis.ClientOption {
	option.DisableCache = true
	if !option.AlwaysRESP2 { // with RESP2 the name takes a command of its own, for which the user may lack the right
		option.ClientName = cmp.Or(option.ClientName, backend.ProcessName())
	}
	option.PipelineMultiplex = cmp.Or(option.PipelineMultiplex, -1)              // one connection: commands arrive in the order in which they were sent
	option.BlockingPoolCleanup = cmp.Or(option.BlockingPoolCleanup, time.Minute) // closes what a burst of commands has opened
	option.ReadBufferEachConn = cmp.Or(option.ReadBufferEachConn, openBuffer)
	option.WriteBufferEachConn = cmp.Or(option.WriteBufferEachConn, openBuffer)
	option.ConnWriteTimeout = cmp.Or(option.ConnWriteTimeout, openWriteTimeout)
	return option
}

// dial makes a client and checks that the server lets it in. NewClient takes no context: if ctx ends first, the client is
// closed as soon as it exists.
func dial(ctx context.Context, option rueidis.ClientOption) (rueidis.Client, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	type result struct {
		client rueidis.Client
		err    error
	}
	dialed := make(chan result, 1)
	go func() {
		client, err := rueidis.NewClient(option)
		if err == nil {
			err = ping(client)
		}
		dialed <- result{client, err}
	}()
	// The limit keeps explainTLS from waiting a second time for a server that was silent until the client gave up.
	asking, cancel := context.WithTimeout(ctx, option.ConnWriteTimeout)
	defer cancel()
	silent, stop := silentTLS(ctx, option)
	defer stop()
	var err error
	select {
	case r := <-dialed:
		if r.err != nil && r.client != nil {
			r.client.Close()
		}
		if r.err != nil {
			r.err = explainTLS(asking, option, r.err)
		}
		return r.client, r.err
	case err = <-silent:
	case <-ctx.Done():
		err = ctx.Err()
	}
	go func() {
		if r := <-dialed; r.client != nil {
			r.client.Close()
		}
	}()
	return nil, err
}

// ping checks that the server serves the client. Its command has a context that never ends: with one that can be
// cancelled and has no deadline, rueidis would serve the connection in its slower, concurrent mode for good. The client's
// own time limit applies.
func ping(client rueidis.Client) error {
	err := client.Do(context.Background(), client.B().Ping().Build()).Error()
	if wire.ErrorCode(err) == "NOPERM" { // a user without the right to PING has logged in all the same
		return nil
	}
	return err
}

// Close closes the client if it was made by Open or OpenClient, and does nothing otherwise. Close the sessions first.
func (b *Backend) Close() {
	if b.owned {
		b.deployment.Client.Close()
	}
}
