package redisbackend_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// Two processes wake each other by the conditions of a write side, with scripts and without.
func TestConditionsOfAWriteSideOnRedis(t *testing.T) {
	for name, opts := range map[string][]redisbackend.Option{
		"scripts":         {redisbackend.WithPrefix("app:")},
		"without scripts": {redisbackend.WithPrefix("app:"), redisbackend.WithoutScripts()},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *site) {
				full := false // guarded by the write side
				turn := func(client rueidis.Client, mine bool) <-chan error {
					b, err := redisbackend.New(client, opts...)
					require.NoError(t, err)
					session, err := reentrant.NewSession(b, calm...)
					require.NoError(t, err)
					t.Cleanup(func() { assert.NoError(t, session.Close(context.Background())) })
					l, done := session.NewRWLock("shop"), make(chan error, 1)
					changed := l.NewCondition("changed")
					go func() {
						done <- l.Do(t.Context(), func(ctx context.Context) error {
							for range 5 {
								for full != mine {
									if err := changed.Await(ctx); err != nil {
										return err
									}
								}
								full = !mine
								if err := changed.Signal(ctx); err != nil {
									return err
								}
							}
							return nil
						})
					}()
					return done
				}
				one, other := turn(s.client, false), turn(s.client, true)
				require.NoError(t, <-one)
				require.NoError(t, <-other)
				keys, err := s.do("KEYS", "*conditions*").AsStrSlice()
				require.NoError(t, err)
				for _, key := range keys {
					assert.True(t, strings.HasPrefix(key, "app:relock:"))
					ttl, err := s.do("PTTL", key).ToInt64()
					require.NoError(t, err)
					assert.NotEqual(t, int64(-1), ttl, "%s expires", key)
				}
			})
		})
	}
}
