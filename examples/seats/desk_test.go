package main

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// The news that a hold was taken up elsewhere reaches a late session only when it has looked at a lock.
type (
	late     struct{ backend.Backend }
	lateSink struct {
		backend.Sink
		looked <-chan struct{}
	}
	lateConn struct {
		backend.Conn
		look func()
	}
	lateRemote struct {
		backend.Remote
		look func()
	}
)

func (l late) Connect(ctx context.Context, session string, sink backend.Sink) (backend.Conn, error) {
	looked := make(chan struct{})
	conn, err := l.Backend.Connect(ctx, session, lateSink{sink, looked})
	return lateConn{conn, sync.OnceFunc(func() { close(looked) })}, err
}

func (s lateSink) Taken(name string, epoch uint64) {
	go func() {
		<-s.looked
		s.Sink.Taken(name, epoch)
	}()
}

func (c lateConn) Bind(name string) (backend.Remote, error) {
	remote, err := c.Conn.Bind(name)
	return lateRemote{remote, c.look}, err
}

func (r lateRemote) Inspect(ctx context.Context) (reentrant.State, error) {
	state, err := r.Remote.Inspect(ctx)
	r.look()
	return state, err
}

// The visitor before went on at the other server, and let the seat go there. This server has not heard of it yet.
func TestASeatIsFreeBeforeTheServerHasHeardOfIt(t *testing.T) {
	t.Parallel()
	shared := redistest.Start(t).Backend()
	lock := func(b backend.Backend) *reentrant.Lock {
		session, err := reentrant.NewSession(b, reentrant.WithLease(time.Hour))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, session.Close(context.Background())) })
		return session.NewLock("seat", reentrant.WithFixedLease(time.Hour))
	}
	here, there := lock(late{shared}), lock(shared)
	ann, bob := as(t.Context(), "ann"), as(t.Context(), "bob")
	takes := func(visitor context.Context, lock *reentrant.Lock) {
		err := take(visitor, lock)
		for reentrant.OutcomeUnknown(err) { // a busy machine
			err = take(visitor, lock)
		}
		require.NoError(t, err)
	}
	takes(ann, here)
	takes(ann, there)
	require.NoError(t, release(ann, there))
	takes(bob, here)
	require.NoError(t, release(bob, here))
}
