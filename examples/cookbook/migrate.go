package cookbook

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/relock-go/relock/reentrant"
)

// Migrate takes a schema from the version that it has to len(steps). Every process of a deployment calls it when it
// starts; one does the work, and the others wait until it is done.
func Migrate(ctx context.Context, lock *reentrant.Lock, db *sql.DB, steps []string) error {
	return lock.Do(ctx, func(ctx context.Context) error {
		var version int
		if err := db.QueryRowContext(ctx, `SELECT version FROM schema_version`).Scan(&version); err != nil {
			return err
		}
		for ; version < len(steps); version++ {
			if err := migrate(ctx, db, version, steps[version]); err != nil {
				return fmt.Errorf("migrate from version %d: %w", version, err)
			}
		}
		return nil
	})
}

// migrate takes one step, and the version with it, or nothing.
func migrate(ctx context.Context, db *sql.DB, version int, step string) error {
	tx, err := db.BeginTx(ctx, nil) // ends with the hold, by a rollback
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it has nothing to do
	result, err := tx.ExecContext(ctx, `UPDATE schema_version SET version = ? WHERE version = ?`, version+1, version)
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); err != nil || rows == 0 {
		return errors.Join(err, errors.New("another process took this step"))
	}
	if _, err := tx.ExecContext(ctx, step); err != nil {
		return err
	}
	return tx.Commit()
}
