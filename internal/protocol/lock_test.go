package protocol

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// The record of a lock is kept for a short time only if late copies of attempts can be refused without it, by the clock and the
// time until which an attempt may be executed.
func TestTheRecordIsKeptBrieflyWhereNoSessionWaits(t *testing.T) {
	const now, limit = 1000 * time.Hour, 2 * time.Second
	const brief, long = time.Minute, time.Hour
	request := func(change ...func(*backend.AcquireRequest)) backend.AcquireRequest {
		req := backend.AcquireRequest{Epoch: 1, Owner: "1", Holds: 1, Lease: 10 * time.Second, Tokens: 1, Queue: true, Patience: time.Second, GrantTTL: time.Second}
		for _, f := range change {
			f(&req)
		}
		return req
	}
	take := func(t *testing.T, l *Lock, session string, notAfter Instant, change ...func(*backend.AcquireRequest)) {
		t.Helper()
		reply, err := l.Acquire(now, session, request(change...), notAfter)
		require.NoError(t, err)
		require.Equal(t, backend.Granted, reply.Status)
	}
	next := func(r *backend.AcquireRequest) { r.Epoch = 2 }
	for name, c := range map[string]struct {
		does func(t *testing.T, l *Lock)
		want time.Duration
	}{
		"taken":           {func(t *testing.T, l *Lock) { take(t, l, "a", now+limit) }, brief},
		"for a long time": {func(t *testing.T, l *Lock) { take(t, l, "a", now+30*time.Minute) }, 30 * time.Minute},
		"taken twice by one copy each": {func(t *testing.T, l *Lock) {
			take(t, l, "a", now+limit)
			take(t, l, "a", now+limit, next)
		}, brief},
		"taken with a long lease": {func(t *testing.T, l *Lock) {
			take(t, l, "a", now+limit, func(r *backend.AcquireRequest) { r.Lease = 72 * time.Second })
		}, 144 * time.Second},
		"sent again with one": {func(t *testing.T, l *Lock) {
			take(t, l, "a", now+limit)
			take(t, l, "a", now+limit, func(r *backend.AcquireRequest) { r.Lease = time.Hour })
		}, 2 * time.Hour},
		"sent again": {func(t *testing.T, l *Lock) {
			take(t, l, "a", now+limit)
			take(t, l, "a", now+limit)
		}, long},
		"a block": {func(t *testing.T, l *Lock) {
			take(t, l, "a", now+limit, func(r *backend.AcquireRequest) { r.Tokens = 2 })
		}, long},
		"past others": {func(t *testing.T, l *Lock) {
			take(t, l, "a", now+limit)
			_, err := l.Acquire(now, "b", request(), now+limit)
			require.NoError(t, err)
			l.Hold = Hold{}
			take(t, l, "c", now+limit, func(r *backend.AcquireRequest) { r.Barge = true })
		}, long},
		"given to a waiter": {func(t *testing.T, l *Lock) {
			take(t, l, "a", now+limit)
			_, err := l.Acquire(now, "b", request(), now+limit)
			require.NoError(t, err)
			l.Release(now, "a", backend.ReleaseRequest{Epoch: 1}, 0, 0)
			require.Equal(t, "b", l.Hold.Session)
		}, long},
		"after one that was given up": {func(t *testing.T, l *Lock) {
			l.Release(now, "a", backend.ReleaseRequest{Epoch: 1}, time.Second, 0)
			take(t, l, "b", now+limit)
		}, long},
		"given up by another": {func(t *testing.T, l *Lock) {
			take(t, l, "a", now+limit)
			l.Release(now, "b", backend.ReleaseRequest{Epoch: 1}, time.Second, 0)
		}, long},
		"given up for a condition": {func(t *testing.T, l *Lock) {
			take(t, l, "a", now+limit)
			_, err := l.Await(now, "a", backend.AwaitRequest{Condition: "c", Epoch: 1, Ticket: 2, Patience: time.Second}, time.Second)
			require.NoError(t, err)
		}, long},
		"ahead of the clock": {func(t *testing.T, l *Lock) {
			take(t, l, "a", now+limit, func(r *backend.AcquireRequest) { r.Seen = clockToken(now) })
		}, long},
	} {
		l := &Lock{Keep: time.Hour, Brief: time.Minute, Publish: func(string, Message) {}}
		c.does(t, l)
		assert.Equal(t, c.want, l.Record.Keep, name)
	}
}

// A lock that refuses copies of an attempt counts as in use, even if no session has used it for a while.
func TestALockThatRefusesAttemptsIsInUse(t *testing.T) {
	l := &Lock{Keep: time.Hour, Publish: func(string, Message) {}}
	reply, err := l.Acquire(time.Second, "a", backend.AcquireRequest{Epoch: 1, Owner: "1", Holds: 1, Lease: time.Second, Tokens: 1}, time.Minute)
	require.NoError(t, err)
	l.Release(time.Second, "a", backend.ReleaseRequest{Epoch: 1}, 2*idleAfter, 0)
	assert.Zero(t, l.Disuse(2*time.Second+idleAfter))
	assert.Equal(t, reply.Last, l.Disuse(2*time.Second+2*idleAfter))
}
