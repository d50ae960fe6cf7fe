package reentrant_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// A handle stores nothing about a name that its session has forgotten. Programs may have handles for names that they
// use once a day.
func TestAnIdleHandleIsSmall(t *testing.T) {
	const names = 2_000
	for kind, use := range map[string]func(ctx context.Context, s *reentrant.Session, name string) any{
		"read side": func(ctx context.Context, s *reentrant.Session, name string) any {
			l := s.NewRWLock(name)
			assert.NoError(t, l.RLock(ctx))
			assert.NoError(t, l.RUnlock(t.Context()))
			return l
		},
		"write side": func(ctx context.Context, s *reentrant.Session, name string) any {
			l := s.NewRWLock(name)
			assert.NoError(t, l.Lock(ctx))
			assert.NoError(t, l.Unlock(t.Context()))
			return l
		},
		"permits": func(ctx context.Context, s *reentrant.Session, name string) any {
			m := s.NewSemaphore(name, 2)
			assert.NoError(t, m.Acquire(ctx, 1))
			assert.NoError(t, m.Release(ctx, 1))
			return m
		},
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession(t, memory.New())
				handles := make([]any, names)
				for i := range handles {
					handles[i] = use(t.Context(), s, fmt.Sprint("name ", i))
				}
				for reentrant.SharedNames(s) > 0 {
					time.Sleep(reentrant.DefaultHeartbeat)
				}
				with, _ := inUse()
				require.Len(t, handles, names)
				clear(handles)
				without, _ := inUse()
				t.Logf("%d bytes per idle handle", (with-without)/names)
				if !raceEnabled {
					assert.LessOrEqual(t, (with-without)/names, int64(300))
				}
			})
		})
	}
}
