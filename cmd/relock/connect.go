package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// closeTimeout bounds how long relock waits for Redis at its end. A lock that is still held then is abandoned, and
// expires.
const closeTimeout = 3 * time.Second

// open opens a session, and returns the function that closes it.
func (s *server) open(ctx context.Context, opts ...reentrant.Option) (*reentrant.Session, func(), error) {
	backend, err := redisbackend.Open(ctx, s.Redis, redisbackend.WithPrefix(s.Prefix))
	if err != nil {
		return nil, nil, err
	}
	session, err := reentrant.NewSession(backend, opts...)
	if err != nil {
		backend.Close()
		return nil, nil, err
	}
	return session, func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = session.Close(ctx) // locks that it could not give back expire
		backend.Close()
	}, nil
}

// client opens a plain connection, for commands that a session does not have.
func (s *server) client() (rueidis.Client, error) {
	option, err := rueidis.ParseURL(s.Redis)
	if err != nil { // err may contain the password
		return nil, errors.New("the URL of Redis is not valid")
	}
	option.DisableCache = true
	return rueidis.NewClient(option)
}
