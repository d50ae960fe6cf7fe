package reentrant_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/internal/protocol"
	"github.com/relock-go/relock/reentrant"
)

const (
	// grantTTL is the lease that sessions with the default options request for a pushed grant.
	grantTTL = 3 * reentrant.DefaultHeartbeat
)

// A pushed grant is trusted for no longer than its session requested. One with a longer TTL, or more tokens, is forged:
// the session asks the server.
func TestAGrantOfMoreThanAskedIsConfirmed(t *testing.T) {
	for name, forged := range map[string]protocol.Message{
		"a little longer": {First: 7, Last: 7, TTL: grantTTL + 2*time.Millisecond},
		"for years":       {First: 7, Last: 7, TTL: 1e11 * time.Millisecond},
		"more tokens":     {First: 7, Last: 8, TTL: grantTTL},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				one, two := newSession(t, b), newSession(t, b)
				l, m := one.NewLock("x"), two.NewLock("x")
				require.NoError(t, l.Lock(owner(t, "a")))
				got := inBackground(func() error { return m.Lock(owner(t, "b")) })
				sent := b.Count(memory.Acquire)
				forged.Kind, forged.Name, forged.Epoch = protocol.Granted, "x", 1
				b.Publish(two.ID(), forged)
				synctest.Wait()
				assert.Empty(t, got, "the other session has the lock")
				assert.Equal(t, sent+1, b.Count(memory.Acquire), "a copy asks the server")

				require.NoError(t, l.Unlock(owner(t, "a")))
				synctest.Wait()
				require.NoError(t, <-got)
				require.NoError(t, m.Verify(owner(t, "b")))
				require.NoError(t, m.Unlock(owner(t, "b")))
			})
		})
	}
}

// inBackground calls f in a goroutine. It returns when f blocks, or has put its result into the channel.
func inBackground(f func() error) chan error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	synctest.Wait()
	return result
}

// A pushed grant of units of a shared name can neither give more than was requested nor take units away. A session that
// has units confirms each push, because it would lose those units if the pushed units did not exist.
func TestAGrantOfUnitsThatWereNotAskedForIsConfirmed(t *testing.T) {
	years := 1e11 * time.Millisecond
	for _, c := range []struct {
		has, units int
		ttl        time.Duration
	}{
		{0, 2, years}, {0, 2, grantTTL + 2*time.Millisecond}, {0, 1, grantTTL}, {0, 3, grantTTL}, {0, backend.AllUnits, grantTTL},
		{1, 3, years}, {1, 2, grantTTL}, {1, 3, grantTTL}, {1, 4, grantTTL}, {1, 1, grantTTL}, {1, 0, grantTTL},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				one, two := newSession(t, b), newSession(t, b)
				theirs, ours := one.NewSemaphore("x", 4), two.NewSemaphore("x", 4)
				require.NoError(t, theirs.Acquire(t.Context(), 4-c.has))
				lost := make(<-chan struct{})
				if c.has > 0 {
					require.NoError(t, ours.Acquire(t.Context(), c.has))
					lost = ours.Lost()
				}
				got := inBackground(func() error { return ours.Acquire(t.Context(), 2) })
				m := protocol.Message{Kind: protocol.SharedGrant, Name: "x", Units: c.units, First: 2, Last: 2, TTL: c.ttl}
				for m.Epoch = range uint64(10) {
					b.Publish(two.ID(), m)
				}
				time.Sleep(grantTTL)
				assert.Empty(t, got, "the other session has the permits")
				select {
				case <-lost:
					assert.Fail(t, "the session has its permit")
				default:
				}

				require.NoError(t, theirs.Release(t.Context(), 4-c.has))
				require.NoError(t, <-got)
				require.NoError(t, ours.Release(t.Context(), 2+c.has))
			})
		})
	}
}

// The message that a hold was resumed elsewhere is only a hint: the server has to confirm it, and only holds of
// portable owners can be resumed.
func TestAForgedMoveEndsNoHold(t *testing.T) {
	for name, c := range map[string]struct {
		ctx  func(t *testing.T) context.Context
		opts []reentrant.LockOption
		asks int
	}{
		"an owner of one session": {func(t *testing.T) context.Context { return owner(t, "a") }, nil, 0},
		"with a fixed lease":      {func(t *testing.T) context.Context { return owner(t, "a") }, []reentrant.LockOption{reentrant.WithFixedLease(time.Minute)}, 0},
		"a portable owner":        {order, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				s := newSession(t, b)
				l, ctx := s.NewLock("x", c.opts...), c.ctx(t)
				require.NoError(t, l.Lock(ctx))
				lost := l.Lost(ctx)
				for epoch := range uint64(10) {
					b.Publish(s.ID(), protocol.Message{Kind: protocol.Taken, Name: "x", Epoch: epoch + 1})
					synctest.Wait()
				}
				select {
				case <-lost:
					require.Fail(t, "the hold was ended by a message")
				default:
				}
				assert.Equal(t, c.asks, b.Count(memory.Inspect))
				require.NoError(t, l.Verify(ctx))
				require.NoError(t, l.Unlock(ctx))
				for range 2 { // what the messages said is not believed of later holds, either
					require.NoError(t, l.Lock(ctx))
					require.NoError(t, l.Unlock(ctx))
				}
				synctest.Wait()
				assert.Equal(t, c.asks+1, b.Count(memory.Inspect))
			})
		})
	}
}

