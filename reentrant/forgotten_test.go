package reentrant_test

import (
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// A notebook is a log that can be read while it is written.
type notebook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (n *notebook) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(p)
}

func (n *notebook) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

// logged has a session's log in a notebook.
func logged(n *notebook) reentrant.Option {
	return reentrant.WithLogger(slog.New(slog.NewTextHandler(n, nil)))
}

// patient is a lease that does not end while a test, or the collector, takes its time.
var patient = reentrant.WithLease(time.Hour)

// eventuallyCollected waits for the collector to find out.
func eventuallyCollected(t *testing.T, met func() bool) {
	t.Helper()
	for begun := time.Now(); !met(); time.Sleep(time.Millisecond) {
		runtime.GC()
		require.Less(t, time.Since(begun), 30*time.Second)
	}
}

func TestASessionThatIsForgottenIsReportedAndKeepsItsLocks(t *testing.T) {
	b, book := memory.New(), &notebook{}
	ctx := reentrant.WithOwner(t.Context(), "a")
	func() {
		s, err := reentrant.NewSession(b, logged(book), patient)
		require.NoError(t, err)
		require.NoError(t, s.NewLock("x").Lock(ctx))
	}()
	// Its Lock is reported too, and may be first.
	eventuallyCollected(t, func() bool { return strings.Contains(book.String(), "session was forgotten") })
	assert.Contains(t, book.String(), "held=[x]")
	held, err := newSession(t, b).NewLock("x").IsLocked(t.Context())
	require.NoError(t, err)
	assert.True(t, held, "whoever has it may be at work")
}

func TestASessionThatIsClosedOrInUseIsNotForgotten(t *testing.T) {
	b, book := memory.New(), &notebook{}
	open := func() *reentrant.Session {
		s, err := reentrant.NewSession(b, logged(book), patient)
		require.NoError(t, err)
		return s
	}
	l := open().NewLock("x") // keeps its session
	collected := make(chan struct{})
	func() {
		s := open()
		require.NoError(t, s.Close(t.Context()))
		runtime.AddCleanup(s, func(done chan struct{}) { close(done) }, collected)
	}()
	eventuallyCollected(t, func() bool {
		select {
		case <-collected:
			return true
		default:
			return false
		}
	})
	require.NoError(t, l.Lock(reentrant.WithOwner(t.Context(), "a")))
	require.NoError(t, l.Unlock(reentrant.WithOwner(t.Context(), "a")))
	assert.Empty(t, book.String())
}

func TestAHoldWhoseLockIsForgottenIsReportedAndKept(t *testing.T) {
	book := &notebook{}
	s := newSession(t, memory.New(), logged(book), patient)
	ctx := reentrant.WithOwner(t.Context(), "a")
	func() {
		l := s.NewLock("given up")
		require.NoError(t, l.Lock(ctx))
		require.NoError(t, s.NewLock("given up").Unlock(ctx))
		runtime.KeepAlive(l) // it is forgotten once nothing is held by it
		require.NoError(t, s.NewLock("kept").Lock(ctx))
	}()
	eventuallyCollected(t, func() bool { return strings.Contains(book.String(), "forgotten") })
	assert.Contains(t, book.String(), "lock=kept owner=~a")
	assert.NotContains(t, book.String(), "given up")
	assert.NoError(t, s.NewLock("kept").Unlock(ctx), "nothing was taken away")
}

func TestAHoldOfALockInUseIsNotForgotten(t *testing.T) {
	book := &notebook{}
	s := newSession(t, memory.New(), logged(book), patient)
	ctx, l := reentrant.WithOwner(t.Context(), "a"), s.NewLock("x")
	func() {
		other := s.NewLock("x")
		require.NoError(t, other.Lock(ctx))
		require.NoError(t, other.Unlock(ctx))
		require.NoError(t, s.NewLock("y").Lock(ctx))
	}()
	require.NoError(t, l.Lock(ctx))
	eventuallyCollected(t, func() bool { return strings.Contains(book.String(), "lock=y") })
	assert.NotContains(t, book.String(), "lock=x", "it is held by a Lock that is in use")
	require.NoError(t, l.Unlock(ctx))
	require.NoError(t, s.NewLock("y").Unlock(ctx))
}
