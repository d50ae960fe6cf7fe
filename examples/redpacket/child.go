package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/relock-go/relock/examples/internal/crew"
	"github.com/relock-go/relock/examples/internal/deployment"
	"github.com/relock-go/relock/reentrant"
)

// lease is longer than a busy machine stands still. The packet takes no token, so a holder that was stopped for longer could
// give a person a second part.
const lease = 30 * time.Second

// A role is the work that the parent gives a child.
type role struct {
	Process   string // the child's name
	Seat      int    // 1 for p1
	Processes int
	Openids   int
	Requests  int
	Lock      lockMode
	Redis     string
}

// A report is what a child has done so far.
type report struct {
	Granted  int64 // requests, by result
	Already  int64 //
	Late     int64 //
	Lost     int64 // holds that were lost before their request was done
	Commands int64 // commands that the lock sent to Redis
}

// Plus returns the sum of two reports.
func (r report) Plus(other report) report {
	return report{
		Granted: r.Granted + other.Granted, Already: r.Already + other.Already, Late: r.Late + other.Late,
		Lost: r.Lost + other.Lost, Commands: r.Commands + other.Commands,
	}
}

// Done returns how many requests are done.
func (r report) Done() int64 { return r.Granted + r.Already + r.Late }

// play connects, waits for the parent's start, and serves all requests at once. Each request has a goroutine of its own, which
// is the owner of the lock that it takes.
func (r role) play(ctx context.Context, line *crew.Line[report]) error {
	// A lock that is pushed to a waiter has a lease of three heartbeats until it is renewed. Here this is as long as any other
	// lease.
	member, err := deployment.Join(r.Redis, reentrant.WithLease(lease), reentrant.WithHeartbeat(lease/3),
		deployment.ReportLosses(r.Process))
	if err != nil {
		return err
	}
	defer func() {
		if err := member.Leave(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "redpacket %s: %v\n", r.Process, err)
		}
	}()
	d := &desk{
		packet: packet{member.Client}, session: member.Session, lock: r.Lock,
		requests: requestsAt(r.Seat, r.Processes, r.Openids, r.Requests),
	}
	return line.Work(ctx, len(d.requests), d.report, d.serve)
}

// report reads the counters.
func (d *desk) report() report {
	return report{
		Granted: d.answers[granted].Load(), Already: d.answers[already].Load(), Late: d.answers[late].Load(),
		Lost: d.lost.Load(), Commands: int64(d.session.Stats().Commands),
	}
}
