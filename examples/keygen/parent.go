package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
	meter, err := openMeter(ctx, opts)
	if err != nil {
		return nil, err
	}
	defer meter.close()
	fmt.Fprintf(stdout, "keygen    %d keys by %d processes × %d workers, lock: %s\nredis     %s\ndatabase  %s %s\n",
		opts.keys, opts.processes, opts.workers, opts.lock, meter.shown, src.dialect.name, src.shown)

	c := newCrew(opts, role{
		Workers: opts.workers, Keys: int64(opts.keys), Lock: opts.lock, Lease: opts.lease, Redis: meter.url, DSN: src.url,
	}, stderr)
	if err := c.run(ctx); err != nil {
		return nil, err
	}
	cost, err := meter.read(ctx, c.total())
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
		names:   c.names(),
		did:     c.total(),
		kills:   c.kills,
		took:    c.ended.Sub(c.began),
		cost:    cost,
	}, nil
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
