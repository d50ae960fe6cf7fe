package redisbackend_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
		assert.Regexp(t, `^reentrant: `+call+` "x": redisbackend: `, err.Error())
		assert.NotRegexp(t, regexp.MustCompile(`: (acquire|reenter|release|inspect|await|signal): `), err.Error())
	}
}
