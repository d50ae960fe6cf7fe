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

// A role is what a parent tells its child.
type role struct {
	Server  string // the child's name
	Workers int
	Keys    int64
	Lock    lockMode
	Lease   time.Duration
	Turn    time.Duration
	Redis   string
	DSN     string
}

// A report is what a child has done so far.
type report struct {
	Keys     int64  // numbers recorded
	Adopted  int64  // of these, numbers whose first holder did not live to record them
	Lost     int64  // holds that ended before their step did
	Commands uint64 // commands sent to Redis
}

// Plus adds two reports up.
func (r report) Plus(other report) report {
	return report{
		Keys: r.Keys + other.Keys, Adopted: r.Adopted + other.Adopted, Lost: r.Lost + other.Lost,
		Commands: r.Commands + other.Commands,
	}
}

// Done is how many numbers are recorded.
func (r report) Done() int64 { return r.Keys }

// tally counts what a child's workers do.
type tally struct{ keys, adopted, lost atomic.Int64 }

// play connects, and works when the parent says so.
func (r role) play(ctx context.Context, line *crew.Line[report]) error {
	table, err := r.openTable(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = table.close() }()

	lock, session, hangUp, err := r.openSection()
	if err != nil {
		return err
	}
	defer hangUp(ctx)

	counts := &tally{}
	w := worker{server: r.Server, keys: r.Keys, lock: lock, table: table, tally: counts}
	return line.Work(ctx, r.Workers,
		func() report { return counts.report(session) },
		func(ctx context.Context, _ int) error { return w.run(ctx) })
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

// openSection joins the lock, or does without. The session is nil then.
func (r role) openSection() (section, *reentrant.Session, func(context.Context), error) {
	if r.Lock == lockNone {
		return openSection{}, nil, func(context.Context) {}, nil
	}
	member, err := deployment.Join(r.Redis, r.options()...)
	if err != nil {
		return nil, nil, nil, err
	}
	hangUp := func(ctx context.Context) {
		if err := member.Leave(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "keygen %s: %v\n", r.Server, err)
		}
	}
	return relockSection{member.Session.NewLock(lockName)}, member.Session, hangUp, nil
}

// report reads the counters, and those of the session if there is one.
func (t *tally) report(session *reentrant.Session) report {
	r := report{Keys: t.keys.Load(), Adopted: t.adopted.Load(), Lost: t.lost.Load()}
	if session != nil {
		r.Commands = session.Stats().Commands
	}
	return r
}

// options are those of the session. A lock that is pushed to a waiter comes with a lease of three heartbeats, until it is
// renewed: as long as any other, see defaultLease.
func (r role) options() []reentrant.Option {
	opts := []reentrant.Option{reentrant.WithLease(r.Lease), reentrant.WithHeartbeat(r.Lease / 3), reentrant.WithHandoffTime(r.Turn)}
	if r.Lock == lockCohort {
		opts = append(opts, reentrant.WithCohort())
	}
	return opts
}
