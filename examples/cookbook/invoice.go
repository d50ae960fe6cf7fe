package cookbook

import (
	"context"
	"database/sql"
	"errors"

	"github.com/relock-go/relock/reentrant"
)

// Invoice writes an invoice under the next number of a series, and returns that. The numbers have no gap, and none comes
// twice.
func Invoice(ctx context.Context, lock *reentrant.Lock, db *sql.DB, write func(ctx context.Context, tx *sql.Tx, number int64) error) (int64, error) {
	return reentrant.DoValue(ctx, lock.Do, func(ctx context.Context) (number int64, err error) {
		tx, err := db.BeginTx(ctx, nil) // ends with the hold, by a rollback
		if err != nil {
			return 0, err
		}
		defer tx.Rollback() //nolint:errcheck // after Commit it has nothing to do
		var last int64
		if err := tx.QueryRowContext(ctx, `SELECT last_number FROM series WHERE name = ?`, lock.Name()).Scan(&last); err != nil {
			return 0, err
		}
		if err := take(ctx, tx, lock.Name(), last); err != nil {
			return 0, err
		}
		if err := write(ctx, tx, last+1); err != nil {
			return 0, err // and the number is the next one's
		}
		return last + 1, tx.Commit()
	})
}

// take takes the number after last, unless another process has.
func take(ctx context.Context, tx *sql.Tx, series string, last int64) error {
	result, err := tx.ExecContext(ctx, `UPDATE series SET last_number = ? WHERE name = ? AND last_number = ?`, last+1, series, last)
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); err != nil || rows == 0 {
		return errors.Join(err, errors.New("another process has taken this number"))
	}
	return nil
}
