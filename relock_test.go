package relock_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

func TestOpenPassesOptionsToTheBackendAndTheSession(t *testing.T) {
	server := redistest.Start(t)
	session, err := relock.Open(t.Context(), server.URL(),
		relock.WithBackend(redisbackend.WithPrefix("lock:")), relock.WithSession(reentrant.WithExplicitOwners()))
	require.NoError(t, err)
	defer func() { assert.NoError(t, session.Close(context.Background())) }()
	lock := session.NewLock("x")
	require.ErrorIs(t, lock.Lock(t.Context()), reentrant.ErrNoOwner)
	owner := reentrant.WithOwner(t.Context(), "o")
	require.NoError(t, lock.Do(owner, func(context.Context) error {
		client := server.Client()
		n, err := client.Do(t.Context(), client.B().Exists().Key("lock:x").Build()).AsInt64()
		assert.EqualValues(t, 1, n)
		return err
	}))
}

func TestCloseOfTheSessionClosesAllConnections(t *testing.T) {
	wire := tap(t, redistest.Start(t), "")
	session, err := relock.Open(t.Context(), wire.url)
	require.NoError(t, err)
	assert.Positive(t, wire.open.Load())
	require.NoError(t, session.Close(context.Background()))
	wire.requireClosed(t)
}

func TestOpenLeavesNothingOpenWhenItFails(t *testing.T) {
	t.Run("a refusal of the session", func(t *testing.T) {
		wire := tap(t, redistest.Start(t), "")
		_, err := relock.Open(t.Context(), wire.url, relock.WithSession(reentrant.WithLease(-1)))
		require.ErrorContains(t, err, "WithLease(-1ns): must not be negative")
		wire.requireClosed(t)
	})
	for _, silent := range []string{"PING", "SUBSCRIBE", "EVAL", "PUBLISH"} {
		t.Run("its context ended before the reply to "+silent, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			wire := tap(t, redistest.Start(t), silent)
			go func() {
				<-wire.silent
				cancel()
			}()
			_, err := relock.Open(ctx, wire.url)
			close(wire.resume)
			require.ErrorIs(t, err, context.Canceled)
			wire.requireClosed(t)
		})
	}
}

func TestOpenRefusesWhatItCannotUse(t *testing.T) {
	_, err := relock.Open(t.Context(), redistest.URL(), nil)
	require.ErrorContains(t, err, "option 1 is nil")
	_, err = relock.Open(t.Context(), "localhost:6379")
	require.ErrorContains(t, err, "does not start with redis://")
	_, err = relock.Open(t.Context(), redistest.URL(), relock.WithBackend(redisbackend.WithPrefix("{")))
	require.Error(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = relock.Open(ended, redistest.URL())
	require.ErrorIs(t, err, context.Canceled)
}

// A wire is a way to a server that counts its connections, and can hold commands up.
type wire struct {
	url    string
	open   atomic.Int64
	silent chan struct{} // closed at the first command that is held up
	resume chan struct{} // closed by the test, when commands go on
	once   sync.Once
	ended  sync.WaitGroup
}

// tap makes a wire to a server, which holds up commands that contain word, if that is not "".
func tap(t *testing.T, server *redistest.Server, word string) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{url: "redis://" + listener.Addr().String(), silent: make(chan struct{}), resume: make(chan struct{})}
	w.ended.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			w.open.Add(1)
			w.ended.Go(func() { w.serve(near, server.Addr(), word) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		w.ended.Wait()
	})
	return w
}

// serve passes on what comes on one connection, until the client closes it.
func (w *wire) serve(near net.Conn, addr, word string) {
	defer w.open.Add(-1)
	defer near.Close()
	far, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	w.ended.Go(func() { _, _ = io.Copy(near, far) })
	defer far.Close()
	commands := make([]byte, 64<<10)
	for {
		n, err := near.Read(commands)
		if err != nil {
			return
		}
		if word != "" && bytes.Contains(bytes.ToUpper(commands[:n]), []byte(word)) {
			w.once.Do(func() { close(w.silent) })
			<-w.resume
		}
		// The embedded Redis would say that it is a Cluster, at an address of its own. So it is sent a command that it refuses, as
		// a server that is no Cluster does.
		alone := bytes.ReplaceAll(commands[:n], []byte("SHARDS"), []byte("NOSUCH"))
		if _, err := far.Write(alone); err != nil {
			return
		}
	}
}

// requireClosed waits until the client has closed all its connections.
func (w *wire) requireClosed(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return w.open.Load() == 0 }, testsize.Patience(time.Minute), 10*time.Millisecond)
}
