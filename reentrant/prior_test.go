package reentrant_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// A listener is a Backend that records what the sessions say they remember.
type listener struct {
	backend.Backend
	mu       sync.Mutex
	priors   []backend.Prior // the Prior of each acquire and release
	yields   []backend.AcquireRequest
	acquires []backend.AcquireRequest
	released []backend.ReleaseResult
	fail     error // returned in place of the reply to the next acquire or release, which is carried out
}

type listeningConn struct {
	backend.Conn
	to *listener
}

type listeningRemote struct {
	backend.Remote
	to *listener
}

func (l *listener) Connect(ctx context.Context, id string, sink backend.Sink) (backend.Conn, error) {
	conn, err := l.Backend.Connect(ctx, id, sink)
	return listeningConn{conn, l}, err
}

func (c listeningConn) Bind(name string) (backend.Remote, error) {
	remote, err := c.Conn.Bind(name)
	return listeningRemote{remote, c.to}, err
}

func (r listeningRemote) Acquire(ctx context.Context, req backend.AcquireRequest) (backend.AcquireReply, error) {
	r.to.mu.Lock()
	r.to.acquires = append(r.to.acquires, req)
	if req.Yield {
		r.to.yields = append(r.to.yields, req)
	}
	r.to.mu.Unlock()
	reply, err := r.Remote.Acquire(ctx, req)
	return reply, errors.Join(err, r.to.hear(req.Prior))
}

func (r listeningRemote) Release(ctx context.Context, req backend.ReleaseRequest) (backend.ReleaseResult, error) {
	result, err := r.Remote.Release(ctx, req)
	r.to.mu.Lock()
	r.to.released = append(r.to.released, result)
	r.to.mu.Unlock()
	return result, errors.Join(err, r.to.hear(req.Prior))
}

func (l *listener) hear(p backend.Prior) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.priors = append(l.priors, p)
	err := l.fail
	l.fail = nil
	return err
}

// loseNext loses the reply to the next acquire or release.
func (l *listener) loseNext() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = backend.WithOutcomeUnknown(errors.New("the reply was lost"))
}

// last returns the Prior of the latest acquire or release.
func (l *listener) last() backend.Prior {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.priors[len(l.priors)-1]
}

func (l *listener) lastReleased() backend.ReleaseResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.released[len(l.released)-1]
}

func TestASessionRemembersHowItLeftALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := &listener{Backend: memory.New()}
		s := newSession(t, heard)
		l := s.NewLock("orders")
		ctx := t.Context()
		require.NoError(t, l.Lock(ctx))
		assert.Zero(t, heard.last(), "the session has never had the lock")
		require.NoError(t, l.Unlock(ctx))
		assert.Equal(t, backend.Freed, heard.lastReleased())
		require.NoError(t, s.NewLock("other").Lock(ctx)) // uses a spare state
		require.NoError(t, l.Lock(ctx))
		assert.True(t, heard.last().Freed, "the session has freed the lock")
		require.NoError(t, l.Lock(ctx))
		require.NoError(t, l.Unlock(ctx))
		require.NoError(t, l.Unlock(ctx))
		assert.Equal(t, uint64(2), heard.last().Op, "the hold count has changed the record")
		assert.Equal(t, backend.Freed, heard.lastReleased())
		require.NoError(t, s.NewLock("other").Unlock(ctx))
	})
}

func TestASessionRemembersWhatIsHandedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := &listener{Backend: memory.New()}
		s := newSession(t, heard)
		l := s.NewLock("orders")
		require.NoError(t, l.Lock(t.Context()))
		token, err := l.Token(t.Context())
		require.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			assert.NoError(t, l.Lock(t.Context()))
			next, err := l.Token(t.Context())
			assert.NoError(t, err)
			assert.Equal(t, token, heard.last().Token)
			assert.Greater(t, next, token)
			assert.NoError(t, l.Unlock(t.Context()))
		}()
		synctest.Wait()
		require.NoError(t, l.Unlock(t.Context()))
		<-done
	})
}

func TestASessionRemembersNothingAfterAnUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := &listener{Backend: memory.New()}
		s := newSession(t, heard)
		l := s.NewLock("orders")
		require.NoError(t, l.Lock(t.Context()))
		require.NoError(t, l.Unlock(t.Context()))
		heard.loseNext()
		require.NoError(t, l.Lock(t.Context()))
		assert.Zero(t, heard.last(), "the copy that is sent because the reply was lost")
		heard.loseNext()
		require.NoError(t, l.Unlock(t.Context()))
		assert.Zero(t, heard.last())
		require.NoError(t, l.Lock(t.Context()))
		assert.Zero(t, heard.last())
		require.NoError(t, l.Unlock(t.Context()))
	})
}

func TestASessionRemembersAGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		heard := &listener{Backend: b}
		other, s := newSession(t, b), newSession(t, heard)
		require.NoError(t, other.NewLock("orders").Lock(t.Context()))
		l := s.NewLock("orders")
		got := make(chan struct{})
		go func() {
			assert.NoError(t, l.Lock(t.Context()))
			close(got)
			time.Sleep(time.Millisecond)
			assert.NoError(t, l.Unlock(t.Context()))
		}()
		synctest.Wait()
		require.NoError(t, other.NewLock("orders").Unlock(t.Context()))
		<-got
		require.NoError(t, l.Lock(t.Context()))
		assert.True(t, heard.last().Pushed)
		require.NoError(t, l.Unlock(t.Context()))
	})
}

// Only a yield that begins a lease can be decided by a script that compares the record.
func TestAYieldBeginsALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		heard := &listener{Backend: b}
		other, s := newSession(t, b), newSession(t, heard, reentrant.WithTurn(1, 0))
		l := s.NewLock("orders")
		var done sync.WaitGroup
		section := func(l *reentrant.Lock) {
			done.Go(func() {
				assert.NoError(t, l.Lock(t.Context()))
				time.Sleep(time.Millisecond)
				assert.NoError(t, l.Unlock(t.Context()))
			})
		}
		require.NoError(t, l.Lock(t.Context()))
		for range 3 {
			section(l)
		}
		section(other.NewLock("orders"))
		synctest.Wait()
		require.NoError(t, l.Unlock(t.Context()))
		done.Wait()
		heard.mu.Lock()
		defer heard.mu.Unlock()
		require.NotEmpty(t, heard.yields)
		for _, req := range heard.yields {
			assert.False(t, req.KeepTTL)
			assert.NotZero(t, req.Prior.Epoch, "the request has what the session remembers")
		}
	})
}

// Another session can have resumed the hold of a portable owner, so the lease that this session knows may no longer exist.
func TestTheLeaseOfAPortableOwnerIsNotHandedOn(t *testing.T) {
	for name, c := range map[string]struct {
		owner   func(context.Context, string) context.Context
		keepTTL bool
	}{"portable": {reentrant.WithPortableOwner, false}, "not portable": {reentrant.WithOwner, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				heard := &listener{Backend: memory.New()}
				l := newSession(t, heard).NewLock("orders")
				first := c.owner(t.Context(), "first")
				require.NoError(t, l.Lock(first))
				done := make(chan error)
				go func() { done <- l.Do(t.Context(), func(context.Context) error { return nil }) }()
				synctest.Wait()
				require.NoError(t, l.Unlock(first))
				require.NoError(t, <-done)
				require.Len(t, heard.acquires, 2)
				assert.Equal(t, c.keepTTL, heard.acquires[1].KeepTTL)
			})
		})
	}
}
