package backendtest

import (
	"context"
	"crypto/rand"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases about a session's connection.
var connCases = []testCase{
	{"Conn/CloseLeavesTheLocks", closeLeavesTheLocks},
	{"Conn/ConnectsOnlyWhileItsContextLasts", connectHonoursItsContext},
	{"Conn/OutlivesTheContextOfConnect", connOutlivesConnect},
	{"Conn/SessionsAreTwoThoughTheirIdsBeginAlike", sessionsAreTwo},
	{"Conn/ACommandOfAnEndedContextIsHonest", aCommandIsHonest},
}

func closeLeavesTheLocks(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(1)
	require.NoError(t, a.conn.Close())
	require.NoError(t, b.conn.Close())
	st := c.inspect()
	require.Equal(t, a.id, st.Session)
	require.Equal(t, []string{b.id}, st.Waiting)
}

func connectHonoursItsContext(t *test) {
	conn, err := t.backend.Connect(ended(t.Context()), rand.Text(), newMailbox())
	if err == nil {
		_ = conn.Close()
	}
	require.ErrorIs(t, err, context.Canceled)
}

func connOutlivesConnect(t *test) {
	a, b, _ := t.connect3() // the contexts of Connect have ended
	t.pause(short)
	t.handOver(a, b)
	b.has(b.epoch)
}

func sessionsAreTwo(t *test) {
	a := t.connect()
	ctx, cancel := a.command()
	defer cancel()
	conn, err := t.backend.Connect(ctx, a.id+"2", newMailbox())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	b := &session{id: a.id + "2", conn: conn, mail: newMailbox()}
	b.remote = b.bind(t, t.name)
	a.take(1)
	require.Equal(t, backend.Waiting, b.acquire(2).Status)
	require.Equal(t, backend.Nothing, b.release(2))
	require.False(t, b.renew(1, long))
	a.has(1)
}

// If the outcome of an error is not unknown, nothing has happened.
func aCommandIsHonest(t *test) {
	a, b, _ := t.connect3()
	gone := ended(t.Context())
	_, err := a.raw.Acquire(gone, request(1, nil))
	require.Error(t, err)
	require.False(t, backend.Refused(err))
	if !backend.OutcomeUnknown(err) {
		a.free()
	}
	b.acquire(1, barge)
	b.force()
	b.take(2)
	_, err = b.raw.Release(gone, backend.ReleaseRequest{Epoch: 2})
	require.Error(t, err)
	require.False(t, backend.Refused(err))
	if !backend.OutcomeUnknown(err) {
		b.has(2)
	}
}

// ended returns a context that has ended.
func ended(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}
