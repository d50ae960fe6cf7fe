package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/relock-go/relock/examples/internal/crew"
	"github.com/relock-go/relock/examples/internal/deployment"
	"github.com/relock-go/relock/examples/internal/screen"
)

// move does the whole job and judges the result. The error says why the job could not be finished. If it is
// [screen.ErrInterrupted], the result covers the work that was done before.
func move(ctx context.Context, opts options, stdout, stderr io.Writer) (*result, error) {
	redis, err := deployment.Open(ctx, opts.redis)
	if err != nil {
		return nil, err
	}
	defer redis.Close()
	fmt.Fprintf(stdout, "buffer   %d items through %d places, by %d processes × (%d producers + %d consumers), lock: %s\nredis    %s\n",
		opts.items, opts.capacity, opts.processes, opts.producers, opts.consumers, opts.lock, redis.Shown)

	s := &store{client: redis.Client}
	if err := s.clear(ctx); err != nil {
		return nil, err
	}
	defer func() { _ = s.clear(context.WithoutCancel(ctx)) }()
	outcome, stopped := crew.Run(ctx, opts.plan(redis.URL, stderr))
	if stopped != nil && !errors.Is(stopped, screen.ErrInterrupted) {
		return nil, stopped
	}
	ctx = context.WithoutCancel(ctx)
	cost, err := redis.Cost(ctx, outcome.Total.Commands)
	if err != nil {
		return nil, err
	}
	r, err := s.remains(ctx)
	if err != nil {
		return nil, err
	}
	items := int64(opts.items)
	if stopped != nil { // only the items that have left the buffer were due
		items = r.made - r.left
	}
	return &result{
		opts:        opts,
		verdict:     judge(r, items, opts.processes*opts.producers, int64(opts.capacity)),
		interrupted: stopped != nil,
		fullest:     r.fullest,
		outcome:     outcome,
		cost:        cost,
	}, stopped
}

// plan returns the job as its crew needs it.
func (o options) plan(redis string, stderr io.Writer) crew.Plan[report] {
	return crew.Plan[report]{
		Processes: o.processes,
		Kills:     o.kills,
		Goal:      int64(o.items),
		Unit:      "items",
		Stderr:    stderr,
		Role: func(name string, seat int) any {
			return role{
				Process: name, Seat: seat, Processes: o.processes, Producers: o.producers, Consumers: o.consumers,
				Items: int64(o.items), Capacity: int64(o.capacity), Lock: o.lock, Lease: o.lease, Redis: redis,
			}
		},
	}
}
