package protocol_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
)

// The next Signal gives a signal that was not acknowledged in time to another waiter. The signal need not wait for a heartbeat.
func TestASignalTakesBackThoseThatWereNotAcknowledged(t *testing.T) {
	l := &protocol.Lock{Name: "lock", Keep: time.Minute, Publish: func(string, protocol.Message) {}}
	take := func(session string, epoch uint64) {
		t.Helper()
		reply, err := l.Acquire(time.Second, session, backend.AcquireRequest{Epoch: epoch, Owner: "1", Holds: 1, Tokens: 1, Lease: time.Minute}, time.Hour)
		require.NoError(t, err)
		require.Equal(t, backend.Granted, reply.Status)
	}
	for _, w := range []struct {
		session  string
		patience time.Duration
	}{{"a", time.Second}, {"b", time.Minute}, {"c", time.Minute}} {
		take(w.session, 1)
		status, err := l.Await(time.Second, w.session, backend.AwaitRequest{Condition: "ready", Epoch: 1, Ticket: 2, Owner: "1", Holds: 1,
			Patience: w.patience, GrantTTL: time.Second}, 0)
		require.NoError(t, err)
		require.Equal(t, backend.Waited, status)
	}
	take("d", 1)
	l.Signal(time.Second, "d", backend.SignalRequest{Condition: "ready", Epoch: 1, Op: 1})
	assert.Equal(t, backend.Signalled, l.Withdraw("a", "ready", 2))
	l.Signal(3*time.Second, "d", backend.SignalRequest{Condition: "ready", Epoch: 1, Op: 2})
	assert.Equal(t, backend.Gone, l.Withdraw("a", "ready", 2), "it did not acknowledge its signal")
	assert.Equal(t, backend.Signalled, l.Withdraw("b", "ready", 2))
	assert.Equal(t, backend.Signalled, l.Withdraw("c", "ready", 2), "two signals have woken two waiters")
}

// A session shows its tickets once in a heartbeat, which may last longer than the shortest time for which a record is kept. All
// keys with the ticket are kept until then.
func TestATicketIsKeptForLongerThanItsPatience(t *testing.T) {
	l := &protocol.Lock{Name: "lock", Keep: time.Minute, Publish: func(string, protocol.Message) {}}
	reply, err := l.Acquire(time.Second, "a", backend.AcquireRequest{Epoch: 1, Owner: "1", Holds: 1, Tokens: 1, Lease: time.Second}, time.Hour)
	require.NoError(t, err)
	require.Equal(t, backend.Granted, reply.Status)
	_, err = l.Await(time.Second, "a", backend.AwaitRequest{Condition: "ready", Epoch: 1, Ticket: 2, Owner: "1", Holds: 1,
		Patience: time.Hour, GrantTTL: time.Minute}, 0)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, l.Conditions["ready"].Waiting[0].Keep, time.Hour)
}
