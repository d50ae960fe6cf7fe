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

// sampleShare says which part of the reads is first done without a cache, for comparison: one in sampleShare.
const sampleShare = 20

// serve does the whole job and judges the result. The error says why the job could not be finished. If it is
// [screen.ErrInterrupted], the result covers the work that was done before.
func serve(ctx context.Context, opts options, stdout, stderr io.Writer) (*result, error) {
	folder, err := os.MkdirTemp("", "catalogue-")
	if err != nil {
		return nil, fmt.Errorf("folder for the database: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	path := filepath.Join(folder, "catalogue.db")
	if err := createStore(ctx, path, opts.items); err != nil {
		return nil, err
	}
	redis := &deployment.Redis{Shown: "not used"}
	if opts.lock == lockRelock {
		if redis, err = deployment.Open(ctx, opts.redis); err != nil {
			return nil, err
		}
	}
	defer redis.Close()
	fmt.Fprintf(stdout, "catalogue  %d prices of %d items by %d processes × %d workers, lock: %s\nredis      %s\n",
		opts.reads, opts.items, opts.processes, opts.workers, opts.lock, redis.Shown)

	r := &result{opts: opts}
	if opts.lock == lockRelock {
		sample := opts
		sample.lock, sample.kills, sample.reads = lockSQL, 0, max(1, opts.reads/sampleShare)
		plan := sample.plan("", path)
		plan.Stderr = stderr
		if r.sample, err = crew.Run(ctx, plan); err != nil {
			return r, err
		}
	}
	plan := opts.plan(redis.URL, path)
	plan.Stderr = stderr
	outcome, stopped := crew.Run(ctx, plan)
	if stopped != nil && !errors.Is(stopped, screen.ErrInterrupted) {
		return nil, stopped
	}
	r.outcome, r.interrupted = outcome, stopped != nil
	if r.cost, err = redis.Cost(context.WithoutCancel(ctx), int64(outcome.Total.Commands)); err != nil {
		return nil, err
	}
	return r, stopped
}

// createStore makes the database.
func createStore(ctx context.Context, path string, items int) error {
	prices, err := openStore(ctx, path, 1)
	if err != nil {
		return err
	}
	return errors.Join(prices.create(ctx, items), prices.close())
}

// plan returns the job as its crew needs it.
func (o options) plan(redis, path string) crew.Plan[report] {
	workers := o.processes * o.workers
	return crew.Plan[report]{
		Processes: o.processes,
		Kills:     o.kills,
		Goal:      int64(o.reads),
		Unit:      "prices",
		Role: func(name string, _ int) any {
			return role{
				Name: name, Workers: o.workers, Items: o.items, Reads: (o.reads + workers - 1) / workers, WriteEvery: o.writeEvery,
				CheckEvery: o.checkEvery, Lock: o.lock, Lease: o.lease, Redis: redis, Path: path,
			}
		},
	}
}
