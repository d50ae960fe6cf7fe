package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/bench/internal/contender"
	"github.com/relock-go/relock/bench/internal/redisload"
	"github.com/relock-go/relock/bench/internal/result"
	"github.com/relock-go/relock/bench/internal/workload"
)

// A bench is a run on one Redis.
type bench struct {
	opts   options
	url    string
	client rueidis.Client // a client for the server's counters
	folder string         // folder for the sites
	stderr io.Writer
	result *result.Result
	own    bool // the server was started for this run
}

// measure carries out all rounds.
func measure(ctx context.Context, opts options, stderr io.Writer) (*result.Result, error) {
	url := opts.redis
	if url == "" {
		server, err := redisload.StartServer(ctx, "--io-threads", strconv.Itoa(opts.ioThreads))
		if err != nil {
			return nil, err
		}
		defer server.Stop()
		url = server.URL
	}
	client, err := redisload.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	counters, err := redisload.Read(ctx, client)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "relock-bench-")
	if err != nil {
		return nil, fmt.Errorf("folder for the sites: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }() // it has only temporary files: what is left there does no harm
	b := &bench{opts: opts, url: url, client: client, folder: folder, stderr: stderr, own: opts.redis == "",
		result: describe(opts, counters.Version)}
	return b.result, b.rounds(ctx)
}

// rounds measures every contender under each workload once in each round. Each round begins with another contender.
func (b *bench) rounds(ctx context.Context) error {
	progress := newProgress(b.stderr, b.count())
	for round := range b.opts.rounds {
		for _, w := range b.opts.workloads {
			for i := range b.opts.contenders {
				c := b.opts.contenders[(i+round)%len(b.opts.contenders)]
				if !c.Fits(w) {
					continue
				}
				sample, err := b.cell(ctx, c, w)
				if err != nil {
					return err
				}
				b.result.Add(w.Name, c.Name, sample)
				progress.done(round+1, w.Name, c.Name, sample)
			}
		}
	}
	return nil
}

func (b *bench) count() (n int) {
	for _, w := range b.opts.workloads {
		for _, c := range b.opts.contenders {
			if c.Fits(w) {
				n += b.opts.rounds
			}
		}
	}
	return n
}

// cell measures one contender under one workload. A contender that fails gives a sample without numbers. The returned error is
// an error of the run as a whole.
func (b *bench) cell(ctx context.Context, c contender.Contender, w workload.Workload) (result.Sample, error) {
	if err := b.clear(ctx); err != nil {
		return result.Sample{}, err
	}
	crew, err := startCrew(ctx, c, w, b.url, filepath.Join(b.folder, "site"), b.stderr)
	if err != nil {
		return result.Sample{}, err
	}
	defer crew.stop()
	sample, err := b.sample(ctx, crew, c.Plain)
	var failure failure
	if errors.As(err, &failure) {
		sample, err = result.Sample{Failed: failure.Error()}, nil
	}
	sample.Overlaps = crew.site.Overlaps()
	return sample, errors.Join(err, ctx.Err())
}

// clear removes what earlier cells have left: otherwise its expiry would be counted for this cell. It does not touch a server
// that belongs to the user.
func (b *bench) clear(ctx context.Context) error {
	if !b.own {
		return nil
	}
	if err := b.client.Do(ctx, b.client.B().Flushall().Sync().Build()).Error(); err != nil {
		return fmt.Errorf("clear Redis: %w", err)
	}
	return nil
}

func (b *bench) sample(ctx context.Context, crew *crew, plain []string) (result.Sample, error) {
	if err := crew.ready(); err != nil {
		return result.Sample{}, err
	}
	if err := crew.warmUp(); err != nil {
		return result.Sample{}, err
	}
	before, err := redisload.Read(ctx, b.client)
	if err != nil {
		return result.Sample{}, err
	}
	outcomes, err := crew.measure(b.opts.duration)
	if err != nil {
		return result.Sample{}, err
	}
	after, err := redisload.Read(ctx, b.client)
	if err != nil {
		return result.Sample{}, err
	}
	return result.Sum(outcomes, b.opts.duration, after.Since(before), plain), nil
}
