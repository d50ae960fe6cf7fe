package backendtest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases with many sessions at once.
var togetherCases = []testCase{
	{"Together/OneHolderAtATime", oneHolderAtATime},
	{"Together/ALockIsTakenOnce", aLockIsTakenOnce},
}

// Several sessions contend for several locks. Each session has one goroutine for each lock, so it has at most one attempt for a
// lock under way. All goroutines of a session use its Conn.
func oneHolderAtATime(t *test) {
	const sessions, locks, sections = 4, 3, 40
	sites := make([]site, locks)
	var running sync.WaitGroup
	for range sessions {
		s := t.connect()
		var epochs atomic.Uint64
		for i := range sites {
			r := s.bind(t, fmt.Sprint(t.name, i))
			running.Go(func() {
				for range sections {
					if !s.section(r, epochs.Add(1), &sites[i]) {
						return
					}
				}
			})
		}
	}
	running.Wait()
	for i := range sites {
		if !t.Failed() {
			require.EqualValues(t, sessions*sections, sites[i].entries.Load())
		}
	}
}

// A site is a critical section that a lock protects. It counts the goroutines inside, and keeps the highest token.
type site struct {
	inside  atomic.Int64
	token   atomic.Uint64
	entries atomic.Int64
}

// section takes the lock, enters and leaves the site, and releases the lock. It returns false if one of these failed. It runs
// on a goroutine of its own, where require must not be used.
func (s *session) section(r *remote, epoch uint64, at *site) bool {
	ctx, cancel := context.WithTimeout(s.t.Context(), 3*limit) // this includes the wait for other sessions
	defer cancel()
	token, err := r.lock(ctx, s.mail, epoch)
	if !assert.NoError(s.t, err) {
		return false
	}
	ok := assert.EqualValues(s.t, 1, at.inside.Add(1), "holders inside")
	ok = assert.Greater(s.t, uint64(token), at.token.Swap(uint64(token)), "tokens") && ok
	if epoch%4 == 0 {
		linger(ctx) // so that other sessions begin to wait, or would get in
	}
	st, err := r.raw.Inspect(ctx)
	ok = assert.NoError(s.t, err) && assert.Equal(s.t, s.id, st.Session) && assert.Equal(s.t, token, st.Token) && ok
	at.entries.Add(1)
	ok = assert.EqualValues(s.t, 0, at.inside.Add(-1), "holders left inside") && ok
	result, err := r.raw.Release(ctx, backend.ReleaseRequest{Epoch: epoch})
	return assert.NoError(s.t, err) && assert.Equal(s.t, backend.Released, result) && ok
}

// linger stays inside for a moment.
func linger(ctx context.Context) {
	timer := time.NewTimer(time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// lock waits for the lock as a session does: it is parked until the message comes, and sends heartbeats.
func (r *remote) lock(ctx context.Context, mail *mailbox, epoch uint64) (backend.Token, error) {
	const heartbeat = 200 * time.Millisecond
	for {
		reply, err := r.raw.Acquire(ctx, request(epoch, []with{queue}))
		switch {
		case err != nil:
			return 0, err
		case reply.Status == backend.Granted:
			return reply.First, nil
		case reply.Status == backend.Stale:
			return 0, fmt.Errorf("epoch %d is stale although it never had the lock", epoch)
		}
		if g, ok := mail.wait(ctx, r.name, epoch, heartbeat); ok {
			return g.First, nil
		}
	}
}

// Many sessions try at the same moment to take a free lock.
func aLockIsTakenOnce(t *test) {
	const sessions, rounds = 6, 20
	var all []*session
	for range sessions {
		all = append(all, t.connect())
	}
	for round := range uint64(rounds) {
		replies := make([]backend.AcquireReply, sessions)
		var running sync.WaitGroup
		for i, s := range all {
			running.Go(func() {
				var err error
				replies[i], err = s.raw.Acquire(t.Context(), request(round+1, nil))
				assert.NoError(t, err)
			})
		}
		running.Wait()
		winners := 0
		for i, s := range all {
			if replies[i].Status == backend.Granted {
				winners++
				require.Equal(t, backend.Released, s.release(round+1))
			}
		}
		require.Equal(t, 1, winners)
	}
}
