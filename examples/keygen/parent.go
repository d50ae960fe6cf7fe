package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/relock-go/relock/examples/internal/crew"
	"github.com/relock-go/relock/examples/internal/deployment"
	"github.com/relock-go/relock/examples/internal/screen"
)

// generate does the whole job and judges the result. The error says why the job could not be finished. If it is
// [screen.ErrInterrupted], the result covers the work that was done before.
func generate(ctx context.Context, opts options, stdout, stderr io.Writer) (*result, error) {
	src, remove, err := opts.source()
	if err != nil {
		return nil, err
	}
	defer remove() // after the tables are closed
	store, err := openDatabase(ctx, src, 1)
	if err != nil {
		return nil, err
	}
	defer func() { _ = store.close() }()
	if err := store.recreate(ctx); err != nil {
		return nil, err
	}
	redis := &deployment.Redis{Shown: "not used"}
	if opts.lock != lockNone {
		if redis, err = deployment.Open(ctx, opts.redis); err != nil {
			return nil, err
		}
	}
	defer redis.Close()
	fmt.Fprintf(stdout, "keygen    %d keys by %d processes × %d workers, lock: %s\nredis     %s\ndatabase  %s %s\n",
		opts.keys, opts.processes, opts.workers, opts.lock, redis.Shown, src.dialect.name, src.shown)

	plan := opts.plan(redis.URL, src.url)
	plan.Stderr = stderr
	outcome, stopped := crew.Run(ctx, plan)
	if stopped != nil && !errors.Is(stopped, screen.ErrInterrupted) {
		return nil, stopped
	}
	ctx = context.WithoutCancel(ctx)
	cost, err := redis.Cost(ctx, int64(outcome.Total.Commands))
	if err != nil {
		return nil, err
	}
	records, err := store.records(ctx)
	if err != nil {
		return nil, err
	}
	v := opts.judge(records, stopped != nil)
	return &result{opts: opts, verdict: v, interrupted: stopped != nil, outcome: outcome, cost: cost}, stopped
}

// judge checks the records.
func (o options) judge(records []record, interrupted bool) verdict {
	switch {
	case o.ids == idsSnowflake:
		return judgeIDs(records)
	case o.lock == lockNone || interrupted: // the job ended anywhere
		return judge(records, highest(records))
	}
	return judge(records, int64(o.keys))
}

// plan returns the job as its crew needs it.
func (o options) plan(redis, dsn string) crew.Plan[report] {
	return crew.Plan[report]{
		Processes: o.processes,
		Kills:     o.kills,
		Goal:      int64(o.keys),
		Unit:      "keys",
		Role: func(name string, _ int) any {
			return role{
				Server: name, Workers: o.workers, Keys: int64(o.keys), IDs: o.ids, Nodes: o.processes * o.workers,
				Lock: o.lock, Lease: o.lease, Turn: o.turn, Redis: redis, DSN: dsn,
			}
		},
		// Without a lock the number goes back again and again, and may take very long to reach the last one. As many records as
		// there should be numbers are enough to show that. Ids have no last one.
		Enough: func(total report) bool {
			return (o.lock == lockNone || o.ids == idsSnowflake) && total.Keys >= int64(o.keys)
		},
	}
}

// source returns the database to use. By default it is a file in a new folder. The caller must call remove when the database is
// no longer needed.
func (o options) source() (src source, remove func(), err error) {
	if o.dsn != "" {
		src, err = parseSource(o.dsn)
		return src, func() {}, err
	}
	folder, err := os.MkdirTemp("", "keygen-")
	if err != nil {
		return source{}, nil, fmt.Errorf("folder for the database: %w", err)
	}
	src, err = sqliteSource(filepath.Join(folder, "keygen.db"))
	src.shown += ", deleted at the end (-db keeps it)"
	return src, func() { _ = os.RemoveAll(folder) }, err
}

// highest returns the highest number that was recorded. The records are in the order of their numbers.
func highest(records []record) int64 {
	if len(records) == 0 {
		return 0
	}
	return records[len(records)-1].key
}
