package redisbackend_test

import (
	"context"
	"log/slog"
	"strings"
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

func TestASessionOnAReplicaIsAnError(t *testing.T) {
	t.Parallel()
	_, replica := replicated(t)
	for name, opts := range map[string][]redisbackend.Option{"scripts": nil, "no scripts": {redisbackend.WithoutScripts()}} {
		b, err := redisbackend.New(node(t, replica).client, opts...)
		require.NoError(t, err)
		_, err = reentrant.NewSession(b)
		require.ErrorContains(t, err, "the server is a replica: connect to its master: READONLY", name)
		require.ErrorIs(t, err, backend.ErrUnavailable, name)
	}
}

func TestAServerThatEvictsIsReportedOnce(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	s := &site{T: t, client: connect(t, server.Addr()), name: "lock"}
	warned := func(client rueidis.Client) int {
		b, err := redisbackend.New(client)
		require.NoError(t, err)
		var log strings.Builder
		session, err := reentrant.NewSession(b, reentrant.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		require.NoError(t, err)
		require.NoError(t, session.Close(t.Context()))
		return strings.Count(log.String(), "level=WARN msg=\"the server evicts locks when its memory is used up: set maxmemory-policy noeviction")
	}
	assert.Zero(t, warned(s.client), "the default is noeviction")
	s.run("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
	assert.Zero(t, warned(s.client), "without a limit it evicts nothing")
	s.run("CONFIG", "SET", "maxmemory", "100mb")
	assert.Equal(t, 1, warned(s.client))
	s.run("ACL", "SETUSER", "default", "-info")
	assert.Zero(t, warned(s.client), "it may not look")
}

func TestOpenSaysThatTheOtherSideSpeaksTLSOrDoesNot(t *testing.T) {
	t.Parallel()
	redisserver.NeedTLS(t)
	secured := newAuthority(t).server("--requirepass", "s3cret")
	for _, url := range []string{"redis://" + secured, "redis://:s3cret@" + secured, "redis://" + secured + "?protocol=2"} {
		_, err := redisbackend.Open(t.Context(), url)
		require.ErrorContains(t, err, "the server speaks TLS at "+secured+" (use rediss://", url)
		require.ErrorIs(t, err, backend.ErrUnavailable)
		assert.NotContains(t, err.Error(), "s3cret")
	}
	for _, addr := range []string{redisserver.Start(t, "--requirepass", "s3cret").Addr(), redistest.Start(t).Addr()} {
		_, err := redisbackend.Open(t.Context(), "rediss://"+addr+"?dial_timeout=3s")
		require.ErrorContains(t, err, "the server speaks no TLS at "+addr+" (use redis://")
		require.ErrorIs(t, err, backend.ErrUnavailable)
	}
	// The error also says this if the context ends before the client's own time limit is over.
	plain := redisserver.Start(t).Addr()
	open := func(wait time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		_, err := redisbackend.Open(ctx, "rediss://"+plain+"?dial_timeout=10m")
		return err
	}
	wait := 10 * time.Second
	err := open(wait)
	for ; !strings.Contains(err.Error(), "the server speaks no TLS at ") && wait < silence; wait *= 2 { // this machine may stand still
		err = open(2 * wait)
	}
	require.ErrorContains(t, err, "the server speaks no TLS at ")
	// If an error has another reason, it does not say that the server speaks no TLS.
	_, err = redisbackend.Open(t.Context(), "rediss://"+secured)
	require.ErrorContains(t, err, "certificate")
	assert.NotContains(t, err.Error(), "speaks")
}
