package cookbook

import (
	"context"
	"database/sql"
	"errors"

	"github.com/relock-go/relock/fence"
	"github.com/relock-go/relock/reentrant"
)

// tokens is a table with the highest token of each item. tokens.Create makes it.
var tokens = fence.NewTable(fence.SQLite, "tokens")

// Sell takes some of an item from the stock. The database itself refuses a holder that comes too late.
func Sell(ctx context.Context, lock *reentrant.Lock, db *sql.DB, item string, some int) error {
	return lock.Do(ctx, func(ctx context.Context) error {
		token, err := lock.Token(ctx)
		if err != nil {
			return err
		}
		left, err := look(ctx, db, token, item)
		if err != nil {
			return err
		}
		if left < some {
			return errors.New("sold out")
		}
		return put(ctx, db, token, item, left-some)
	})
}

// look shows the token before it reads: from then on lower ones are refused.
func look(ctx context.Context, db *sql.DB, token reentrant.Token, item string) (left int, err error) {
	err = tokens.Do(ctx, db, item, token, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT amount FROM stock WHERE item = ?`, item).Scan(&left)
	})
	return left, err
}

// put writes in a transaction that shows the token too.
func put(ctx context.Context, db *sql.DB, token reentrant.Token, item string, left int) error {
	return tokens.Do(ctx, db, item, token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE stock SET amount = ? WHERE item = ?`, left, item)
		return err
	})
}
