package redisbackend_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// An Unlock that keeps the lock and a Lock that re-enters it send the same command. The error names the method that was called.
func TestAnErrorNamesTheCallAndNotTheCommand(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	session, err := reentrant.NewSession(server.Backend(), calm...) // no renewal comes first: it would show the loss
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close(t.Context()) })
	l := session.NewLock("x")
	require.NoError(t, l.Lock(t.Context()))
	require.NoError(t, l.Lock(t.Context()))
	require.NoError(t, client.Do(t.Context(), client.B().Set().Key("x").Value("no lock").Build()).Error())
	for call, err := range map[string]error{
		"lock": l.Lock(t.Context()), "unlock": l.Unlock(t.Context()), "verify": l.Verify(t.Context()),
		"await": l.NewCondition("ready").Await(t.Context()), "signal": l.NewCondition("ready").Signal(t.Context()),
	} {
		require.Error(t, err, call)
		assert.Regexp(t, `^reentrant: `+call+` "x": (redisbackend: |the key "x" holds a Redis string, )`, err.Error())
		assert.NotRegexp(t, regexp.MustCompile(`: (acquire|reenter|release|inspect|await|signal): `), err.Error())
	}
}

// If the server cannot be asked, every call returns the same sentinel error.
func TestAServerThatCannotBeReachedIsUnavailable(t *testing.T) {
	server := redisserver.Start(t)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	b, err := redisbackend.New(client)
	require.NoError(t, err)
	conn, err := b.Connect(t.Context(), "s", newMember())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	remote, err := conn.Bind("lock")
	require.NoError(t, err)
	server.Stop()
	_, acquire := remote.Acquire(t.Context(), request(1))
	_, release := remote.Release(t.Context(), backend.ReleaseRequest{Epoch: 1})
	_, inspect := remote.Inspect(t.Context())
	renewals := []backend.Renewal{{Remote: remote, Epoch: 1, Lease: time.Minute}}
	conn.Renew(t.Context(), renewals)
	_, connect := b.Connect(t.Context(), "t", newMember())
	_, open := redisbackend.Open(t.Context(), "redis://"+server.Addr())
	for call, err := range map[string]error{"acquire": acquire, "release": release, "inspect": inspect,
		"renew": renewals[0].Err, "connect": connect, "open": open} {
		require.ErrorIs(t, err, backend.ErrUnavailable, call)
		assert.False(t, backend.Refused(err), call)
	}
}
