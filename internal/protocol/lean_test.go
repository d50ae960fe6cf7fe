package protocol_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
)

// now is the time of a server's clock that has run for long.
const now = 1000 * time.Hour

// passed returns a lock that session a has by its second attempt. The first attempt has begun a lease of ten seconds, and the
// second one has kept it. The second attempt is sent as sessions send attempts: first as a comparison and, if that fails, in
// full.
func passed(t *testing.T, lease time.Duration, seen backend.Token) (*protocol.Lock, backend.AcquireReply) {
	t.Helper()
	l := &protocol.Lock{Name: "lock", Keep: time.Minute, Brief: time.Minute, Publish: func(string, protocol.Message) {}}
	first := backend.AcquireRequest{Epoch: 1, Owner: "1", Holds: 1, Tokens: 1, Lease: 10 * time.Second}
	_, err := l.Acquire(now, "a", first, now+time.Second)
	require.NoError(t, err)
	next := backend.AcquireRequest{Epoch: 2, Owner: "2", Holds: 1, Tokens: 1, Lease: lease, KeepTTL: true, Seen: seen, Prior: l.Prior(first)}
	reply, ok := l.Pass(now, "a", next, now+time.Second)
	if !ok {
		reply, err = l.Acquire(now, "a", next, now+time.Second)
		require.NoError(t, err)
	}
	require.Equal(t, backend.Granted, reply.Status)
	return l, reply
}

// A lean attempt that begins no lease leaves the record as it is. So it passes only if the record is kept for long enough.
func TestTheRecordOutlivesAPassWithALongerLease(t *testing.T) {
	l, _ := passed(t, time.Hour, 0)
	require.NotZero(t, l.Renew(now+time.Second, "a", 2, time.Hour))
	assert.NotZero(t, l.Renew(now+50*time.Minute, "a", 2, time.Second), "a hold without its record is lost")
}

// If a token is ahead of the clock, the record must be kept until the clock has reached the token.
func TestAPassAheadOfTheClockKeepsItsToken(t *testing.T) {
	l, reply := passed(t, 10*time.Second, backend.Token((now + time.Hour).Microseconds()))
	l.Release(now, "a", backend.ReleaseRequest{Epoch: 2}, 0, 0)
	const later = now + 30*time.Minute
	next, err := l.Acquire(later, "b", backend.AcquireRequest{Epoch: 1, Owner: "1", Holds: 1, Tokens: 1, Lease: time.Second}, later+time.Second)
	require.NoError(t, err)
	assert.Greater(t, next.First, reply.Last)
}
