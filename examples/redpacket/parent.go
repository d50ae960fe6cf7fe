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

// giveOut does the whole job and judges the result. The error says why the job could not be finished. If it is
// [screen.ErrInterrupted], the result covers the work that was done before.
func giveOut(ctx context.Context, opts options, stdout, stderr io.Writer) (*result, error) {
	redis, err := deployment.Open(ctx, opts.redis)
	if err != nil {
		return nil, err
	}
	defer redis.Close()
	fmt.Fprintf(stdout, "redpacket   %s in %d parts, %d openids × %d requests at %d processes, lock: %s\nredis       %s\n",
		money(opts.cents), opts.parts, opts.openids, opts.requests, opts.processes, opts.lock, redis.Shown)

	p := packet{redis.Client}
	if err := p.fill(ctx, draw(opts.cents, opts.parts), opts.openids); err != nil {
		return nil, err
	}
	defer func() { _ = p.clear(context.WithoutCancel(ctx), opts.openids) }()
	outcome, stopped := crew.Run(ctx, opts.plan(redis.URL, stderr))
	if stopped != nil && !errors.Is(stopped, screen.ErrInterrupted) {
		return nil, stopped
	}
	ctx = context.WithoutCancel(ctx)
	cost, err := redis.Cost(ctx, outcome.Total.Commands)
	if err != nil {
		return nil, err
	}
	r, err := p.remains(ctx, opts.openids)
	if err != nil {
		return nil, err
	}
	v := judge(r, opts.parts, opts.cents)
	if stopped != nil { // only the parts that were given out were due
		v.due = v.served
	}
	return &result{opts: opts, verdict: v, interrupted: stopped != nil, outcome: outcome, cost: cost}, stopped
}

// plan returns the job as its crew needs it.
func (o options) plan(redis string, stderr io.Writer) crew.Plan[report] {
	return crew.Plan[report]{
		Processes: o.processes,
		Goal:      int64(o.openids) * int64(o.requests),
		Unit:      "requests",
		Stderr:    stderr,
		Role: func(name string, seat int) any {
			return role{
				Process: name, Seat: seat, Processes: o.processes, Openids: o.openids, Requests: o.requests, Lock: o.lock,
				Redis: redis,
			}
		},
	}
}
