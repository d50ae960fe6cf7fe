package redisbackend_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/redistest"
)

// FuzzOwners checks that Redis reports the holder's exact name, whatever bytes the name has. It checks this after an acquire,
// after a hand-over, and after a wait for a condition.
func FuzzOwners(f *testing.F) {
	for _, owner := range nasty {
		f.Add(owner, "other")
		f.Add("1", owner)
	}
	server := redistest.Start(f)
	var round atomic.Uint64
	f.Fuzz(func(t *testing.T, one, two string) {
		if len(one)+len(two) > 1<<16 {
			t.Skip()
		}
		s := &site{T: t, client: server.Client(), b: server.Backend(), name: "lock-" + text(int64(round.Add(1)))}
		a, b := s.join("a"), s.join("b")
		a.take(1, owned(one))
		require.Equal(t, one, a.inspect().Owner)
		b.wait(1, owned(two))
		_, err := a.conditions().Await(s.ctx(), backend.AwaitRequest{Condition: two, Epoch: 1, Ticket: 2, Owner: one, Holds: 1,
			Patience: patience, GrantTTL: grantTTL})
		require.NoError(t, err)
		b.granted()
		require.Equal(t, two, a.inspect().Owner)
		b.take(1, owned(two))
		reply, err := b.remote.Reenter(s.ctx(), backend.ReenterRequest{Epoch: 1, Owner: two, Op: 1, Holds: 2, Lease: lease})
		require.NoError(t, err)
		require.Equal(t, backend.ReenterReply{Holds: 2, First: reply.First}, reply)
		_, err = b.conditions().Signal(s.ctx(), backend.SignalRequest{Condition: two, Epoch: 1, Op: 2})
		require.NoError(t, err)
		require.Equal(t, backend.Released, b.release(1))
		a.granted()
		require.Equal(t, one, a.inspect().Owner)
		resumed, err := b.remote.(backend.Resumer).Resume(s.ctx(), backend.ResumeRequest{Epoch: 3, Owner: one, Lease: lease, NotAfter: time.Now().Add(limit)})
		require.NoError(t, err)
		assert.Equal(t, 1, resumed.Holds)
		require.Equal(t, one, a.inspect().Owner)
		require.Equal(t, "b", a.inspect().Session)
		require.Equal(t, backend.Released, b.release(3))
	})
}
