package redisbackend_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// Sessions with and without scripts share a lock, its queue and its conditions.
func TestPlainSharesLocksWithScripts(t *testing.T) {
	addr := redisserver.Start(t).Addr()
	with, err := redisbackend.New(connect(t, addr))
	require.NoError(t, err)
	without, err := redisbackend.New(connect(t, addr), redisbackend.WithoutScripts())
	require.NoError(t, err)
	// Between sessions there is no happens-before edge, as there is none between processes.
	var inside, last, turn atomic.Uint64
	var wg sync.WaitGroup
	for _, b := range []reentrant.Backend{with, without, with, without} {
		s := newSession(t, b)
		for range 3 {
			wg.Go(func() {
				l := s.NewLock("shared")
				for range 30 {
					if !assert.NoError(t, l.Lock(t.Context())) {
						return
					}
					assert.Equal(t, uint64(1), inside.Add(1))
					token, err := l.Token(t.Context())
					assert.NoError(t, err)
					assert.Greater(t, uint64(token), last.Swap(uint64(token)))
					inside.Add(^uint64(0))
					assert.NoError(t, l.Unlock(t.Context()))
				}
			})
		}
	}
	wg.Wait()

	one, two := newSession(t, with).NewLock("turn"), newSession(t, without).NewLock("turn")
	play := func(l *reentrant.Lock, mine uint64) {
		defer wg.Done()
		c := l.NewCondition("changed")
		assert.NoError(t, l.Lock(t.Context()))
		for turn.Load() < 20 {
			for turn.Load() < 20 && turn.Load()%2 != mine {
				assert.NoError(t, c.Await(t.Context()))
			}
			turn.Add(1)
			assert.NoError(t, c.Signal(t.Context()))
		}
		assert.NoError(t, l.Unlock(t.Context()))
	}
	wg.Add(2)
	go play(one, 0)
	go play(two, 1)
	wg.Wait()
}

// Who reads the same state at the same time does not get the same lock.
func TestPlainTakesALockOnce(t *testing.T) {
	addr := redisserver.Start(t).Addr()
	var members []*member
	for i := range 4 {
		b, err := redisbackend.New(connect(t, addr), redisbackend.WithoutScripts())
		require.NoError(t, err)
		members = append(members, (&site{T: t, b: b, name: "lock"}).join(text(int64(i))))
	}
	for i := range 20 {
		var taken atomic.Int32
		var wg sync.WaitGroup
		for _, m := range members {
			m.remote = m.bind(text(int64(i)))
			wg.Go(func() {
				reply, err := m.remote.Acquire(t.Context(), request(uint64(i+1)))
				if assert.NoError(t, err) && reply.Status == reentrant.Granted {
					taken.Add(1)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, taken.Load())
	}
}

// No script is run, on a server that would refuse it.
func TestPlainNeedsNoScripts(t *testing.T) {
	s := &site{T: t, name: "lock", client: connect(t, redisserver.Start(t).Addr())}
	s.run("ACL", "SETUSER", "plain", "on", ">pw", "~*", "&*", "+@all", "-@scripting")
	client := connect(t, redisserverAddr(s), password("pw"), func(o *rueidis.ClientOption) { o.Username = "plain" })
	scripted, err := redisbackend.New(client)
	require.NoError(t, err)
	_, err = reentrant.NewSession(scripted)
	require.True(t, reentrant.Refused(err), "%v", err)

	b, err := redisbackend.New(client, redisbackend.WithoutScripts())
	require.NoError(t, err)
	l := newSession(t, b).NewLock("x")
	require.NoError(t, l.Lock(t.Context()))
	require.NoError(t, l.Lock(t.Context()))
	require.NoError(t, l.Verify(t.Context()))
	require.NoError(t, l.Unlock(t.Context()))
	require.NoError(t, l.Unlock(t.Context()))
	stats, err := s.do("INFO", "commandstats").ToString()
	require.NoError(t, err)
	for line := range strings.Lines(stats) {
		if strings.HasPrefix(line, "cmdstat_eval") {
			assert.Contains(t, line, "calls=0", "only what was refused")
		}
	}
}

func TestPlainWithReplicasIsRefused(t *testing.T) {
	client := connect(t, redisserver.Start(t).Addr())
	_, err := redisbackend.New(client, redisbackend.WithoutScripts(), redisbackend.WithReplicas(1, time.Second))
	assert.ErrorContains(t, err, "WithReplicas needs scripts")
}
