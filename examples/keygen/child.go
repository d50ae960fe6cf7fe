package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// A child is this same program, run with a role in childEnv. It and its parent speak lines:
//
//	parent → child   one line, once all children are ready; the end of the input means stop
//	child → parent   a report in JSON: ready, then working every reportEvery, then done
//
// So a child whose parent is gone ends too.
const (
	childEnv    = "RELOCK_KEYGEN_CHILD"
	reportEvery = 50 * time.Millisecond
	closeWithin = 5 * time.Second
)

// A role is what a parent tells its child.
type role struct {
	Server  string
	Workers int
	Keys    int64
	Lock    lockMode
	Lease   time.Duration
	Redis   string
	DSN     string
}

// A phase is how far a child is.
type phase string

const (
	phaseReady   phase = "ready"
	phaseWorking phase = "working"
	phaseDone    phase = "done"
)

// A report is what a child has done so far.
type report struct {
	Phase    phase
	Keys     int64  // numbers recorded
	Adopted  int64  // of these, numbers whose first holder did not live to record them
	Lost     int64  // holds that ended before their step did
	Commands uint64 // commands sent to Redis
}

// tally counts what a child's workers do.
type tally struct{ keys, adopted, lost atomic.Int64 }

// childMain plays a child's role, and gives the exit status.
func childMain(text string) int {
	// Ctrl-C in a terminal goes to all processes. The parent hears it and tells the children, so that each can give
	// back its locks.
	signal.Ignore(os.Interrupt)
	// With the parent gone, nobody reads the reports. That is to be an error like others, so that locks are given back.
	signal.Ignore(syscall.SIGPIPE)
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		fmt.Fprintf(os.Stderr, "keygen: role of the child: %v\n", err)
		return exitUsage
	}
	err := r.play(context.Background(), os.Stdin, os.Stdout)
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		fmt.Fprintf(os.Stderr, "keygen %s: %v\n", r.Server, err)
		return exitFinding
	}
	return exitClean
}

// play connects, waits for the start, works, and reports.
func (r role) play(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	ctx, start := listen(ctx, stdin)
	table, err := r.openTable(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = table.close() }()

	lock, session, hangUp, err := r.openSection(ctx)
	if err != nil {
		return err
	}
	defer hangUp()

	counts := &tally{}
	say := func(p phase) error { return r.say(stdout, p, counts, session) }
	if err := say(phaseReady); err != nil {
		return err
	}
	select {
	case <-start:
	case <-ctx.Done():
		return nil
	}
	err = r.work(ctx, say, func(ctx context.Context) error {
		w := worker{server: r.Server, keys: r.Keys, lock: lock, table: table, tally: counts}
		return w.run(ctx)
	})
	if err != nil {
		return err
	}
	return say(phaseDone)
}

// listen gives a channel that is closed by the parent's line, and a context that ends with the parent's input.
func listen(ctx context.Context, stdin io.Reader) (context.Context, <-chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	start := make(chan struct{})
	go func() {
		defer cancel()
		lines := bufio.NewScanner(stdin)
		if lines.Scan() {
			close(start)
		}
		for lines.Scan() { // until the end
		}
	}()
	return ctx, start
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
func (r role) openSection(ctx context.Context) (section, *reentrant.Session, func(), error) {
	if r.Lock == lockNone {
		return openSection{}, nil, func() {}, nil
	}
	backend, err := redisbackend.Open(ctx, r.Redis)
	if err != nil {
		return nil, nil, nil, err
	}
	session, err := reentrant.NewSession(backend, reentrant.WithLease(r.Lease))
	if err != nil {
		backend.Close()
		return nil, nil, nil, err
	}
	hangUp := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
		defer cancel()
		if err := session.Close(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "keygen %s: close the session: %v\n", r.Server, err)
		}
		backend.Close()
	}
	return relockSection{session.NewLock(lockName)}, session, hangUp, nil
}

// work runs the workers, each in its own goroutine, and reports until all are done. The first error ends the others;
// being told to stop is none.
func (r role) work(parent context.Context, say func(phase) error, run func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var workers sync.WaitGroup
	for range r.Workers {
		workers.Go(func() {
			if err := run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	finished := make(chan struct{})
	go func() {
		workers.Wait()
		close(finished)
	}()
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-finished:
			if parent.Err() != nil {
				return nil
			}
			return context.Cause(ctx)
		case <-tick.C:
			if err := say(phaseWorking); err != nil {
				cancel(err)
			}
		}
	}
}

// say writes one report.
func (r role) say(stdout io.Writer, p phase, counts *tally, session *reentrant.Session) error {
	line := report{Phase: p, Keys: counts.keys.Load(), Adopted: counts.adopted.Load(), Lost: counts.lost.Load()}
	if session != nil {
		line.Commands = session.Stats().Commands
	}
	if err := json.NewEncoder(stdout).Encode(line); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
