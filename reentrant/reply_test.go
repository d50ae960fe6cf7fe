package reentrant_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// A liar is a backend whose answers are changed on the way; the other verbs are as they are.
type liar struct {
	reentrant.Backend
	acquire func(*reentrant.AcquireReply)
	resume  func(*reentrant.ResumeReply)
	others  bool // the answers to Reenter, Release and Inspect cannot be
}

func (b *liar) Connect(ctx context.Context, session string, sink reentrant.Sink) (reentrant.Conn, error) {
	conn, err := b.Backend.Connect(ctx, session, sink)
	return &liarConn{conn, b}, err
}

type liarConn struct {
	reentrant.Conn
	b *liar
}

func (c *liarConn) Bind(name string) (reentrant.Remote, error) {
	remote, err := c.Conn.Bind(name)
	return &liarRemote{remote, c.b}, err
}

type liarRemote struct {
	reentrant.Remote
	b *liar
}

func (r *liarRemote) Acquire(ctx context.Context, req reentrant.AcquireRequest) (reentrant.AcquireReply, error) {
	reply, err := r.Remote.Acquire(ctx, req)
	if err == nil && r.b.acquire != nil {
		r.b.acquire(&reply)
	}
	return reply, err
}

func (r *liarRemote) Resume(ctx context.Context, req reentrant.ResumeRequest) (reentrant.ResumeReply, error) {
	reply, err := r.Remote.(reentrant.Resumer).Resume(ctx, req)
	if err == nil && r.b.resume != nil {
		r.b.resume(&reply)
	}
	return reply, err
}

func (r *liarRemote) Reenter(ctx context.Context, req reentrant.ReenterRequest) (reentrant.ReenterReply, error) {
	reply, err := r.Remote.Reenter(ctx, req)
	if r.b.others {
		reply.Holds = -reply.Holds
	}
	return reply, err
}

func (r *liarRemote) Release(ctx context.Context, req reentrant.ReleaseRequest) (reentrant.ReleaseResult, error) {
	if r.b.others {
		return 100, nil
	}
	return r.Remote.Release(ctx, req)
}

func (r *liarRemote) Inspect(ctx context.Context) (reentrant.State, error) {
	if r.b.others {
		return reentrant.State{Holds: -1}, nil
	}
	return r.Remote.Inspect(ctx)
}

// Of re-entry, Verify and Unlock: none succeeds, and none says that the lock is lost because of such an answer.
func TestOtherImpossibleAnswersAreNotBelieved(t *testing.T) {
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

func unbelieved(t *testing.T, err error) {
	t.Helper()
	assert.ErrorContains(t, err, "cannot be")
	assert.NotErrorIs(t, err, reentrant.ErrLost)
	assert.True(t, reentrant.OutcomeUnknown(err))
}

// Holds that there cannot be would make the local queue panic, under the mutex of the lock.
func TestAnImpossibleAnswerToResumeIsNotBelieved(t *testing.T) {
	for name, lie := range map[string]func(*reentrant.ResumeReply){
		"no holds":       func(r *reentrant.ResumeReply) { r.Holds = 0 },
		"negative holds": func(r *reentrant.ResumeReply) { r.Holds = -1 },
		"too many holds": func(r *reentrant.ResumeReply) { r.Holds = math.MaxInt },
		"no token":       func(r *reentrant.ResumeReply) { r.Token = 0 },
		"no status":      func(r *reentrant.ResumeReply) { r.Status = 0 },
		"odd status":     func(r *reentrant.ResumeReply) { r.Status = 100 },
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
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.ErrorContains(t, err, "cannot be")
				assert.True(t, reentrant.OutcomeUnknown(err))
				assert.False(t, l.IsHeldByCurrentOwner(me))

				b.resume = nil
				require.NoError(t, l.Resume(me), "it is usable")
				require.NoError(t, l.Unlock(me))
				_ = before.Unlock(me)
			})
		})
	}
}

func TestAnImpossibleAnswerToAcquireIsNotBelieved(t *testing.T) {
	for name, lie := range map[string]func(*reentrant.AcquireReply){
		"no status":      func(r *reentrant.AcquireReply) { r.Status = 0 },
		"odd status":     func(r *reentrant.AcquireReply) { r.Status = -1 },
		"no token":       func(r *reentrant.AcquireReply) { r.First, r.Last = 0, 0 },
		"a block turned": func(r *reentrant.AcquireReply) { r.Last = r.First - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &liar{Backend: memory.New(), acquire: lie}
				l := newSession(t, b).NewLock("x")
				ok, err := l.TryLock(t.Context())
				assert.False(t, ok)
				assert.True(t, reentrant.OutcomeUnknown(err))
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
