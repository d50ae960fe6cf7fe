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

// An Unlock that leaves a hold sends the same command as a Lock that adds one. The error names the call and not the command.
func TestAnErrorNamesTheCallAndNotTheCommand(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	session, err := reentrant.NewSession(server.Backend())
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
		assert.Regexp(t, `^reentrant: `+call+` "x": (redisbackend: |the name is in use as )`, err.Error())
		assert.NotRegexp(t, regexp.MustCompile(`: (acquire|reenter|release|inspect|await|signal): `), err.Error())
	}
}

// One sentinel says that a server could not be asked, whichever call finds it out.
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
