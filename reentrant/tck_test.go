package reentrant_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// The tests in tck_*_test.go are what java.util.concurrent's own kits for ReentrantLock and AbstractQueuedSynchronizer
// check, as far as it applies. testdata/jdk-tests.md has the list, case by case.

// A kit is what a test works with: a session, its lock x and a condition of it.
type kit struct {
	*reentrant.Lock
	cond    *reentrant.Condition
	session *reentrant.Session
	backend *memory.Backend
	fair    bool
}

// kits runs a test on a fair and on an unfair lock. A test must leave the lock free and without waiters.
func kits(t *testing.T, f func(t *testing.T, k kit)) {
	t.Helper()
	for name, fair := range map[string]bool{"fair": true, "unfair": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				k := newKit(t, b, fair)
				f(t, k)
				k.nothingStays(t)
			})
		})
	}
}

// newKit makes a kit in a session of its own.
func newKit(t *testing.T, b *memory.Backend, fair bool) kit {
	t.Helper()
	s := newSession(t, b)
	l := s.NewLock("x", reentrant.WithFairness(fair))
	return kit{Lock: l, cond: l.NewCondition("ready"), session: s, backend: b, fair: fair}
}

// nothingStays checks that the lock is free, and that the session has forgotten it.
func (k kit) nothingStays(t *testing.T) {
	t.Helper()
	k.backend.SetFault(nil)
	synctest.Wait()
	assert.Empty(t, k.QueuedOwners())
	assert.Zero(t, reentrant.Entries(k.session))
	st, err := k.Inspect(t.Context())
	require.NoError(t, err)
	assert.False(t, st.Locked)
	assert.Empty(t, st.Waiting)
}

// locked makes the caller hold the lock once, and returns the Unlock.
func (k kit) locked(t *testing.T) (unlock func()) {
	t.Helper()
	return lockFor(t, t.Context(), k.Lock)
}

// requireLocked checks what Redis knows about the lock.
func (k kit) requireLocked(t *testing.T, want bool) {
	t.Helper()
	got, err := k.IsLocked(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// A thread is a goroutine that acts as an owner of its own.
type thread struct {
	reentrant.Owner
	interrupt context.CancelFunc
	ended     chan error
}

// start runs f in a new goroutine, and returns when it has ended or blocks.
func start(t *testing.T, f func(ctx context.Context) error) thread {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	owner := make(chan reentrant.Owner, 1)
	th := thread{interrupt: cancel, ended: make(chan error, 1)}
	go func() {
		owner <- reentrant.CurrentOwner(ctx)
		th.ended <- f(ctx)
	}()
	th.Owner = <-owner
	synctest.Wait()
	return th
}

// requireWaiting checks that the thread has not ended.
func (th thread) requireWaiting(t *testing.T) {
	t.Helper()
	synctest.Wait()
	require.Empty(t, th.ended, "the thread still waits")
}

// queues starts a thread that acquires the lock once and releases it.
func (k kit) queues(t *testing.T) thread {
	t.Helper()
	return start(t, func(ctx context.Context) error {
		if err := k.Lock.Lock(ctx); err != nil {
			return err
		}
		return k.Unlock(ctx)
	})
}

// elsewhere runs f as another owner.
func elsewhere(t *testing.T, f func(ctx context.Context)) {
	t.Helper()
	require.NoError(t, <-start(t, func(ctx context.Context) error {
		f(ctx)
		return nil
	}).ended)
}

// The list of cases names tests that exist, and every test of this kit is on it.
func TestTckListNamesTestsThatExist(t *testing.T) {
	list, err := os.ReadFile("testdata/jdk-tests.md")
	require.NoError(t, err)
	named := map[string]bool{}
	for _, name := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(list), -1) {
		named[name[1]] = true
	}
	require.NotEmpty(t, named)
	there := testsOf(t, ".", "../localqueue")
	for name := range named {
		assert.True(t, there[name], "%s is listed and does not exist", name)
	}
	for name := range testsOf(t, ".") {
		if strings.HasPrefix(name, "TestTck") {
			assert.True(t, named[name], "%s is not listed", name)
		}
	}
}

// testsOf returns the names of the tests in some folders.
func testsOf(t *testing.T, folders ...string) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
		require.NoError(t, err)
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, decl := range parsed.Decls {
				if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
					tests[f.Name.Name] = true
				}
			}
		}
	}
	return tests
}
