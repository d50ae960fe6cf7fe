package protocol_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
)

// held returns a lock that session a has, as owner @w, for ten seconds.
func held(t *testing.T) *protocol.Lock {
	l := &protocol.Lock{Name: "lock", Keep: time.Minute, Publish: func(string, protocol.Message) {}}
	_, err := l.Acquire(time.Second, "a", backend.AcquireRequest{Epoch: 1, Owner: "@w", Holds: 1, Tokens: 1, Lease: 10 * time.Second}, time.Hour)
	require.NoError(t, err)
	return l
}

func resume(l *protocol.Lock, lease time.Duration, seen backend.Token) backend.ResumeReply {
	reply, _ := l.Resume(2*time.Second, "b", backend.ResumeRequest{Epoch: 7, Owner: "@w", Lease: lease, Seen: seen}, time.Hour, 0)
	return reply
}

// Without a record that has the hold's new session, the hold would be lost at its first renewal.
func TestResumeWithoutARecordMakesOne(t *testing.T) {
	l := held(t)
	before := l.Record.Last
	l.Record = protocol.Record{}
	reply := resume(l, 10*time.Second, 0)
	assert.Equal(t, backend.Resumed, reply.Status)
	assert.Greater(t, reply.Token, before)
	assert.NotZero(t, l.Renew(3*time.Second, "b", 7, time.Second))

	l = held(t)
	l.Record = protocol.Record{}
	assert.Equal(t, backend.Token(9e9+1), resume(l, 10*time.Second, 9e9).Token, "the token is above all that the session has seen")
}

func TestResumeKeepsTheTokenThatTheRecordHas(t *testing.T) {
	l := held(t)
	before := l.Record.Last
	assert.Equal(t, before, resume(l, 10*time.Second, 9e9).Token)
}

// The record is kept for as long as the hold's new lease.
func TestResumeWithALongerLeaseKeepsTheRecord(t *testing.T) {
	l := held(t)
	resume(l, time.Hour, 0)
	assert.NotZero(t, l.Renew(50*time.Minute, "b", 7, time.Second))
}

// A session that has the lock does not wait for it. Otherwise the lock would be granted to an attempt that no owner makes any
// more.
func TestResumeGivesUpThePlaceOfItsSession(t *testing.T) {
	l := held(t)
	reply, err := l.Acquire(time.Second, "b", backend.AcquireRequest{Epoch: 3, Owner: "1", Holds: 1, Tokens: 1, Lease: time.Second, Queue: true,
		Patience: time.Minute, GrantTTL: time.Minute}, time.Hour)
	require.NoError(t, err)
	require.Equal(t, backend.Waiting, reply.Status)
	assert.Equal(t, backend.Resumed, resume(l, 10*time.Second, 0).Status)
	assert.Equal(t, backend.Released, l.Release(3*time.Second, "b", backend.ReleaseRequest{Epoch: 7}, 0, 0))
	assert.False(t, l.Inspect(3*time.Second).Locked)
}

// A hold is counted only for its owner. The scripts do the same: they find the count under the owner's name.
func TestReentryIsTheOwners(t *testing.T) {
	l := held(t)
	request := backend.ReenterRequest{Epoch: 1, Owner: "another", Op: 1, Holds: 2}
	assert.True(t, l.Reenter(2*time.Second, "a", request).Gone)
	request.Owner = "@w"
	assert.Equal(t, 2, l.Reenter(2*time.Second, "a", request).Holds)
}
