package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	if _, err := s.option(); err != nil {
		return nil, nil, err
	}
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

// openWithin is open with a time limit: wait, which is how long the command waits for its lock, but at least leastToConnect.
// A nil wait means that the command waits for ever; then the limit is the patience with a silent server.
func (s *server) openWithin(ctx context.Context, wait *time.Duration, opts ...reentrant.Option) (session *reentrant.Session, done func(), err error) {
	limit := s.patience()
	if wait != nil {
		limit = max(*wait, leastToConnect)
	}
	err = within(ctx, limit, func(ctx context.Context) (err error) {
		session, done, err = s.open(ctx, opts...)
		return err
	})
	return session, done, err
}

// leastToConnect is enough for a connection with TLS to another continent.
const leastToConnect = time.Second

// patience is how long a command that has no limit of its own gives Redis to let it in, and then for each of its requests:
// enough for a server that is busy for a moment, with a large script or a snapshot. A URL with longer limits gives more.
func (s *server) patience() time.Duration {
	const busy = 3 * time.Second
	option, err := s.option()
	if err != nil {
		return busy // open returns the error
	}
	return max(busy, option.Dialer.Timeout, option.ConnWriteTimeout)
}

// within calls ask with a time limit. If the limit ends the call, the error says that Redis did not reply.
func within(ctx context.Context, limit time.Duration, ask func(ctx context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := ask(limited)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("%w: no reply within %v", reentrant.ErrUnavailable, limit)
	}
	return err
}

// patiently calls ask up to three times while the outcome is unknown, all within the patience. It does not repeat a refusal,
// or an attempt that could not reach Redis.
func (s *server) patiently(ctx context.Context, ask func(ctx context.Context) error) error {
	return within(ctx, s.patience(), func(ctx context.Context) error {
		return patiently(func() error { return ask(ctx) })
	})
}

// client opens a plain connection, for commands that a session does not have.
func (s *server) client() (client rueidis.Client, err error) {
	option, err := s.option()
	if err != nil {
		return nil, err
	}
	option.DisableCache = true
	type opening struct {
		client rueidis.Client
		err    error
	}
	opened := make(chan opening, 1)
	go func() { // NewClient has no context; what it opens too late ends with the process
		client, err := rueidis.NewClient(option)
		opened <- opening{client, err}
	}()
	err = within(context.Background(), s.patience(), func(ctx context.Context) error {
		select {
		case o := <-opened:
			client = o.client
			return o.err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return client, err
}

// option reads the URL of Redis. A URL that cannot be read is a mistake of the user, with the status exitUsage.
func (s *server) option() (rueidis.ClientOption, error) {
	if !strings.Contains(s.Redis, "://") { // not quoted: there may be a password in it
		return rueidis.ClientOption{}, fail(exitUsage, errors.New("--redis or REDIS_URL is no URL: it starts with redis:// or rediss://"))
	}
	option, err := redisbackend.ParseURL(s.Redis)
	if err != nil {
		err = fail(exitUsage, err)
	}
	return option, err
}
