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
	Process   string // the child's name
	Seat      int    // 1 for p1 and for each process that replaces it
	Processes int
	Producers int // in each process
	Consumers int
	Items     int64
	Capacity  int64
	Lock      lockMode
	Lease     time.Duration
	Redis     string
}

// A report is what a child has done since it started.
type report struct {
	Put      int64 // items
	Taken    int64 //
	Full     int64 // how often a worker waited because the buffer was full
	Empty    int64 // how often a worker waited because the buffer was empty
	Lost     int64 // holds that were lost before their turn ended
	Commands int64 // commands sent to Redis: the lock's, and the buffer's scripts
}

// Plus returns the sum of two reports.
func (r report) Plus(other report) report {
	return report{
		Put: r.Put + other.Put, Taken: r.Taken + other.Taken, Full: r.Full + other.Full, Empty: r.Empty + other.Empty,
		Lost: r.Lost + other.Lost, Commands: r.Commands + other.Commands,
	}
}

// Done returns how many items have come out of the buffer.
func (r report) Done() int64 { return r.Taken }

// A workplace is what the workers of a child share.
type workplace struct {
	role  role
	lock  *reentrant.Lock
	store *store
	did   tally
}

// play connects, waits for the parent's start, and works.
func (r role) play(ctx context.Context, line *crew.Line[report]) error {
	member, err := deployment.Join(r.Redis, reentrant.WithLease(r.Lease), deployment.ReportLosses(r.Process))
	if err != nil {
		return err
	}
	defer func() {
		if err := member.Leave(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "buffer %s: %v\n", r.Process, err)
		}
	}()
	s := &workplace{role: r, lock: member.Session.NewLock(lockName), store: &store{client: member.Client}}
	return line.Work(ctx, r.Producers+r.Consumers,
		func() report { return s.did.report(s.store.commands.Load() + int64(member.Session.Stats().Commands)) },
		s.work)
}

// work is one worker. The first workers are producers, and the others consumers.
func (w *workplace) work(ctx context.Context, worker int) error {
	notFull, notEmpty := w.lock.NewCondition("not full"), w.lock.NewCondition("not empty")
	if worker >= w.role.Producers {
		c := consumer{process: w.role.Process, items: w.role.Items, store: w.store, did: &w.did}
		return repeat(ctx, w.turnstile(notEmpty, notFull, &w.did.idle.empty), c.step)
	}
	p := producer{
		number: (w.role.Seat-1)*w.role.Producers + worker, producers: w.role.Processes * w.role.Producers,
		items: w.role.Items, capacity: w.role.Capacity, store: w.store, did: &w.did,
	}
	return repeat(ctx, w.turnstile(notFull, notEmpty, &w.did.idle.full), p.step)
}

func (w *workplace) turnstile(wait, wake *reentrant.Condition, waits *atomic.Int64) turnstile {
	if w.role.Lock == lockNone {
		return openDoor{}
	}
	return &monitor{lock: w.lock, wait: wait, wake: wake, waits: waits, lost: &w.did.lost}
}

// report reads the counters.
func (t *tally) report(commands int64) report {
	return report{
		Put: t.put.Load(), Taken: t.taken.Load(), Full: t.idle.full.Load(), Empty: t.idle.empty.Load(),
		Lost: t.lost.Load(), Commands: commands,
	}
}