// A session releases a grant that it did not ask for. That must not release what the session has, or is about to get.
func TestAForgedGrantGivesBackNoHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b, reentrant.WithCohort(), reentrant.WithLinger(time.Minute))
		l := s.NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, s.NewLock("y").Lock(t.Context())) // uses an epoch
		for _, epoch := range []uint64{2, 1000} {
			b.Publish(s.ID(), protocol.Message{Kind: protocol.Granted, Name: "x", Epoch: epoch, First: 7, Last: 7, TTL: grantTTL})
		}
		synctest.Wait()
		require.NoError(t, l.Lock(t.Context()))
		assert.NoError(t, l.Verify(t.Context()), "the lock lingered all the time")
		require.NoError(t, l.Unlock(t.Context()))

		b.SetFault(memory.Script(memory.Release, memory.Delay(time.Second)))
		b.Publish(s.ID(), protocol.Message{Kind: protocol.Granted, Name: "z", Epoch: 1000, First: 7, Last: 7, TTL: grantTTL})
		synctest.Wait()
		z := s.NewLock("z")
		require.NoError(t, z.Lock(t.Context()))
		time.Sleep(2 * time.Second)
		assert.NoError(t, z.Verify(t.Context()), "a release of a later epoch would have released it")
		require.NoError(t, z.Unlock(t.Context()))
	})
}

// A session gives back a forged grant of an epoch that it used for another lock, and the command that gives it back comes
// late: the owner of an earlier ticket has been signalled and granted the lock by then.
func TestAForgedGrantDoesNotGiveBackTheLockOfASignalledOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b), newSession(t, b)
		b.SetFault(memory.Script(memory.Release, memory.Delay(500*time.Millisecond)))
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			ctx, l := owner(t, "waiter"), s.NewLock("x")
			assert.NoError(t, l.Lock(ctx))
			assert.NoError(t, l.NewCondition("ready").Await(ctx))
			time.Sleep(time.Second)
			assert.NoError(t, l.Verify(ctx))
			assert.NoError(t, l.Unlock(ctx))
		}()
		synctest.Wait()
		require.NoError(t, s.NewLock("y").Lock(owner(t, "another"))) // uses epoch 3
		b.Publish(s.ID(), protocol.Message{Kind: protocol.Granted, Name: "x", Epoch: 3, First: 7, Last: 7, TTL: grantTTL})
		synctest.Wait()
		ctx, l := owner(t, "signaller"), other.NewLock("x")
		require.NoError(t, l.Lock(ctx))
		require.NoError(t, l.NewCondition("ready").Signal(ctx))
		require.NoError(t, l.Unlock(ctx))
		<-returned
	})
}

// A forged grant of the lock of the conditions must not make the session give that lock back while a signal, whose reply was
// lost, is sent again: the second copy must find the lock.
func TestAForgedGrantDoesNotGiveTheConditionsBackWhileTheyAreUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		b.SetFault(memory.Script(memory.Signal, memory.Verdict{Mute: true, Late: 200 * time.Millisecond}))
		time.AfterFunc(100*time.Millisecond, func() {
			assert.NoError(t, s.NewLock("y").Lock(owner(t, "another")))
			for epoch := range uint64(10) {
				b.Publish(s.ID(), protocol.Message{Kind: protocol.Granted, Name: backend.ConditionsOf("x"), Epoch: epoch, First: 7, Last: 7, TTL: grantTTL})
			}
		})
		writeSignals(t, s)
	})
}

// A message about an epoch that the session has not reached yet is forged. If the session believed it, it would count for a
// later hold.
func TestForgedEpochsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b, reentrant.WithCohort(), reentrant.WithLinger(time.Minute))
		l := s.NewLock("x")
		require.NoError(t, l.Lock(t.Context()))
		b.Publish(s.ID(), protocol.Message{Kind: protocol.Wanted, Name: "x", Epoch: 1000})
		synctest.Wait()
		require.NoError(t, l.Unlock(t.Context()))
		sent := b.Commands()
		require.NoError(t, l.Lock(t.Context()))
		assert.Equal(t, sent, b.Commands(), "the hold lingered: no session wants it")
		require.NoError(t, l.Unlock(t.Context()))
	})
}
