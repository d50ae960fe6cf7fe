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
	require.NoError(t, h.acquireConfirmed(h.owner, nil))
	assert.True(t, h.held)
	assert.False(t, h.deadline.until.IsZero())
}

func TestASignalEndsTheWaitForASilentRedis(t *testing.T) {
	h := silentHold(t, &silentLock{renewals: 1, looks: 1 << 30})
	ctx, cancel := context.WithCancel(h.owner)
	time.AfterFunc(3*renewalPoll, cancel)
	assert.ErrorIs(t, h.acquireConfirmed(ctx, nil), reentrant.ErrUnavailable)
}
