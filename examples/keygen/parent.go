package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/relock-go/relock/examples/internal/crew"
	"github.com/relock-go/relock/examples/internal/deployment"
)

// generate does the whole job and judges it. The error says why it could not be finished.
func generate(ctx context.Context, opts options, stdout, stderr io.Writer) (*result, error) {
	src, err := opts.source()
	if err != nil {
		return nil, err
	}
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
	outcome, err := crew.Run(ctx, plan)
	if err != nil {
		return nil, err
	}
	cost, err := redis.Cost(ctx, int64(outcome.Total.Commands))
	if err != nil {
		return nil, err
	}
	records, err := store.records(ctx)
	if err != nil {
		return nil, err
	}
	return &result{
		opts:    opts,
		verdict: judge(records, opts.last(records)),
		outcome: outcome,
		cost:    cost,
	}, nil
}

// plan is the job for the crew.
func (o options) plan(redis, dsn string) crew.Plan[report] {
	return crew.Plan[report]{
		Processes: o.processes,
		Kills:     o.kills,
		Goal:      int64(o.keys),
		Unit:      "keys",
		Role: func(name string, _ int) any {
			return role{
				Server: name, Workers: o.workers, Keys: int64(o.keys), Lock: o.lock, Lease: o.lease, Turn: o.turn,
				Redis: redis, DSN: dsn,
			}
		},
		// Without a lock the number goes back again and again, and might take very long to arrive. As many records as
		// there should be numbers show enough.
		Enough: func(total report) bool { return o.lock == lockNone && total.Keys >= int64(o.keys) },
	}
}

// source is the database to use, by default a file in a fresh folder. The folder is left behind, to be looked at.
func (o options) source() (source, error) {
	if o.dsn != "" {
		return parseSource(o.dsn)
	}
	folder, err := os.MkdirTemp("", "keygen-")
	if err != nil {
		return source{}, fmt.Errorf("folder for the database: %w", err)
	}
	return sqliteSource(filepath.Join(folder, "keygen.db"))
}

// last is the number up to which there must be no gap. Without a lock the job ends anywhere.
func (o options) last(records []record) int64 {
	if o.lock != lockNone {
		return int64(o.keys)
	}
	if len(records) == 0 {
		return 0
	}
	return records[len(records)-1].key
}
