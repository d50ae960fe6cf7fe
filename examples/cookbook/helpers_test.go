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

	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// process opens a session, which stands for a process. Its lease is longer than any of these tests waits, also that of a
// lock that is pushed to a waiter, which is three heartbeats until it is renewed.
func process(t *testing.T, server *redistest.Server) *reentrant.Session {
	t.Helper()
	session, err := reentrant.NewSession(server.Backend(), reentrant.WithLease(time.Minute),
		reentrant.WithHeartbeat(20*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = session.Close(ctx) // some tests have closed it
	})
	return session
}

// database is a new one, in which statements have been executed.
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

// number is what a query answers.
func number(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

// waiting waits until so many sessions stand in line for a lock.
func waiting(t *testing.T, session *reentrant.Session, name string, sessions int) {
	t.Helper()
	lock := session.NewLock(name)
	eventually(t, "those who wait", func() bool {
		state, err := lock.Inspect(t.Context())
		return err == nil && len(state.Waiting) == sessions
	})
}

// eventually waits for what must come.
func eventually(t *testing.T, what string, met func() bool) {
	t.Helper()
	require.Eventually(t, met, time.Minute, time.Millisecond, what)
}
