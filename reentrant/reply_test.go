package reentrant_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// A liar is a backend that changes some of the replies on the way.
type liar struct {
	backend.Backend
	acquire func(*backend.AcquireReply)
	resume  func(*backend.ResumeReply)
	others  bool // replies to Reenter, Release and Inspect are impossible
}

func (l *liar) Connect(ctx context.Context, session string, sink backend.Sink) (backend.Conn, error) {
	conn, err := l.Backend.Connect(ctx, session, sink)
	return &liarConn{conn, l}, err
}

type liarConn struct {
	backend.Conn
	b *liar
}

func (c *liarConn) Bind(name string) (backend.Remote, error) {
	remote, err := c.Conn.Bind(name)
	return &liarRemote{remote, c.b}, err
}

type liarRemote struct {
	backend.Remote
	b *liar
}

func (r *liarRemote) Acquire(ctx context.Context, req backend.AcquireRequest) (backend.AcquireReply, error) {
	reply, err := r.Remote.Acquire(ctx, req)
	if err == nil && r.b.acquire != nil {
		r.b.acquire(&reply)
	}
	return reply, err
}

func (r *liarRemote) Resume(ctx context.Context, req backend.ResumeRequest) (backend.ResumeReply, error) {
	reply, err := r.Remote.(backend.Resumer).Resume(ctx, req)
	if err == nil && r.b.resume != nil {
		r.b.resume(&reply)
	}
	return reply, err
}

func (r *liarRemote) Reenter(ctx context.Context, req backend.ReenterRequest) (backend.ReenterReply, error) {
	reply, err := r.Remote.Reenter(ctx, req)
	if r.b.others {
		reply.Holds = -reply.Holds
	}
	return reply, err
}

func (r *liarRemote) Release(ctx context.Context, req backend.ReleaseRequest) (backend.ReleaseResult, error) {
	if r.b.others {
		return 100, nil
	}
	return r.Remote.Release(ctx, req)
}

func (r *liarRemote) Inspect(ctx context.Context) (backend.State, error) {
	if r.b.others {
		return backend.State{Holds: -1}, nil
	}
	return r.Remote.Inspect(ctx)
}

// After an impossible reply, re-entry, Verify and Unlock fail, and the lock does not count as lost.
func TestOtherImpossibleRepliesAreErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &liar{Backend: memory.New()}
		l := newSession(t, b).NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		b.others = true
		ok, err := l.TryLock(t.Context())
		assert.False(t, ok)
		unbelieved(t, err)
		assert.Equal(t, 1, l.HoldCount(t.Context()))
		unbelieved(t, l.Verify(t.Context()))
		unbelieved(t, l.Unlock(t.Context()))

		b.others = false
	})
}

// A backend need not have conditions: the liar's locks have none. The caller keeps its hold.
func TestWithoutConditionsWaitsAndSignalsAreUnsupported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSession(t, &liar{Backend: memory.New()}).NewLock("x")
		c := l.NewCondition("ready")
		ctx := t.Context()
		require.NoError(t, l.Lock(ctx))
		_, err := c.AwaitFor(ctx, time.Second)
		for _, err := range []error{err, c.Await(ctx), c.AwaitUninterruptibly(ctx), c.Signal(ctx), c.SignalAll(ctx)} {
			assert.ErrorIs(t, err, errors.ErrUnsupported)
			assert.ErrorContains(t, err, "conditions")
		}
		assert.Equal(t, 1, l.HoldCount(ctx))
		require.NoError(t, l.Verify(ctx))
		require.NoError(t, l.Unlock(ctx))
	})
}

func unbelieved(t *testing.T, err error) {
	t.Helper()
	assert.ErrorContains(t, err, "cannot be")
	assert.NotErrorIs(t, err, reentrant.ErrLost)
	assert.True(t, backend.OutcomeUnknown(err))
}

// An impossible number of holds would make the local queue panic while the lock's mutex is held.
func TestAnImpossibleReplyToResumeIsAnError(t *testing.T) {
	tooMany := int64(math.MaxInt32) + 1
	for name, lie := range map[string]func(*backend.ResumeReply){
		"no holds":       func(r *backend.ResumeReply) { r.Holds = 0 },
		"negative holds": func(r *backend.ResumeReply) { r.Holds = -1 },
		"too many holds": func(r *backend.ResumeReply) { r.Holds = int(tooMany) }, // negative where int has 32 bits
		"no token":       func(r *backend.ResumeReply) { r.Token = 0 },
		"no status":      func(r *backend.ResumeReply) { r.Status = 0 },
		"odd status":     func(r *backend.ResumeReply) { r.Status = 100 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := memory.New()
				me := reentrant.WithPortableOwner(t.Context(), "me")
				b := &liar{Backend: server, resume: lie}
				l, before := newSession(t, b).NewLock("x"), newSession(t, server).NewLock("x")
				require.NoError(t, before.Lock(me))
				ctx, cancel := context.WithTimeout(me, 3*time.Second)
				defer cancel()
				err := l.Resume(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.ErrorContains(t, err, "cannot be")
				assert.True(t, backend.OutcomeUnknown(err))
				assert.False(t, l.IsHeldByCurrentOwner(me))

				b.resume = nil
				require.NoError(t, l.Resume(me), "the lock can be used")
				require.NoError(t, l.Unlock(me))
				_ = before.Unlock(me)
			})
		})
	}
}

func TestAnImpossibleReplyToAcquireIsAnError(t *testing.T) {
	for name, lie := range map[string]func(*backend.AcquireReply){
		"no status":      func(r *backend.AcquireReply) { r.Status = 0 },
		"odd status":     func(r *backend.AcquireReply) { r.Status = -1 },
		"no token":       func(r *backend.AcquireReply) { r.First, r.Last = 0, 0 },
		"a block turned": func(r *backend.AcquireReply) { r.Last = r.First - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &liar{Backend: memory.New(), acquire: lie}
				l := newSession(t, b).NewLock("x")
				ok, err := l.TryLock(t.Context())
				assert.False(t, ok)
				assert.True(t, backend.OutcomeUnknown(err))
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				assert.ErrorIs(t, l.Lock(ctx), context.DeadlineExceeded)
				b.acquire = nil
				require.NoError(t, l.Lock(t.Context()))
				require.NoError(t, l.Unlock(t.Context()))
			})
		})
	}
}
