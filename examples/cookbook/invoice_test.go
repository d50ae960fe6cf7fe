package cookbook

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend/redistest"
)

func TestInvoicesHaveNumbersWithoutGaps(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	db := database(t, `CREATE TABLE series (name TEXT, last_number INTEGER)`, `INSERT INTO series VALUES ('2026', 0)`,
		`CREATE TABLE invoices (number INTEGER)`)
	var mu sync.Mutex
	var numbers []int64
	var all sync.WaitGroup
	for range 3 {
		lock := process(t, server).NewLock("2026")
		for i := range 4 {
			all.Go(func() {
				number, err := Invoice(t.Context(), lock, db, func(ctx context.Context, tx *sql.Tx, number int64) error {
					if i == 0 {
						return assert.AnError // an invoice that is not written has no number
					}
					_, err := tx.ExecContext(ctx, `INSERT INTO invoices VALUES (?)`, number)
					return err
				})
				if i == 0 {
					assert.ErrorIs(t, err, assert.AnError)
					return
				}
				assert.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				numbers = append(numbers, number)
			})
		}
	}
	all.Wait()
	slices.Sort(numbers)
	assert.Equal(t, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9}, numbers)
	assert.Equal(t, 9, number(t, db, `SELECT count(DISTINCT number) FROM invoices`))
}

// A holder that has lost the lock without noticing gets an error if another process has taken the number meanwhile.
func TestANumberThatAnotherTookIsRefused(t *testing.T) {
	t.Parallel()
	db := database(t, `CREATE TABLE series (name TEXT, last_number INTEGER)`, `INSERT INTO series VALUES ('2026', 7)`)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback() //nolint:errcheck // it changes nothing
	require.ErrorContains(t, take(t.Context(), tx, "2026", 6), "another process")
	require.NoError(t, take(t.Context(), tx, "2026", 7))
}
