package faults

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// An older copy of the server takes over. In this copy the owner of a hold still waits, so the server grants the hold again,
// under the same epoch, although another owner has had the lock since. Whatever reply first shows the second grant, the hold is
// lost, and the lock is free.
func TestAHoldThatIsGrantedAgainIsLost(t *testing.T) {
	for name, test := range map[string]struct {
		fixed  time.Duration
		learns func(*testing.T, *reentrant.Lock, context.Context, *cable)
	}{
		"Verify": {0, func(t *testing.T, l *reentrant.Lock, owner context.Context, _ *cable) {
			require.ErrorIs(t, l.Verify(owner), reentrant.ErrLost)
		}},
		"re-entry": {0, func(t *testing.T, l *reentrant.Lock, owner context.Context, _ *cable) {
			require.ErrorIs(t, l.Lock(owner), reentrant.ErrLost)
		}},
		"renewal":                    {0, func(*testing.T, *reentrant.Lock, context.Context, *cable) { time.Sleep(simLease / 3) }},
		"renewal after reconnecting": {0, reconnects},
		"check of a fixed lease":     {simLease, reconnects},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := redistest.InBubble(t)
				wire := newCable(server, rand.New(rand.NewPCG(1, 2)))
				wire.settle(true)
				first, second := lockThrough(t, nil, server), lockThrough(t, wire, server, reentrant.WithFixedLease(test.fixed))
				a, b := reentrant.WithOwner(t.Context(), "a"), reentrant.WithOwner(t.Context(), "b")
				grantedAgain(t, server, first, second, a, b)
				select {
				case <-second.Lost(b):
					t.Error("the session could not know yet")
				default:
				}
				test.learns(t, second, b, wire)
				synctest.Wait()
				select {
				case <-second.Lost(b):
				default:
					t.Error("the owner was not notified")
				}
				require.ErrorIs(t, second.Unlock(b), reentrant.ErrLost)
				began := time.Now()
				require.NoError(t, first.Lock(a))
				assert.Less(t, time.Since(began), time.Second, "the session gives back what it got")
			})
		})
	}
}

func reconnects(_ *testing.T, _ *reentrant.Lock, _ context.Context, wire *cable) {
	wire.reconnect()
	time.Sleep(simHeartbeat * 3 / 2) // until there are new connections
}

// In cohort mode the owners of a session use one hold, under tokens that rise without a command. Every reply is still about the
// same hold, so the hold is not lost.
func TestACohortThatUsesTokensKeepsItsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := reentrant.NewSession(redistest.InBubble(t).Backend(), reentrant.WithLease(simLease), reentrant.WithHeartbeat(simHeartbeat),
			reentrant.WithCohort(), reentrant.WithLinger(time.Minute))
		require.NoError(t, err)
		defer func() { assert.NoError(t, s.Close(t.Context())) }()
		l := s.NewLock("x")
		a, b := reentrant.WithOwner(t.Context(), "a"), reentrant.WithOwner(t.Context(), "b")
		var last backend.Token
		for i, owner := range []context.Context{a, b, a, b} {
			require.NoError(t, l.Lock(owner))
			token, err := l.Token(owner)
			require.NoError(t, err)
			if i > 0 {
				assert.Equal(t, last+1, token, "it is the same hold in Redis")
			}
			last = token
			time.Sleep(simLease) // the hold is renewed
			require.NoError(t, l.Verify(owner))
			require.NoError(t, l.Unlock(owner))
		}
	})
}

// grantedAgain lets the second owner get the lock. Then an older copy of the server takes over, in which the second owner still
// waits. The first owner gets the lock and gives it back, so the copy grants the second owner's session the lock once more. All
// connections stay open, so nothing shows the session that another copy has taken over.
func grantedAgain(t *testing.T, server *redistest.Server, first, second *reentrant.Lock, a, b context.Context) {
	require.NoError(t, first.Lock(a))
	got := make(chan error)
	go func() { got <- second.Lock(b) }()
	time.Sleep(time.Second)
	before := copied(t, server)
	require.NoError(t, first.Unlock(a))
	require.NoError(t, <-got)
	mine, err := second.Token(b)
	require.NoError(t, err)
	time.Sleep(time.Second)
	before.restore(t, server)
	require.NoError(t, first.Lock(a))
	other, err := first.Token(a)
	require.NoError(t, err)
	require.Greater(t, other, mine)
	time.Sleep(time.Second)
	require.NoError(t, first.Unlock(a))
	state, err := first.Inspect(t.Context())
	require.NoError(t, err)
	require.True(t, state.Locked)
	require.Greater(t, state.Token, other, "it was granted again")
}

// lockThrough returns a lock of a new session. If wire is not nil, it connects the session.
func lockThrough(t *testing.T, wire *cable, server *redistest.Server, opts ...reentrant.LockOption) *reentrant.Lock {
	through := server.Backend()
	if wire != nil {
		option := server.ClientOption()
		option.DialCtxFn = wire.dial
		client, err := rueidis.NewClient(option)
		require.NoError(t, err)
		t.Cleanup(wire.busy.Wait)
		t.Cleanup(client.Close)
		through, err = redisbackend.New(client)
		require.NoError(t, err)
	}
	s, err := reentrant.NewSession(through, reentrant.WithLease(simLease), reentrant.WithHeartbeat(simHeartbeat))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Close(ctx) // Close does not release what a failed test still holds
	})
	return s.NewLock("x", opts...)
}
