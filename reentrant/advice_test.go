package reentrant_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// An adviser is a backend whose connections give one line of advice.
type adviser struct {
	backend.Backend
	asked *int
	waits bool // Advice returns nothing, and only when its context ends
}

type advisingConn struct {
	backend.Conn
	adviser
}

func (b adviser) Connect(ctx context.Context, session string, sink backend.Sink) (backend.Conn, error) {
	conn, err := b.Backend.Connect(ctx, session, sink)
	return advisingConn{conn, b}, err
}

func (c advisingConn) Advice(ctx context.Context) []string {
	*c.asked++
	if c.waits {
		<-ctx.Done()
		return nil
	}
	return []string{"the server is not well set"}
}

func TestAdviceIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		asked := 0
		s := newSession(t, adviser{Backend: memory.New(), asked: &asked}, reentrant.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		require.NoError(t, s.NewLock("x").Lock(t.Context()))
		require.NoError(t, s.NewLock("x").Unlock(t.Context()))
		require.NoError(t, s.Close(t.Context()))
		assert.Equal(t, 1, asked)
		assert.Equal(t, 1, strings.Count(log.String(), `level=WARN msg="the server is not well set"`), log.String())
	})
}

func TestAdviceIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		b := adviser{Backend: memory.New(), asked: &asked, waits: true}
		s := newSession(t, b, reentrant.WithLogger(slog.New(slog.NewTextHandler(&strings.Builder{}, nil))))
		require.NoError(t, s.NewLock("x").Lock(t.Context()))
		synctest.Wait()
		assert.Equal(t, 1, asked)
		quiet := newSession(t, b, reentrant.WithLogger(slog.New(slog.NewTextHandler(&strings.Builder{}, &slog.HandlerOptions{Level: slog.LevelError}))))
		require.NoError(t, quiet.Close(t.Context()))
		assert.Equal(t, 1, asked, "the log would not take it")
		require.NoError(t, s.NewLock("x").Unlock(t.Context()))
	})
}
