package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// closeTimeout bounds how long relock waits for Redis at its end. A lock that is still held then is abandoned, and
// expires.
const closeTimeout = 3 * time.Second

// open opens a session, and returns the function that closes it.
func (s *server) open(ctx context.Context, opts ...reentrant.Option) (*reentrant.Session, func(), error) {
	session, err := relock.Open(ctx, s.Redis,
		relock.WithBackend(redisbackend.WithPrefix(s.Prefix)), relock.WithSession(opts...))
	if err != nil {
		return nil, nil, err
	}
	return session, func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = session.Close(ctx) // locks that it could not give back expire
	}, nil
}

// openWithin is open with a limit. A limit that is shorter than leastToConnect is raised to it, and one of 0 is the client's.
func (s *server) openWithin(ctx context.Context, limit time.Duration, opts ...reentrant.Option) (*reentrant.Session, func(), error) {
	if limit <= 0 {
		return s.open(ctx, opts...)
	}
	limit = max(limit, leastToConnect)
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	session, done, err := s.open(within, opts...)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("%w: no reply within %v", reentrant.ErrUnavailable, limit)
	}
	return session, done, err
}

// leastToConnect is enough for a connection with TLS to another continent.
const leastToConnect = time.Second

// client opens a plain connection, for commands that a session does not have.
func (s *server) client() (rueidis.Client, error) {
	option, err := rueidis.ParseURL(s.Redis)
	if err != nil { // err may contain the password
		return nil, errors.New("the URL of Redis is not valid")
	}
	option.DisableCache = true
	return rueidis.NewClient(option)
}
