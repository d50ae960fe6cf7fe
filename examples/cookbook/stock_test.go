package cookbook

import (
	"database/sql"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/fence"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

func stock(t *testing.T, amount int) *sql.DB {
	db := database(t, `CREATE TABLE stock (item TEXT PRIMARY KEY, amount INTEGER NOT NULL)`)
	_, err := db.ExecContext(t.Context(), `INSERT INTO stock VALUES ('lamp', ?)`, amount)
	require.NoError(t, err)
	require.NoError(t, tokens.Create(t.Context(), db))
	return db
}

func TestTheStockIsSoldOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	db := stock(t, 40)
	var all sync.WaitGroup
	for range 4 {
		lock := process(t, server).NewLock("stock:lamp")
		all.Go(func() {
			for range 10 {
				assert.NoError(t, Sell(t.Context(), lock, db, "lamp", 1))
			}
			assert.ErrorContains(t, Sell(t.Context(), lock, db, "lamp", 41), "sold out")
		})
	}
	all.Wait()
	assert.Zero(t, number(t, db, `SELECT amount FROM stock`))
}

// A holder reads, is paused until another process has had the lock, and then tries to write.
func TestAnOlderTokenIsRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	db := stock(t, 10)
	old, err := hold(t, process(t, server))
	require.NoError(t, err)
	_, err = look(t.Context(), db, old, "lamp")
	require.NoError(t, err)
	_, err = process(t, server).NewLock("stock:lamp").ForceUnlock(t.Context())
	require.NoError(t, err)
	young, err := hold(t, process(t, server))
	require.NoError(t, err)
	left, err := look(t.Context(), db, young, "lamp")
	require.NoError(t, err)

	require.ErrorIs(t, put(t.Context(), db, old, "lamp", 9), fence.ErrStale, "the later holder's read is enough to refuse the write")
	_, err = look(t.Context(), db, old, "lamp")
	require.ErrorIs(t, err, fence.ErrStale)
	require.NoError(t, put(t.Context(), db, young, "lamp", left-3))
	assert.Equal(t, 7, number(t, db, `SELECT amount FROM stock`))
}

// hold takes the lock, and keeps it until the session is closed.
func hold(t *testing.T, session *reentrant.Session) (reentrant.Token, error) {
	lock := session.NewLock("stock:lamp")
	require.NoError(t, lock.Lock(t.Context()))
	t.Cleanup(func() { _ = lock.Unlock(t.Context()) }) // the first session gets ErrLost
	return lock.Token(t.Context())
}
