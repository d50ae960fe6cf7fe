package cookbook

import (
	"context"
	"database/sql"
	"time"

	"github.com/relock-go/relock/reentrant"
)

// RunTick runs a job for one tick of its schedule, unless another process is at it or a run for that tick, or a later
// one, is on record. It reports whether job was run to its end.
func RunTick(ctx context.Context, lock *reentrant.Lock, db *sql.DB, tick time.Time, job func(ctx context.Context) error) (ran bool, err error) {
	_, err = lock.TryDo(ctx, func(ctx context.Context) error { // nothing is run while another process is at it
		var last int64
		err := db.QueryRowContext(ctx, `SELECT last_tick FROM schedule WHERE job = ?`, lock.Name()).Scan(&last)
		if err != nil || last >= tick.Unix() {
			return err // nil: it was run before this process came
		}
		if err := job(ctx); err != nil {
			return err
		}
		ran = true
		_, err = db.ExecContext(ctx, `UPDATE schedule SET last_tick = ? WHERE job = ? AND last_tick < ?`,
			tick.Unix(), lock.Name(), tick.Unix())
		return err
	})
	return ran, err
}
