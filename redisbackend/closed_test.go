package redisbackend_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// A session that has been closed cannot take a lock from another session, even while its client stays open.
func TestAClosedSessionChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, site *site) {
		for way, opts := range map[string][]redisbackend.Option{"scripts": nil, "no scripts": {redisbackend.WithoutScripts()}} {
			t.Run(way, func(t *testing.T) {
				b, err := redisbackend.New(site.client, opts...)
				require.NoError(t, err)
				changesNothing(t, site.name+way, newSessions(t, func() (*reentrant.Session, error) { return reentrant.NewSession(b, calm...) }))
			})
		}
	})
}

func TestAClosedSessionOfAQuorumChangesNothing(t *testing.T) {
	t.Parallel()
	c := newCouncil(t, 3)
	s, other := c.session(calm...), c.session(calm...)
	changesNoLock(t, "lock", [2]*reentrant.Session{s, other})
}

// newSessions opens two sessions.
func newSessions(t *testing.T, open func() (*reentrant.Session, error)) (both [2]*reentrant.Session) {
	for i := range both {
		s, err := open()
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close(context.Background()) })
		both[i] = s
	}
	return both
}

// changesNothing closes the first session and then tries to end the holds of the second.
func changesNothing(t *testing.T, name string, s [2]*reentrant.Session) {
	ctx := t.Context()
	rw, m := s[1].NewRWLock(name+"-rw"), s[1].NewSemaphore(name+"-sem", 2)
	require.NoError(t, rw.Lock(ctx))
	require.NoError(t, m.Acquire(ctx, 1))
	changesNoLock(t, name, s)
	_, err := s[0].NewRWLock(name + "-rw").ForceUnlock(ctx)
	assert.ErrorIs(t, err, reentrant.ErrClosed)
	_, err = s[0].NewSemaphore(name+"-sem", 2).ForceRelease(ctx)
	assert.ErrorIs(t, err, reentrant.ErrClosed)
	_, err = s[0].NewRWLock(name + "-rw").IsWriteLocked(ctx)
	assert.ErrorIs(t, err, reentrant.ErrClosed)
	assert.NoError(t, again(rw.Verify)(ctx))
	var state reentrant.SharedState
	require.NoError(t, again(func(context.Context) (err error) {
		state, err = m.Inspect(ctx)
		return err
	})(ctx))
	assert.Len(t, state.Holders, 1)
	require.NoError(t, m.Release(ctx, 1))
	require.NoError(t, orLater(rw.Unlock)(ctx))
}

// changesNoLock is changesNothing for a Lock.
func changesNoLock(t *testing.T, name string, s [2]*reentrant.Session) {
	ctx := t.Context()
	held := s[1].NewLock(name + "-lock")
	require.NoError(t, held.Lock(ctx))
	require.NoError(t, s[0].Close(ctx))
	l := s[0].NewLock(name + "-lock")
	_, err := l.ForceUnlock(ctx)
	assert.ErrorIs(t, err, reentrant.ErrClosed)
	_, err = l.IsLocked(ctx)
	assert.ErrorIs(t, err, reentrant.ErrClosed)
	_, err = s[0].InspectAll(ctx, name+"-lock", name+"-free")
	assert.ErrorIs(t, err, reentrant.ErrClosed)
	assert.NoError(t, again(held.Verify)(ctx))
	assert.NoError(t, orLater(held.Unlock)(ctx))
}
