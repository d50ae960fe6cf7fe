package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/examples/internal/crew"
	"github.com/relock-go/relock/examples/internal/deployment"
	"github.com/relock-go/relock/reentrant"
)

// A role is the work that the parent gives a child.
type role struct {
	Server  string // the child's name
	Workers int
	Keys    int64
	IDs     idMode
	Nodes   int // with IDs snowflake: how many node numbers there are
	Lock    lockMode
	Lease   time.Duration
	Turn    time.Duration
	Redis   string
	DSN     string
}

// A report is what a child has done since it started.
type report struct {
	Keys     int64  // numbers recorded
	Adopted  int64  // how many of these have a first holder that died before it recorded them
	Lost     int64  // holds that were lost before their step ended
	Commands uint64 // commands sent to Redis
}

// Plus returns the sum of two reports.
func (r report) Plus(other report) report {
	return report{
		Keys: r.Keys + other.Keys, Adopted: r.Adopted + other.Adopted, Lost: r.Lost + other.Lost,
		Commands: r.Commands + other.Commands,
	}
}

// Done returns how many numbers are recorded.
func (r report) Done() int64 { return r.Keys }

// tally counts what a child's workers do.
type tally struct{ keys, adopted, lost atomic.Int64 }

// play connects, waits for the parent's start, and works.
func (r role) play(ctx context.Context, line *crew.Line[report]) error {
	table, err := r.openTable(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = table.close() }()

	member, hangUp, err := r.join()
	if err != nil {
		return err
	}
	defer hangUp(ctx)

	counts := &tally{}
	run := r.worker(member, table, counts)
	return line.Work(ctx, r.Workers,
		func() report { return counts.report(member) },
		func(ctx context.Context, _ int) error { return run(ctx) })
}

// worker returns the function of a worker. Without a lock member is nil.
func (r role) worker(member *deployment.Member, table *database, counts *tally) func(ctx context.Context) error {
	if r.IDs == idsSnowflake {
		d := drawer{server: r.Server, join: joinNothing, time: localTime, table: table, tally: counts}
		if member != nil {
			d.join, d.time = joinSlots(member.Session.NewSemaphore(nodesName, r.Nodes)), redisTime(member.Client)
		}
		return d.run
	}
	w := worker{server: r.Server, keys: r.Keys, lock: openSection{}, table: table, tally: counts}
	if member != nil {
		w.lock = relockSection{member.Session.NewLock(lockName)}
	}
	return w.run
}

// openTable connects to the database that the parent has prepared.
func (r role) openTable(ctx context.Context) (*database, error) {
	src, err := parseSource(r.DSN)
	if err != nil {
		return nil, err
	}
	table, err := openDatabase(ctx, src, r.Workers)
	if err != nil {
		return nil, err
	}
	if err := table.prepare(ctx); err != nil {
		_ = table.close()
		return nil, err
	}
	return table, nil
}

// join connects to Redis, unless there is no lock.
func (r role) join() (*deployment.Member, func(context.Context), error) {
	if r.Lock == lockNone {
		return nil, func(context.Context) {}, nil
	}
	member, err := deployment.Join(r.Redis, r.options()...)
	if err != nil {
		return nil, nil, err
	}
	return member, func(ctx context.Context) {
		if err := member.Leave(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "keygen %s: %v\n", r.Server, err)
		}
	}, nil
}

// report reads the counters, and if there is a session, the session's counters.
func (t *tally) report(member *deployment.Member) report {
	r := report{Keys: t.keys.Load(), Adopted: t.adopted.Load(), Lost: t.lost.Load()}
	if member != nil {
		r.Commands = member.Session.Stats().Commands
	}
	return r
}

// options returns the options of the session. A lock that is pushed to a waiter has a lease of three heartbeats until it is
// renewed. Here this is as long as any other lease: see defaultLease.
func (r role) options() []reentrant.Option {
	opts := []reentrant.Option{
		reentrant.WithLease(r.Lease), reentrant.WithHeartbeat(r.Lease / 3), reentrant.WithTurn(0, r.Turn),
		deployment.ReportLosses(r.Server),
	}
	if r.Lock == lockCohort {
		opts = append(opts, reentrant.WithCohort())
	}
	return opts
}
