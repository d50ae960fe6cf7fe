package reentrant_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// moded is the part of an event that says which kind and mode of lock it is about.
type moded struct {
	kind reentrant.EventKind
	lock string
	mode reentrant.Mode
}

func modesOf(events []reentrant.Event) (all []moded) {
	for _, e := range events {
		all = append(all, moded{e.Kind, e.Lock, e.Mode})
	}
	return all
}

func TestAnEventSaysWhichModeOfALockItIsAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b := &diary{}, memory.New()
		s, other := newSession(t, b, reentrant.WithObserver(d)), newSession(t, b)
		l, book, pool := s.NewLock("lock"), s.NewRWLock("book"), s.NewSemaphore("pool", 1)
		ctx := t.Context()
		for _, take := range []func() error{
			func() error { return l.Lock(ctx) }, func() error { return l.Unlock(ctx) },
			func() error { return book.RLock(ctx) }, func() error { return book.RLock(ctx) },
			func() error { return book.RUnlock(ctx) }, func() error { return book.RUnlock(ctx) },
			func() error { return book.Lock(ctx) }, func() error { return book.Lock(ctx) },
			func() error { return book.Unlock(ctx) }, func() error { return book.Unlock(ctx) },
			func() error { return pool.Acquire(ctx, 1) }, func() error { return pool.Release(ctx, 1) },
		} {
			require.NoError(t, take())
		}
		assert.Equal(t, []moded{
			{reentrant.EventAcquired, "lock", reentrant.ModeLock}, {reentrant.EventReleased, "lock", reentrant.ModeLock},
			{reentrant.EventAcquired, "book", reentrant.ModeRead}, {reentrant.EventReentered, "book", reentrant.ModeRead},
			{reentrant.EventReleased, "book", reentrant.ModeRead},
			{reentrant.EventAcquired, "book", reentrant.ModeWrite}, {reentrant.EventReentered, "book", reentrant.ModeWrite},
			{reentrant.EventReleased, "book", reentrant.ModeWrite},
			{reentrant.EventAcquired, "pool", reentrant.ModePermits}, {reentrant.EventReleased, "pool", reentrant.ModePermits},
		}, modesOf(d.take()))

		require.NoError(t, other.NewRWLock("book").Lock(ctx))
		require.NoError(t, other.NewSemaphore("pool", 1).Acquire(ctx, 1))
		for _, try := range []func() (bool, error){
			func() (bool, error) { return book.TryRLock(ctx) },
			func() (bool, error) { return book.TryLock(ctx) },
			func() (bool, error) { return pool.TryAcquire(ctx, 1) },
		} {
			ok, err := try()
			require.NoError(t, err)
			require.False(t, ok)
		}
		assert.Equal(t, []moded{
			{reentrant.EventFailed, "book", reentrant.ModeRead}, {reentrant.EventFailed, "book", reentrant.ModeWrite},
			{reentrant.EventFailed, "pool", reentrant.ModePermits},
		}, modesOf(d.take()))
	})
}

func TestTheEventOfALossSaysWhichModeWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b := &diary{}, memory.New()
		var log bytes.Buffer
		s := newSession(t, b, reentrant.WithObserver(d), reentrant.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		ctx := reentrant.WithOwner(t.Context(), "a")
		read, written, pool := s.NewRWLock("read"), s.NewRWLock("written"), s.NewSemaphore("pool", 2)
		require.NoError(t, s.NewLock("lock").Lock(ctx))
		require.NoError(t, read.RLock(ctx))
		require.NoError(t, written.Lock(ctx))
		require.NoError(t, written.RLock(ctx)) // the writer also reads, and loses both sides at once
		require.NoError(t, pool.Acquire(ctx, 2))
		d.take()
		b.SetFault(func(memory.Op) memory.Verdict { return memory.Lose })
		time.Sleep(2 * reentrant.DefaultLease)
		var lost []moded
		for _, e := range modesOf(d.take()) {
			if e.kind == reentrant.EventLost {
				lost = append(lost, e)
			}
		}
		assert.ElementsMatch(t, []moded{
			{reentrant.EventLost, "lock", reentrant.ModeLock}, {reentrant.EventLost, "read", reentrant.ModeRead},
			{reentrant.EventLost, "written", reentrant.ModeWrite}, {reentrant.EventLost, "pool", reentrant.ModePermits},
		}, lost)
		require.NoError(t, s.Close(t.Context())) // the log was written
		for _, mode := range []string{"lock=read mode=read ", "lock=written mode=write ", "lock=pool mode=permits "} {
			assert.Equal(t, 1, strings.Count(log.String(), mode), "%s in %s", mode, &log)
		}
		assert.NotContains(t, log.String(), "lock=lock mode=")
	})
}

func TestModesHaveNames(t *testing.T) {
	assert.Equal(t, []string{"lock", "write", "read", "permits"}, []string{
		reentrant.ModeLock.String(), reentrant.ModeWrite.String(), reentrant.ModeRead.String(), reentrant.ModePermits.String(),
	})
	assert.Equal(t, "Mode(4)", (reentrant.ModePermits + 1).String())
	assert.Equal(t, "Mode(-1)", reentrant.Mode(-1).String())
}
