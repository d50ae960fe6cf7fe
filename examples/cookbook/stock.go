package cookbook

import (
	"context"
	"database/sql"
	"errors"

	"github.com/relock-go/relock/reentrant"
)

// ErrOldToken is returned when the row has seen a later hold's token: this hold is over, whatever this process believes.
var ErrOldToken = errors.New("a later holder was here")

// Sell takes some of an item from the stock. The row itself refuses a holder that comes too late.
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

// look shows the token before it reads: from then on the row accepts no lower one.
func look(ctx context.Context, db *sql.DB, token reentrant.Token, item string) (left int, err error) {
	err = fenced(db.ExecContext(ctx, `UPDATE stock SET token = ? WHERE item = ? AND token <= ?`, token, item, token))
	if err != nil {
		return 0, err
	}
	err = db.QueryRowContext(ctx, `SELECT amount FROM stock WHERE item = ? AND token = ?`, item, token).Scan(&left)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrOldToken // a later holder came between the two statements
	}
	return left, err
}

// put writes, with the check in the statement that writes.
func put(ctx context.Context, db *sql.DB, token reentrant.Token, item string, left int) error {
	return fenced(db.ExecContext(ctx, `UPDATE stock SET amount = ?, token = ? WHERE item = ? AND token <= ?`,
		left, token, item, token))
}

// fenced is the error of a statement that finds its row only with a token that is not too old.
func fenced(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	rows, err := result.RowsAffected()
	if err == nil && rows == 0 {
		err = ErrOldToken
	}
	return err
}
