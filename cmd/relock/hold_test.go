//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// A silentLock is a lock whose Redis does not reply to the first renewals and looks.
type silentLock struct {
	plainLock
	renewals, looks int
}

func (l *silentLock) renew(ctx context.Context) error {
	if l.renewals--; l.renewals >= 0 {
		return fmt.Errorf("no reply: %w", reentrant.ErrUnavailable)
	}
	return l.plainLock.renew(ctx)
}

func (l *silentLock) look(ctx context.Context) (status, error) {
	if l.looks--; l.looks >= 0 {
		return status{}, fmt.Errorf("no reply: %w", reentrant.ErrUnavailable)
	}
	return l.plainLock.look(ctx)
}

func silentHold(t *testing.T, l *silentLock) *hold {
	t.Helper()
	h := newHold(nil, io.Discard, deadline{lease: time.Minute})
	h.owner = reentrant.WithOwner(context.WithoutCancel(t.Context()), "owner")
	var err error
	h.session, err = reentrant.NewSession(redistest.Start(t).Backend(), reentrant.WithLease(time.Minute))
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, h.lock.Unlock(h.owner))
		assert.NoError(t, h.session.Close(h.owner))
	})
	l.plainLock = plainLock{h.session.NewLock("lock")}
	h.lock = l
	return h
}

func TestALockIsConfirmedAlthoughRedisIsSilentForAWhile(t *testing.T) {
	h := silentHold(t, &silentLock{renewals: 1, looks: 5})
	require.NoError(t, h.acquireConfirmed(h.owner, nil, time.Now()))
	assert.True(t, h.held)
	assert.False(t, h.deadline.until.IsZero())
}

func TestASignalEndsTheWaitForASilentRedis(t *testing.T) {
	h := silentHold(t, &silentLock{renewals: 1, looks: 1 << 30})
	ctx, cancel := context.WithCancel(h.owner)
	time.AfterFunc(3*renewalPoll, cancel)
	assert.ErrorIs(t, h.acquireConfirmed(ctx, nil, time.Now()), reentrant.ErrUnavailable)
}

// The time for the connection is part of --wait: here the client itself would wait for a minute.
func TestASilentRedisEndsTheWaitToo(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	server.Freeze()
	t.Cleanup(server.Thaw)
	for _, args := range [][]string{{"run", "--wait", "0.1", "x", "--", "true"}, {"run", "-n", "x", "--", "true"}, {"hold", "-s", "--wait", "1", "x"}} {
		r := start(t, slowly(server.URL()), args...)
		r.exits(exitRedis)
		assert.Equal(t, "relock: Redis is not available: no reply within 1s\n", r.stderr.String())
	}
}

// Relock is not patient with a Redis that was silent when the wait ended: there is nothing to give back.
func TestAWaitThatIsOverIsNotProlongedByASilentRedis(t *testing.T) {
	h := newHold(nil, io.Discard, deadline{})
	h.lock = &silentLock{looks: 1}
	assert.Equal(t, lateTime, h.patience())
	assert.Empty(t, h.holder(t.Context()))
	assert.Equal(t, notice, h.patience())
	h.held = true
	assert.Equal(t, closeTimeout, h.patience(), "others would wait for a lock that is not given back")
}

// A wait has a limit also if Redis falls silent when relock has the lock, and has begun nothing.
func TestARedisThatFallsSilentEndsTheWaitToo(t *testing.T) {
	t.Parallel()
	h := silentHold(t, &silentLock{looks: 1 << 30})
	ctx, cancel := context.WithTimeout(h.owner, patience)
	defer cancel()
	require.ErrorIs(t, h.acquireConfirmed(ctx, new(time.Duration), time.Now()), reentrant.ErrUnavailable)
	require.NoError(t, ctx.Err(), "the wait has no limit")
	assert.True(t, h.held, "the lock is not given back")
}
