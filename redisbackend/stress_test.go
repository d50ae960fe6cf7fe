package redisbackend_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/relock-go/relock/backend"
)

// Sessions take turns at a lock while their connections are closed and the scripts are deleted. At most one session has the
// lock at any time, tokens rise, and every owner acquires the lock.
func TestStressSessionsExcludeEachOther(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		const sessions, sections = 4, 60
		var inside, done atomic.Int32
		var last atomic.Uint64
		var all sync.WaitGroup
		for i := range sessions {
			m := s.join("s" + text(int64(i)))
			all.Go(func() {
				defer done.Add(1)
				epoch := uint64(0)
				for range sections {
					token := m.enter(&epoch)
					assert.Equal(t, int32(1), inside.Add(1), "alone inside")
					assert.Greater(t, token, last.Swap(token))
					inside.Add(-1)
					m.leave(epoch)
				}
			})
		}
		for done.Load() < sessions {
			switch rand.N(4) {
			case 0:
				_ = s.do("SCRIPT", "FLUSH").Error()
			case 1: // the embedded Redis does not know these commands
				_ = s.do("CLIENT", "KILL", "TYPE", "pubsub").Error()
			case 2:
				_ = s.do("CLIENT", "KILL", "TYPE", "normal").Error()
			}
			<-time.After(rand.N(20 * time.Millisecond)) // the time between two faults
		}
		all.Wait()
	})
}

// enter acquires the lock. It sends an attempt, and then copies of the attempt until one is granted or the attempt is too old.
func (m *member) enter(epoch *uint64) uint64 {
	*epoch++
	for m.Context().Err() == nil {
		reply, err := m.remote.Acquire(m.ctx(), request(*epoch, queue, func(r *backend.AcquireRequest) {
			r.Lease, r.GrantTTL, r.Patience = time.Hour, time.Hour, time.Hour // no hold ends while its owner stands still
		}))
		switch {
		case err != nil:
			assert.False(m, backend.Refused(err), "%v", err)
		case reply.Status == backend.Granted:
			return uint64(reply.First)
		case reply.Status == backend.Stale:
			*epoch++
		default:
			select {
			case g := <-m.grants:
				if g.Epoch == *epoch {
					return uint64(g.First)
				}
			case <-m.resumed:
			case <-time.After(20 * time.Millisecond): // the heartbeat
			}
		}
	}
	return 0
}

// leave releases the lock, and repeats the command until there is a reply.
func (m *member) leave(epoch uint64) {
	for m.Context().Err() == nil {
		_, err := m.remote.Release(m.ctx(), backend.ReleaseRequest{Epoch: epoch, Until: time.Now().Add(10 * time.Second)})
		if err == nil {
			return
		}
		assert.False(m, backend.Refused(err), "%v", err)
	}
}
