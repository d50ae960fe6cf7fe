package cookbook

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// process opens a session, which stands for a process. Its leases outlast every wait in these tests. The first lease of a lock
// that is pushed to a waiter is three heartbeats, which is equally long here. The session's commands get a reply even if the
// machine stands still for a while.
func process(t *testing.T, server *redistest.Server) *reentrant.Session {
	t.Helper()
	session, err := reentrant.NewSession(unhurried{server.Backend()}, reentrant.WithLease(time.Minute),
		reentrant.WithHeartbeat(20*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = session.Close(ctx) // some tests have closed it
	})
	return session
}

// unhurried gives commands more time. A session gives each command at most two seconds. If a machine stands still for longer,
// calls that ask only once would fail: TryLock, Inspect, Verify, ForceUnlock, and the releases of Close.
type unhurried struct{ backend.Backend }

func (u unhurried) Connect(ctx context.Context, session string, sink backend.Sink) (backend.Conn, error) {
	conn, err := u.Backend.Connect(ctx, session, sink)
	if err != nil {
		return nil, err
	}
	return unhurriedConn{conn}, nil
}

type unhurriedConn struct{ backend.Conn }

func (u unhurriedConn) Bind(name string) (backend.Remote, error) {
	remote, err := u.Conn.Bind(name)
	if err != nil {
		return nil, err
	}
	return unhurriedRemote{remote.(movable)}, nil
}

// Renew gives the backend its own locks. A renewal that is not done in time is repeated.
func (u unhurriedConn) Renew(ctx context.Context, renewals []backend.Renewal) {
	for i := range renewals {
		renewals[i].Remote = renewals[i].Remote.(unhurriedRemote).movable
	}
	u.Conn.Renew(ctx, renewals)
	for i := range renewals {
		renewals[i].Remote = unhurriedRemote{renewals[i].Remote.(movable)}
	}
}

// A movable lock is one that has conditions, and whose holds another session can resume.
type movable interface {
	backend.Remote
	backend.Conditions
	backend.Resumer
	backend.Watcher
}

type unhurriedRemote struct{ movable }

func (u unhurriedRemote) Acquire(ctx context.Context, req backend.AcquireRequest) (backend.AcquireReply, error) {
	req.NotAfter = time.Now().Add(time.Hour)
	return u.movable.Acquire(timeless{ctx}, req)
}

func (u unhurriedRemote) Inspect(ctx context.Context) (reentrant.State, error) {
	return u.movable.Inspect(timeless{ctx})
}

func (u unhurriedRemote) ForceUnlock(ctx context.Context, _ time.Time) (bool, error) {
	return u.movable.ForceUnlock(timeless{ctx}, time.Now().Add(time.Hour))
}

// The context of a Release ends only when its time is over, so Release runs under a context without an end.
func (u unhurriedRemote) Release(ctx context.Context, req backend.ReleaseRequest) (backend.ReleaseResult, error) {
	return u.movable.Release(context.WithoutCancel(ctx), req)
}

// A timeless context hides its deadline, but still ends when the deadline passes.
type timeless struct{ context.Context }

func (timeless) Deadline() (time.Time, bool) { return time.Time{}, false }

// database returns a new database in which the statements have been executed.
func database(t *testing.T, statements ...string) *sql.DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cookbook.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	for _, statement := range statements {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	return db
}

// number returns the number that is the only result of a query.
func number(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

// waiting waits until n sessions are in the queue of a lock.
func waiting(t *testing.T, session *reentrant.Session, name string, sessions int) {
	t.Helper()
	lock := session.NewLock(name)
	eventually(t, "the waiters", func() bool {
		state, err := lock.Inspect(t.Context())
		return err == nil && len(state.Waiting) == sessions
	})
}

// given waits until a lock is free that a session gave up when it was closed. If the context of Close has ended, Close waits
// only for a second, and the rest is done in the background.
func given(t *testing.T, lock *reentrant.Lock) {
	t.Helper()
	eventually(t, "what was held is given up", func() bool {
		locked, err := lock.IsLocked(t.Context())
		return err == nil && !locked
	})
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, met func() bool) {
	t.Helper()
	require.Eventually(t, met, time.Minute, time.Millisecond, what)
}
