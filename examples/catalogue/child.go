package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/examples/internal/crew"
	"github.com/relock-go/relock/examples/internal/deployment"
	"github.com/relock-go/relock/reentrant"
)

// A role is the work that the parent gives a child.
type role struct {
	Name       string // the child's
	Workers    int
	Items      int
	Reads      int // of each worker
	WriteEvery int
	CheckEvery int
	Lock       lockMode
	Lease      time.Duration
	Redis      string
	Path       string // of the database
}

// A report is what a child has done so far.
type report struct {
	Reads    int64 // prices served
	Writes   int64 // prices changed
	Checks   int64 // prices compared with their row
	Stale    int64 // how many of these were not the row's prices
	Queries  int64 // SQL queries for prices to serve
	Lost     int64 // holds that were lost before their work ended
	Commands uint64
}

// Plus returns the sum of two reports.
func (r report) Plus(o report) report {
	return report{
		Reads: r.Reads + o.Reads, Writes: r.Writes + o.Writes, Checks: r.Checks + o.Checks, Stale: r.Stale + o.Stale,
		Queries: r.Queries + o.Queries, Lost: r.Lost + o.Lost, Commands: r.Commands + o.Commands,
	}
}

// Done returns how many prices were served.
func (r report) Done() int64 { return r.Reads }

// tally counts what a child's workers do.
type tally struct{ reads, writes, checks, stale, lost atomic.Int64 }

// play connects, waits for the parent's start, and works.
func (r role) play(ctx context.Context, line *crew.Line[report]) error {
	prices, err := openStore(ctx, r.Path, r.Workers)
	if err != nil {
		return err
	}
	defer func() { _ = prices.close() }()
	if err := prices.prepare(ctx); err != nil {
		return err
	}
	shop, session, hangUp, err := r.open(prices)
	if err != nil {
		return err
	}
	defer hangUp(ctx)
	counts := &tally{}
	return line.Work(ctx, r.Workers,
		func() report { return counts.report(prices, session) },
		func(ctx context.Context, _ int) error { return r.work(ctx, shop, counts) })
}

// open opens the shop. Without a lock the session is nil.
func (r role) open(prices *store) (shop, *reentrant.Session, func(context.Context), error) {
	switch r.Lock {
	case lockNone:
		return &hopefulShop{&cache{store: prices}, prices}, nil, func(context.Context) {}, nil
	case lockSQL:
		return &plainShop{prices}, nil, func(context.Context) {}, nil
	}
	// A hold that is pushed to a waiter ends after three heartbeats unless it is renewed.
	member, err := deployment.Join(r.Redis, reentrant.WithLease(r.Lease), reentrant.WithHeartbeat(r.Lease/6),
		deployment.ReportLosses(r.Name))
	if err != nil {
		return nil, nil, nil, err
	}
	hangUp := func(ctx context.Context) {
		if err := member.Leave(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "catalogue %s: %v\n", r.Name, err)
		}
	}
	return &lockedShop{member.Session.NewRWLock(lockName), &cache{store: prices}, prices}, member.Session, hangUp, nil
}

// work is a worker. It serves prices, and from time to time changes one.
func (r role) work(ctx context.Context, shop shop, counts *tally) error {
	for n := 1; n <= r.Reads; n++ {
		check := n%r.CheckEvery == 0
		stale, err := shop.serve(ctx, rand.IntN(r.Items), check)
		if err == nil && n%r.WriteEvery == 0 {
			err = shop.change(ctx, rand.IntN(r.Items), rand.Int64())
			counts.writes.Add(1)
		}
		switch {
		case errors.Is(err, reentrant.ErrLost): // a price that was served under this hold does not count
			counts.lost.Add(1)
			continue
		case err != nil:
			return err
		}
		counts.reads.Add(1)
		if check {
			counts.checks.Add(1)
		}
		if stale {
			counts.stale.Add(1)
		}
	}
	return nil
}

// report reads the counters, and those of the session if there is one.
func (t *tally) report(prices *store, session *reentrant.Session) report {
	r := report{
		Reads: t.reads.Load(), Writes: t.writes.Load(), Checks: t.checks.Load(), Stale: t.stale.Load(), Lost: t.lost.Load(),
		Queries: prices.queries.Load(),
	}
	if session != nil {
		r.Commands = session.Stats().Commands
	}
	return r
}
