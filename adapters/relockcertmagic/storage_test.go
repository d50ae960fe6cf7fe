package relockcertmagic_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/adapters/relockcertmagic"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// process opens the storage of one process with certmagic: a session of its own, on the same Redis and the same files.
func process(t *testing.T, server *redistest.Server, folder string) *relockcertmagic.Storage {
	t.Helper()
	session, err := reentrant.NewSession(server.Backend(), reentrant.WithLease(time.Minute), reentrant.WithHeartbeat(20*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = session.Close(ctx) // what a test still holds is abandoned
	})
	return relockcertmagic.New(&certmagic.FileStorage{Path: folder}, session)
}

// tries tries to get a lock.
func tries(t *testing.T, storage *relockcertmagic.Storage, name string) bool {
	t.Helper()
	var ok bool
	require.NoError(t, answered(func() (err error) {
		ok, err = storage.TryLock(t.Context(), name)
		return err
	}))
	return ok
}

// answered asks again while Redis does not reply in time, as on a machine that stands still.
func answered(ask func() error) error {
	err := ask()
	for begun := time.Now(); errors.Is(err, reentrant.ErrUnavailable) && time.Since(begun) < time.Minute; err = ask() {
	}
	return err
}

func TestOneOfManyHasTheLock(t *testing.T) {
	server, folder := redistest.Start(t), t.TempDir()
	var inside, overlaps, turns atomic.Int32
	var all sync.WaitGroup
	for range 2 {
		storage := process(t, server, folder)
		for range 10 {
			all.Go(func() {
				for range 10 {
					assert.NoError(t, storage.Lock(t.Context(), "issue_cert_example.com"))
					if inside.Add(1) != 1 {
						overlaps.Add(1)
					}
					turns.Add(1)
					inside.Add(-1)
					assert.NoError(t, storage.Unlock(t.Context(), "issue_cert_example.com"))
				}
			})
		}
	}
	all.Wait()
	assert.Zero(t, overlaps.Load())
	assert.EqualValues(t, 200, turns.Load())
}

func TestALockIsUnlockedFromAnyGoroutine(t *testing.T) {
	server, folder := redistest.Start(t), t.TempDir()
	here, there := process(t, server, folder), process(t, server, folder)
	require.NoError(t, here.Lock(t.Context(), "a"))
	for name, storage := range map[string]*relockcertmagic.Storage{"same process": here, "another": there} {
		assert.False(t, tries(t, storage, "a"), name)
	}
	require.ErrorIs(t, there.Unlock(t.Context(), "a"), reentrant.ErrNotHeld)
	require.NoError(t, answered(func() error { return here.RenewLockLease(t.Context(), "a", time.Hour) }))
	unlocked := make(chan error)
	go func() { unlocked <- here.Unlock(t.Context(), "a") }()
	require.NoError(t, <-unlocked)
	require.ErrorIs(t, here.Unlock(t.Context(), "a"), reentrant.ErrNotHeld, "again")
	require.ErrorIs(t, here.RenewLockLease(t.Context(), "a", time.Hour), reentrant.ErrNotHeld)
	assert.True(t, tries(t, there, "a"))
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	server, folder := redistest.Start(t), t.TempDir()
	here, there := process(t, server, folder), process(t, server, folder)
	require.NoError(t, here.Lock(t.Context(), "a"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, there.Lock(ctx, "a"), context.DeadlineExceeded)
}

// certmagic itself takes the lock when it stores something.
func TestCertmagicUsesIt(t *testing.T) {
	server, folder := redistest.Start(t), t.TempDir()
	storage := process(t, server, folder)
	require.NoError(t, storage.Store(t.Context(), "certificates/a", []byte("text")))
	text, err := process(t, server, folder).Load(t.Context(), "certificates/a")
	require.NoError(t, err)
	assert.Equal(t, "text", string(text), "data is stored in the wrapped storage")
	cache := certmagic.NewCache(certmagic.CacheOptions{GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) {
		return certmagic.NewDefault(), nil
	}})
	defer cache.Stop()
	config := certmagic.New(cache, certmagic.Config{Storage: storage, Issuers: []certmagic.Issuer{}})
	assert.Same(t, storage, config.Storage)
	require.NoError(t, certmagic.CleanStorage(t.Context(), storage, certmagic.CleanStorageOptions{ExpiredCerts: true}))
}
