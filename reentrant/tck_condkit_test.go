package reentrant_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// A monitor is a lock with conditions: a Lock, or an RWLock with its write side.
type monitor interface {
	Lock(ctx context.Context) error
	Unlock(ctx context.Context) error
	HoldCount(ctx context.Context) int
	NewCondition(name string) *reentrant.Condition
	HasWaiters(c *reentrant.Condition) (bool, error)
	WaitQueueLength(c *reentrant.Condition) (int, error)
	WaitingOwners(c *reentrant.Condition) ([]reentrant.Owner, error)
	QueuedOwners() []reentrant.Owner
	HasQueuedOwners() bool
}

// A monitorKind says how a session makes a monitor.
type monitorKind struct {
	fair bool
	make func(s *reentrant.Session, name string) monitor
}

var monitorKinds = map[string]monitorKind{
	"fair": {true, func(s *reentrant.Session, name string) monitor { return s.NewLock(name) }},
	"unfair": {false, func(s *reentrant.Session, name string) monitor {
		return s.NewLock(name, reentrant.WithFairness(false))
	}},
	"write side": {true, func(s *reentrant.Session, name string) monitor { return s.NewRWLock(name) }},
}

// A condKit is what a test of conditions works with: a session, its monitor x and a condition of it.
type condKit struct {
	monitor
	monitorKind
	cond    *reentrant.Condition
	session *reentrant.Session
	backend *memory.Backend
}

// condKits runs a test on every kind of monitor. A test must leave it free and without waiters.
func condKits(t *testing.T, f func(t *testing.T, k condKit)) {
	t.Helper()
	for name, kind := range monitorKinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newCondKit(t, memory.New(), kind)
				f(t, k)
				k.nothingStays(t)
			})
		})
	}
}

// newCondKit makes a kit in a session of its own.
func newCondKit(t *testing.T, b *memory.Backend, kind monitorKind) condKit {
	t.Helper()
	s := newSession(t, b)
	m := kind.make(s, "x")
	return condKit{monitor: m, monitorKind: kind, cond: m.NewCondition("ready"), session: s, backend: b}
}

// nothingStays checks that the lock is free, and that the session has forgotten it.
func (k condKit) nothingStays(t *testing.T) {
	t.Helper()
	k.backend.SetFault(nil)
	time.Sleep(time.Second)
	synctest.Wait()
	assert.Empty(t, k.QueuedOwners())
	assert.Zero(t, reentrant.Entries(k.session))
	assert.False(t, reentrant.HasMonitors(k.session))
	assert.Empty(t, k.backend.Left("x"))
	assert.Empty(t, k.backend.Left("relock:conditions:x"))
}

// locked makes the caller hold the lock once, and returns the Unlock.
func (k condKit) locked(t *testing.T) (unlock func()) {
	t.Helper()
	require.NoError(t, k.Lock(t.Context()))
	return func() { assert.NoError(t, k.Unlock(t.Context())) }
}

// signals makes another owner signal a waiter.
func (k condKit) signals(t *testing.T) {
	t.Helper()
	ctx := owner(t, "signaller")
	require.NoError(t, k.Lock(ctx))
	assert.NoError(t, k.cond.Signal(ctx))
	assert.NoError(t, k.Unlock(ctx))
}

// waiters returns the owners that wait for the condition. The caller holds the lock.
func (k condKit) waiters(t *testing.T) []reentrant.Owner {
	t.Helper()
	owners, err := k.WaitingOwners(k.cond)
	require.NoError(t, err)
	return owners
}

// queues starts a thread that acquires the lock once and releases it.
func (k condKit) queues(t *testing.T) thread {
	t.Helper()
	return start(t, func(ctx context.Context) error {
		if err := k.Lock(ctx); err != nil {
			return err
		}
		return k.Unlock(ctx)
	})
}

// requireQueue checks which threads wait for the lock in this process.
func (k condKit) requireQueue(t *testing.T, want ...thread) {
	t.Helper()
	synctest.Wait()
	var owners []reentrant.Owner
	for _, th := range want {
		owners = append(owners, th.Owner)
	}
	require.Equal(t, owners, k.QueuedOwners())
	require.Equal(t, len(want) > 0, k.HasQueuedOwners())
}
