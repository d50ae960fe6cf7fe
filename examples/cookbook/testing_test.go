package cookbook

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/backend/backendtest"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// The tests that docs/testing.md names.

func TestTwoProcessesSpendOneAfterTheOther(t *testing.T) {
	server := redistest.Start(t) // in this process, on a port of its own; closed when the test ends
	ledger := newLedger()        // notices two who are in the section at once
	ledger.balance["ada"] = 100
	var all sync.WaitGroup
	for range 2 { // a session is what a process has: two of them are two processes
		session, err := reentrant.NewSession(server.Backend(), reentrant.WithLease(time.Minute),
			reentrant.WithHeartbeat(20*time.Second)) // no hold ends because the machine is busy
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, session.Close(context.Background())) })
		for range 10 {
			all.Go(func() {
				for range 5 {
					assert.NoError(t, Spend(t.Context(), session, ledger, "ada", 1))
				}
			})
		}
	}
	all.Wait()
	assert.Zero(t, ledger.overlap)
	assert.Zero(t, ledger.balance["ada"])
}

// anyRedis is the Redis that REENTRANT_REDIS names, else an embedded one.
func anyRedis(t *testing.T) *redisbackend.Backend {
	url := os.Getenv("REENTRANT_REDIS")
	if url == "" {
		return redistest.Start(t).Backend()
	}
	b, err := redisbackend.Open(t.Context(), url, redisbackend.WithPrefix(rand.Text()+":")) // others may use it too
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

func TestALockOnWhateverRedisThereIs(t *testing.T) {
	session, err := reentrant.NewSession(anyRedis(t))
	require.NoError(t, err)
	lock := session.NewLock("work")
	require.NoError(t, Plain(t.Context(), lock, func(ctx context.Context) error {
		assert.Equal(t, 1, lock.HoldCount(ctx))
		return nil
	}))
	require.NoError(t, session.Close(t.Context()))
}

func TestAWaiterGetsTheLockAfterUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redistest.InBubble(t)
		mine, theirs := process(t, server).NewLock("work"), process(t, server).NewLock("work")
		require.NoError(t, mine.Lock(t.Context()))
		got := make(chan error)
		go func() { got <- theirs.Do(t.Context(), func(context.Context) error { return nil }) }()
		synctest.Wait() // now the other stands in line
		state, err := mine.Inspect(t.Context())
		require.NoError(t, err)
		assert.Len(t, state.Waiting, 1)
		require.NoError(t, mine.Unlock(t.Context()))
		require.NoError(t, <-got)
	})
}

// flush makes Redis forget every lock, as a failover does that lost the last writes.
func flush(t *testing.T, server *redistest.Server) {
	t.Helper()
	client := server.Client()
	require.NoError(t, client.Do(t.Context(), client.B().Flushall().Build()).Error())
}

func TestTheWorkEndsWhenTheLockIsLost(t *testing.T) {
	server := redistest.Start(t)
	lock := process(t, server).NewLock("work")
	err := lock.Do(t.Context(), func(ctx context.Context) error {
		flush(t, server)
		assert.ErrorIs(t, lock.Verify(ctx), reentrant.ErrLost) // asks now, and does not wait for the next renewal
		<-ctx.Done()                                           // the work that is tested
		return nil
	})
	require.ErrorIs(t, err, reentrant.ErrLost)
}

func TestTheWorkEndsWhenRedisIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // virtual time: see below
		server := redistest.InBubble(t)
		err := process(t, server).NewLock("work").Do(t.Context(), func(ctx context.Context) error {
			server.Close() // and it does not come back
			<-ctx.Done()   // when the lease ends, before Redis could have given the lock to another
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, reentrant.ErrLost)
	})
}

func TestStepsAreTakenForHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redistest.InBubble(t)
		lock := process(t, server).NewLock("work")
		steps := 0
		err := Every(t.Context(), lock, time.Hour, func(ctx context.Context) error {
			if steps++; steps == 5 {
				flush(t, server)
			}
			return nil
		})
		require.ErrorIs(t, err, reentrant.ErrLost)
		assert.Equal(t, 5, steps)
	})
}

func TestAnotherProcessTakesOverWhenTheLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redistest.InBubble(t)
		client, err := rueidis.NewClient(server.ClientOption()) // of a process that loses its connections
		require.NoError(t, err)
		backend, err := redisbackend.New(client)
		require.NoError(t, err)
		session, err := reentrant.NewSession(backend, reentrant.WithLease(time.Minute))
		require.NoError(t, err)
		defer func() { _ = session.Close(context.Background()) }()
		mine, theirs := session.NewLock("work"), process(t, server).NewLock("work")

		require.NoError(t, mine.Lock(t.Context()))
		ends := time.Now().Add(time.Minute)
		client.Close()
		<-mine.Lost(t.Context())
		assert.True(t, time.Now().Before(ends), "the work ends before another's begins")
		require.NoError(t, theirs.Lock(t.Context()))
		assert.WithinRange(t, time.Now(), ends, ends.Add(time.Second))
		require.NoError(t, theirs.Unlock(t.Context()))
	})
}

// lostAfter is a Section that is lost after a while.
type lostAfter time.Duration

func (l lostAfter) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	inside, cancel := context.WithTimeoutCause(ctx, time.Duration(l), reentrant.ErrLost)
	defer cancel()
	err := fn(inside)
	if errors.Is(context.Cause(inside), reentrant.ErrLost) {
		err = errors.Join(err, reentrant.ErrLost) // as Unlock would say
	}
	return err
}

func TestStepsAreTakenUntilTheSectionIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // ten hours, in no time
		steps := 0
		err := Every(t.Context(), lostAfter(10*time.Hour+time.Minute), time.Hour, func(context.Context) error {
			steps++
			return nil
		})
		require.ErrorIs(t, err, reentrant.ErrLost)
		assert.Equal(t, 10, steps)
	})
}

func TestASessionOnYourOwnBackend(t *testing.T) {
	testsize.FullOnly(t) // yours would need no such line: here redisbackend's tests run the same suite
	newBackend := func(t *testing.T) backend.Backend {
		return redistest.InBubble(t).Backend() // here: yours
	}
	backendtest.Run(t, newBackend, backendtest.InBubble())
}
