// Package relock opens sessions on Redis. Package reentrant documents what a session can do, and package redisbackend what a
// session asks of Redis. A program begins with:
//
//	session, err := relock.Open(ctx, "redis://localhost:6379")
//	if err != nil {
//		return err
//	}
//	defer session.Close(ctx) // ctx has a time limit
//	err = session.NewLock("account:7").Do(ctx, func(ctx context.Context) error { … })
package relock

import (
	"context"
	"fmt"
	"slices"

	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// An Option sets a property of the backend or of the session.
type Option func(*options)

type options struct {
	backend []redisbackend.Option
	session []reentrant.Option
}

// WithBackend adds options of the backend, such as redisbackend.WithPrefix("lock:").
func WithBackend(opts ...redisbackend.Option) Option {
	return func(o *options) { o.backend = append(o.backend, opts...) }
}

// WithSession adds options of the session, such as reentrant.WithLogger(slog.Default()).
func WithSession(opts ...reentrant.Option) Option {
	return func(o *options) { o.session = append(o.session, opts...) }
}

// Open connects to the Redis at url and opens a session there. The url has the form redis://[user:password@]host[:port][/db],
// or rediss:// for TLS. The session's Close closes the connections, too. A program needs one session for all its locks.
//
// Open is redisbackend.Open and reentrant.NewSession in one, for a program that uses neither the backend nor its client for
// anything else. It returns their errors: Open fails for a wrong address, a wrong password or a missing right, in the
// server's words and without the password. If ctx ends before the session is open, Open returns ctx's error immediately, and
// closes in the background what it has opened. The end of ctx has no effect on an open session.
func Open(ctx context.Context, url string, opts ...Option) (*reentrant.Session, error) {
	var o options
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("relock: Open: option %d is nil", i+1)
		}
		opt(&o)
	}
	redis, err := redisbackend.Open(ctx, url, o.backend...)
	if err != nil {
		return nil, err
	}
	opened := make(chan opening, 1)
	go func() { opened <- open(redis, o.session) }()
	select {
	case r := <-opened:
		return r.session, r.err
	case <-ctx.Done():
		go func() { (<-opened).abandon() }()
		return nil, fmt.Errorf("relock: Open: %w", ctx.Err())
	}
}

// An opening is the result of reentrant.NewSession, which takes no context and therefore runs in a goroutine.
type opening struct {
	session *reentrant.Session
	err     error
}

// open opens a session that closes its backend.
func open(redis *redisbackend.Backend, opts []reentrant.Option) opening {
	session, err := reentrant.NewSession(redis, append(slices.Clone(opts), reentrant.WithAfterClose(redis.Close))...)
	if err != nil {
		redis.Close()
	}
	return opening{session, err}
}

// abandon closes a session that was opened after the context of Open had ended.
func (o opening) abandon() {
	if o.err == nil {
		_ = o.session.Close(context.Background()) // it has no locks
	}
}
