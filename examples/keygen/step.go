package main

import "context"

// A worker takes numbers until there are no more of them.
type worker struct {
	server string // the process it belongs to
	keys   int64  // the last number to hand out
	lock   section
	table  table
	tally  *tally
}

// A table is the database as a step sees it: three statements, each committed at once.
type table interface {
	read(ctx context.Context) (next int64, recorded bool, err error)
	raise(ctx context.Context, next int64) error
	record(ctx context.Context, r record) error
}

// run takes numbers until the last one is recorded.
func (w *worker) run(ctx context.Context) error {
	for {
		finished := false
		err := w.lock.do(ctx, func(ctx context.Context, hold hold) (err error) {
			finished, err = w.step(ctx, hold)
			return err
		})
		switch {
		case w.lock.lost(err):
			// The step may be half done, as after a SIGKILL. Then the next holder completes it.
			w.tally.lost.Add(1)
		case err != nil:
			return err
		case finished:
			return nil
		}
	}
}

// step hands out one number. It runs under the lock and consists of three statements:
//
//	read    the next number, n, and whether n−1 has its record
//
//	raise   the number to n+1
//	record  n, for this worker
//
// A SIGKILL can end it between any two of them, or within one. Before raise has happened there is nothing to see.
// After record has happened the step is complete. Between the two the number is raised, but no worker has got n.
// Therefore read also looks for the record of n−1: if n−1 has no record, its holder died, and this worker takes n−1 for
// itself. It only records it then, so a SIGKILL there leaves everything as it was found. The lock makes this sound: a
// holder that is alive records its number before the next one can read.
//
// Without that, or where the lock fails, two steps overlap: both read before either has recorded. And then, however
// their statements mix, both have read with n or n−1 unrecorded and both take that same number: n when the other has not
// raised yet, n−1 = the other's n when it has. So the repair hides no failure of the lock; it makes each one a
// duplicate. (Recording first and raising afterwards would need the opposite repair, to raise for a dead holder
// whose record is there. A second holder that comes between the two statements of a living one would then be taken
// for a repairer, and nothing would show.)
func (w *worker) step(ctx context.Context, hold hold) (finished bool, err error) {
	next, recorded, err := w.table.read(ctx)
	if err != nil {
		return false, err
	}
	number := next
	switch {
	case !recorded:
		number = next - 1
	case next > w.keys:
		return true, nil
	default:
		if err := w.table.raise(ctx, next+1); err != nil {
			return false, err
		}
	}
	entry := record{key: number, server: w.server, owner: hold.owner, token: hold.token}
	if err := w.table.record(ctx, entry); err != nil {
		return false, err
	}
	w.tally.keys.Add(1)
	if !recorded {
		w.tally.adopted.Add(1)
	}
	return false, nil
}
