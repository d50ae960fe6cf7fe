package redisbackend_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// A lock never changes a key that belongs to something else. Its error says in plain words what the key holds.
func TestAnErrorSaysWhatAKeyHolds(t *testing.T) {
	each(t, func(t *testing.T, site *site) {
		for _, opts := range [][]redisbackend.Option{nil, {redisbackend.WithoutScripts()}} {
			b, err := redisbackend.New(site.client, opts...)
			require.NoError(t, err)
			s, err := reentrant.NewSession(b, calm...)
			require.NoError(t, err)
			defer func() { assert.NoError(t, s.Close(context.Background())) }()
			saysWhatAKeyHolds(t, site, s)
		}
	})
}

func saysWhatAKeyHolds(t *testing.T, site *site, s *reentrant.Session) {
	ctx, name := t.Context(), site.name+"-"
	keys := map[string][]string{"text": {"SET", name + "text", "x"}, "hash": {"HSET", name + "hash", "field", "x"}, "list": {"RPUSH", name + "list", "x"},
		"record": {"SET", "relock:{" + name + "record}:t:" + name + "record", "x"}}
	for _, command := range keys {
		site.run("DEL", command[1])
		site.run(command...)
	}
	l, rw, m := s.NewLock(name+"lock"), s.NewRWLock(name+"rw"), s.NewSemaphore(name+"sem", 2)
	require.NoError(t, l.Lock(ctx))
	require.NoError(t, rw.RLock(ctx))
	require.NoError(t, m.Acquire(ctx, 1))
	for key, found := range map[string]string{
		"text": "a Redis string", "hash": "a Redis hash of other data", "list": "a Redis list", "record": "a key with other data",
		"lock": "a lock", "rw": "a read-write lock", "sem": "a semaphore",
	} {
		for wanted, take := range map[string]func() error{
			"a lock":            func() error { return s.NewLock(name + key).Lock(ctx) },
			"a read-write lock": func() error { return s.NewRWLock(name + key).Lock(ctx) },
			"a semaphore":       func() error { return s.NewSemaphore(name+key, 2).Acquire(ctx, 1) },
		} {
			if found == wanted {
				continue
			}
			err := take()
			require.ErrorIs(t, err, reentrant.ErrWrongKind, "%s as %s", key, wanted)
			assert.True(t, reentrant.Refused(err))
			says := "the name is in use as " + found + ", not as " + wanted
			if strings.HasPrefix(found, "a Redis") {
				says = fmt.Sprintf("the key %q holds %s, not %s", name+key, found, wanted)
			}
			assert.ErrorContains(t, err, says)
			assert.NotContains(t, err.Error(), "WRONGTYPE")
		}
	}
	require.NoError(t, m.Release(ctx, 1))
	require.NoError(t, rw.RUnlock(ctx))
	require.NoError(t, orLater(l.Unlock)(ctx))
}
