package reentrant_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// lagging is a Backend whose replicas lag while behind is set: then nothing that a session acquires counts. As redisbackend
// does, it releases a lock that does not count, keeps units, and needs no replica for the lock of conditions.
type lagging struct {
	backend.Backend
	behind atomic.Bool
}

func (l *lagging) Connect(ctx context.Context, session string, sink backend.Sink) (backend.Conn, error) {
	conn, err := l.Backend.Connect(ctx, session, sink)
	return &laggingConn{conn, l}, err
}

type laggingConn struct {
	backend.Conn
	b *lagging
}

func (c *laggingConn) Bind(name string) (backend.Remote, error) {
	remote, err := c.Conn.Bind(name)
	if err != nil || name != "x" {
		return remote, err
	}
	return laggingRemote{remote, remote.(backend.Conditions), remote.(backend.Sharer), c.b}, nil
}

type laggingRemote struct {
	backend.Remote
	backend.Conditions
	backend.Sharer
	b *lagging
}

func (r laggingRemote) Acquire(ctx context.Context, req backend.AcquireRequest) (backend.AcquireReply, error) {
	reply, err := r.Remote.Acquire(ctx, req)
	if err == nil && reply.Status == backend.Granted && r.b.behind.Load() {
		_, _ = r.Release(ctx, backend.ReleaseRequest{Epoch: req.Epoch})
		return reply, backend.WithRefused(backend.ErrNotReplicated)
	}
	return reply, err
}

func (r laggingRemote) Share(ctx context.Context, req backend.ShareRequest) (backend.ShareReply, error) {
	reply, err := r.Sharer.Share(ctx, req)
	if err == nil && reply.Units > req.Keep && r.b.behind.Load() {
		return reply, backend.WithRefused(backend.WithOutcomeUnknown(backend.ErrNotReplicated))
	}
	return reply, err
}

// A conditional is a lock with conditions.
type conditional interface {
	Lock(context.Context) error
	Unlock(context.Context) error
	NewCondition(string) *reentrant.Condition
}

var conditionals = map[string]func(*reentrant.Session) conditional{
	"Lock":   func(s *reentrant.Session) conditional { return s.NewLock("x") },
	"RWLock": func(s *reentrant.Session) conditional { return s.NewRWLock("x") },
}

// An owner returns from its wait when the replicas have caught up. While they lag it tries until a lease after the end
// of its wait, as if another owner had the lock.
func TestAwaitComesBackWhenTheReplicasHave(t *testing.T) {
	for name, bind := range conditionals {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &lagging{Backend: memory.New()}
				lease := reentrant.DefaultLease + time.Millisecond/2 // pauses are of whole milliseconds: no copy is sent as the wait ends
				l, ctx := bind(newSession(t, b, reentrant.WithLease(lease))), t.Context()
				require.NoError(t, l.Lock(ctx))
				b.behind.Store(true)
				time.AfterFunc(700*time.Millisecond, func() { b.behind.Store(false) })
				signalled, err := l.NewCondition("c").AwaitFor(ctx, time.Millisecond)
				require.NoError(t, err)
				assert.False(t, signalled)
				require.NoError(t, l.Unlock(ctx))

				require.NoError(t, l.Lock(ctx))
				b.behind.Store(true)
				begun := time.Now()
				_, err = l.NewCondition("c").AwaitFor(ctx, time.Millisecond)
				require.ErrorIs(t, err, reentrant.ErrLost)
				assert.ErrorIs(t, err, reentrant.ErrNotReplicated)
				assert.InDelta(t, reentrant.DefaultLease, time.Since(begun), float64(time.Second))
				require.ErrorIs(t, l.Unlock(ctx), reentrant.ErrLost)

				begun = time.Now()
				err = l.Lock(ctx)
				require.ErrorIs(t, err, reentrant.ErrNotReplicated, "a call that had nothing before")
				assert.True(t, reentrant.Refused(err))
				assert.Zero(t, time.Since(begun))
				b.behind.Store(false)
				synctest.Wait()
				begun = time.Now()
				require.NoError(t, bind(newSession(t, b)).Lock(reentrant.WithOwner(ctx, "next")))
				assert.Zero(t, time.Since(begun), "nothing is left behind")
			})
		})
	}
}
