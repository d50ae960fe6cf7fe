package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// An unplugged backend fails to read locks while it is away.
type (
	unplugged struct {
		backend.Backend
		away  *atomic.Bool
		looks *atomic.Int64
	}
	unpluggedConn struct {
		backend.Conn
		unplugged
	}
	unpluggedRemote struct {
		backend.Remote
		unplugged
	}
)

func (u unplugged) Connect(ctx context.Context, session string, sink backend.Sink) (backend.Conn, error) {
	conn, err := u.Backend.Connect(ctx, session, sink)
	return unpluggedConn{conn, u}, err
}

func (c unpluggedConn) Bind(name string) (backend.Remote, error) {
	remote, err := c.Conn.Bind(name)
	return unpluggedRemote{remote, c.unplugged}, err
}

func (r unpluggedRemote) Inspect(ctx context.Context) (backend.State, error) {
	r.looks.Add(1)
	if r.away.Load() {
		return backend.State{}, errors.New("connection refused")
	}
	return r.Remote.Inspect(ctx)
}

// A deaf client cannot subscribe to channels.
type deaf struct {
	rueidis.Client
	tries *atomic.Int64
}

func (d deaf) Dedicated(func(rueidis.DedicatedClient) error) error {
	d.tries.Add(1)
	return errors.New("connection refused")
}

// While Redis is away for two minutes, a board asks ever less often, and logs only one line.
func TestABoardThatCannotReadAsksLessOften(t *testing.T) {
	src, err := parseSource(filepath.Join(t.TempDir(), "seats.db"))
	require.NoError(t, err)
	store, err := openSales(t.Context(), src)
	require.NoError(t, err)
	defer func() { assert.NoError(t, store.close()) }()
	require.NoError(t, store.create(t.Context()))
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		var looks, tries atomic.Int64
		session, err := reentrant.NewSession(unplugged{memory.New(), &away, &looks})
		require.NoError(t, err)
		var log bytes.Buffer
		b := newBoard(session, deaf{tries: &tries}, store, time.Hour, slog.New(slog.NewTextHandler(&log, nil)))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.run(ctx)
		}()
		away.Store(true)
		time.Sleep(2 * time.Minute)
		assert.Less(t, looks.Load()/int64(len(seats)), int64(20))
		assert.Less(t, tries.Load(), int64(20))
		hall, _ := b.look()
		assert.True(t, hall.stale)

		away.Store(false)
		time.Sleep(lookAtLeastEvery + time.Second)
		hall, _ = b.look()
		assert.False(t, hall.stale)
		stop()
		<-done
		assert.Equal(t, 2, strings.Count(log.String(), "\n"), log.String())
		require.NoError(t, session.Close(context.Background()))
	})
}

// In place of the lock of a seat, Redis has something else. The seat is then shown neither as free nor as held.
func TestASeatWhoseLockCannotBeReadIsShownAsUnknown(t *testing.T) {
	src, err := parseSource(filepath.Join(t.TempDir(), "seats.db"))
	require.NoError(t, err)
	store, err := openSales(t.Context(), src)
	require.NoError(t, err)
	defer func() { assert.NoError(t, store.close()) }()
	require.NoError(t, store.create(t.Context()))
	synctest.Test(t, func(t *testing.T) {
		session, err := reentrant.NewSession(memory.New())
		require.NoError(t, err)
		b := newBoard(session, deaf{tries: new(atomic.Int64)}, store, time.Hour, slog.New(slog.DiscardHandler))
		require.True(t, b.refresh(t.Context()))
		hall, changed := b.look()
		assert.Empty(t, hall.seenBy("visitor", time.Now()).Seats)

		other := session.NewRWLock(seats[3].lockName())
		require.NoError(t, other.Lock(t.Context()))
		require.True(t, b.refresh(t.Context()))
		<-changed
		hall, _ = b.look()
		assert.False(t, hall.stale)
		assert.Equal(t, map[seat]seatSight{seats[3]: {State: "unknown"}}, hall.seenBy("visitor", time.Now()).Seats)
		require.NoError(t, other.Unlock(t.Context()))
		require.NoError(t, session.Close(context.Background()))
	})
}
