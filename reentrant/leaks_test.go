package reentrant_test

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// A notebook is a log that one goroutine can read while another writes it.
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

// logged makes a session write its log to a notebook.
func logged(n *notebook) reentrant.Option {
	return reentrant.WithLogger(slog.New(slog.NewTextHandler(n, nil)))
}

// patient is the option for a lease that does not end while a test, or the garbage collector, takes its time.
var patient = reentrant.WithLease(time.Hour)

// eventuallyCollected collects garbage until a condition holds.
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
		require.NoError(t, s.NewRWLock("read").RLock(ctx))
		require.NoError(t, s.NewSemaphore("pool", 2).Acquire(ctx, 1))
		require.NoError(t, s.NewSemaphore("idle", 2).Do(ctx, 1, func(context.Context) error { return nil }))
	}()
	// The session's Lock is reported, too, perhaps before the session.
	eventuallyCollected(t, func() bool { return strings.Contains(book.String(), "session was forgotten") })
	assert.Contains(t, book.String(), "held=\"[pool read x]\"")
	held, err := newSession(t, b).NewLock("x").IsLocked(t.Context())
	require.NoError(t, err)
	assert.True(t, held, "the lock's owner may be at work")
}

func TestASessionThatIsClosedOrInUseIsNotForgotten(t *testing.T) {
	b, book := memory.New(), &notebook{}
	open := func() *reentrant.Session {
		s, err := reentrant.NewSession(b, logged(book), patient)
		require.NoError(t, err)
		return s
	}
	l := open().NewLock("x") // keeps the session alive
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
	runtime.KeepAlive(l)
}

func TestAHoldWhoseLockIsForgottenIsReportedAndKept(t *testing.T) {
	book := &notebook{}
	s := newSession(t, memory.New(), logged(book), patient)
	ctx := reentrant.WithOwner(t.Context(), "a")
	func() {
		l := s.NewLock("given up")
		require.NoError(t, l.Lock(ctx))
		require.NoError(t, s.NewLock("given up").Unlock(ctx))
		runtime.KeepAlive(l) // the session is forgotten when no hold is left in it
		require.NoError(t, s.NewLock("kept").Lock(ctx))
	}()
	eventuallyCollected(t, func() bool { return strings.Contains(book.String(), "forgotten") })
	assert.Contains(t, book.String(), "lock=kept owner=~a")
	assert.NotContains(t, book.String(), "given up")
	assert.NoError(t, s.NewLock("kept").Unlock(ctx), "the hold was kept")
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
	assert.NotContains(t, book.String(), "lock=x", "a Lock that is in use has the hold")
	require.NoError(t, l.Unlock(ctx))
	require.NoError(t, s.NewLock("y").Unlock(ctx))
}

// A gate is a log handler that blocks at a warning: in Enabled, or in Handle.
type gate struct {
	slog.Handler
	asking  bool
	arrived atomic.Bool
	opened  chan struct{}
}

func (g *gate) Enabled(_ context.Context, level slog.Level) bool {
	if warning := level == slog.LevelWarn; !warning || !g.asking {
		return warning
	}
	g.pass()
	return false
}

func (g *gate) Handle(context.Context, slog.Record) error {
	g.pass()
	return nil
}

func (g *gate) pass() {
	g.arrived.Store(true)
	<-g.opened
}

// The collector runs cleanups outside a test's bubble. If they block, no goroutine in the bubble waits for them, and they end
// nothing that began in the bubble.
func TestACleanupDelaysNoCall(t *testing.T) {
	for _, asking := range []bool{true, false} {
		g := &gate{Handler: slog.DiscardHandler, asking: asking, opened: make(chan struct{})}
		var late atomic.Bool
		time.AfterFunc(2*time.Minute, func() { late.Store(true) })
		synctest.Test(t, func(t *testing.T) {
			s, err := reentrant.NewSession(memory.New(), reentrant.WithLogger(slog.New(g)))
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(reentrant.WithOwner(t.Context(), "a"), time.Minute)
			defer cancel()
			require.NoError(t, s.NewLock("x").Lock(ctx))
			for !g.arrived.Load() {
				runtime.GC()
				require.False(t, late.Load(), "nothing is collected")
			}
			require.NoError(t, s.NewLock("x").Unlock(ctx))
			assert.Zero(t, reentrant.Entries(s))
			begun := time.Now()
			require.NoError(t, s.Close(ctx))
			assert.Zero(t, time.Since(begun))
		})
		close(g.opened)
	}
}
