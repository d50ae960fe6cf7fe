package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/rpc"
	"os"
	"sync"
	"time"

	"github.com/relock-go/relock/faults/history"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// A child is this test binary, run with its role in the environment variable childEnv. The child works until its input ends, so
// it also ends when its parent has died.
const childEnv = "RELOCK_FAULTS_CHILD"

// A role is the work that the parent gives to a child.
type role struct {
	Name      string
	Redis     string // address of Redis
	Register  string // address of the register
	History   string // the file for its operations
	Locks     []string
	Workers   int
	Lease     time.Duration
	Heartbeat time.Duration
	Seed      uint64
	// Cohort: owners of the session hand the lock over to each other without a command, and the session keeps it for
	// Linger.
	Cohort bool
	Linger time.Duration
	// Shared: Locks are names of read-write locks, and there is a semaphore.
	Shared bool
}

// childMain plays a role, and returns the exit status.
func childMain(text string) int {
	var r role
	err := json.Unmarshal([]byte(text), &r)
	if err == nil {
		err = r.play()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "child %s: %v\n", r.Name, err)
		return 1
	}
	return 0
}

func (r role) play() error {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	log, err := history.NewLog(r.History)
	if err != nil {
		return err
	}
	session, hangUp, err := r.open(ctx)
	if session == nil {
		return err
	}
	register, err := rpc.Dial("tcp", r.Register)
	if err != nil {
		return err
	}
	var workers sync.WaitGroup
	for i := range r.Workers {
		w := &worker{
			role: r, name: clientName(r.Name, i), log: log, register: register, session: session,
			random: rand.New(rand.NewPCG(r.Seed, uint64(i))),
		}
		workers.Go(func() {
			if r.Shared {
				w.share(ctx)
			} else {
				w.work(ctx)
			}
		})
	}
	workers.Wait()
	return errors.Join(hangUp(), register.Close(), log.Close())
}

// open opens the session. It tries again while faults prevent that, and returns nil if it is stopped before it
// succeeds.
func (r role) open(ctx context.Context) (*reentrant.Session, func() error, error) {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for ctx.Err() == nil {
		backend, err := redisbackend.Open(ctx, "redis://"+r.Redis)
		if err != nil {
			logger.Warn("open", "error", err)
			time.Sleep(r.Heartbeat / 4) // the pause between tries
			continue
		}
		opts := []reentrant.Option{
			reentrant.WithLease(r.Lease), reentrant.WithHeartbeat(r.Heartbeat), reentrant.WithLogger(logger),
		}
		if r.Cohort {
			opts = append(opts, reentrant.WithCohort(), reentrant.WithLinger(r.Linger))
		}
		session, err := reentrant.NewSession(backend, opts...)
		if err != nil {
			logger.Warn("open", "error", err)
			backend.Close()
			continue
		}
		return session, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			err := session.Close(ctx)
			backend.Close()
			return err
		}, nil
	}
	return nil, nil, nil
}

// clientName returns the name of a worker in histories.
func clientName(process string, worker int) string { return fmt.Sprintf("%s/%d", process, worker) }

// A worker is a goroutine of a child. It acquires locks in every way, and records what happened.
type worker struct {
	role
	name     string
	log      *history.Log
	register *rpc.Client
	session  *reentrant.Session
	random   *rand.Rand
}

// The times and sizes of critical sections. Few sections last longer than a lease, so that renewals matter.
const (
	pace       = 4 * time.Millisecond
	longOneIn  = 60
	lookEvery  = 20 * time.Millisecond
	mostHolds  = 3
	lockFor    = 3 * time.Second
	tryFor     = 300 * time.Millisecond
	callWithin = 5 * time.Second // for calls that must be completed even when the child is stopped
)

func (w *worker) work(ctx context.Context) {
	for ctx.Err() == nil {
		l := w.session.NewLock(w.Locks[w.random.IntN(len(w.Locks))])
		if w.acquire(ctx, l) {
			w.section(ctx, l)
		}
		w.sleep(pace)
	}
}

// section is what a worker does with a lock: the worker re-enters the lock some times, updates the register, checks the lock,
// and releases it as often as it was acquired.
func (w *worker) section(ctx context.Context, l *reentrant.Lock) {
	holds := 1
	for range w.random.IntN(mostHolds) {
		if w.acquire(ctx, l) {
			holds++
		}
	}
	if w.random.IntN(2) == 0 {
		w.verify(l)
	}
	w.update(l)
	if w.random.IntN(longOneIn) == 0 {
		for end := time.Now().Add(w.Lease * 3 / 2); time.Now().Before(end) && w.look(l); {
			time.Sleep(lookEvery) // the pause between checks
		}
	}
	for range holds {
		w.look(l)
		w.unlock(l)
	}
}

// update reads the register and writes the value plus one.
func (w *worker) update(l *reentrant.Lock) {
	token, err := l.Token(context.Background())
	if err != nil {
		return
	}
	claim, value := Claim{Client: w.name, Lock: l.Name(), Token: uint64(token)}, Value{}
	if err := w.register.Call("Register.Read", claim, &value); err != nil || value.Refused {
		return
	}
	w.sleep(pace)
	claim.Version = value.Version
	_ = w.register.Call("Register.Write", claim, &value) // the register knows whether it accepted the write
}

// sleep is the pause between two sections.
func (w *worker) sleep(most time.Duration) { time.Sleep(time.Duration(w.random.Int64N(int64(most)))) }

// do records an operation that may never return.
func (w *worker) do(l *reentrant.Lock, kind history.Kind, run func() error) (op history.Op) {
	return w.record(history.Op{Lock: l.Name(), Kind: kind}, run)
}

// record records the call of an operation. It returns the entry to be recorded when the operation returns.
func (w *worker) record(op history.Op, run func() error) history.Op {
	op.Process, op.Client, op.Call = w.Name, w.name, history.Now()
	w.write(op)
	err := run()
	op.Return = history.Now()
	op.Outcome = outcome(op.Kind, err)
	if err != nil {
		op.Note = err.Error()
	}
	return op
}

func (w *worker) write(op history.Op) {
	if err := w.log.Write(op); err != nil {
		panic(err) // without its history a child is useless
	}
}

// errNot is returned when another owner has the lock.
var errNot = errors.New("not taken")

func outcome(kind history.Kind, err error) history.Outcome {
	switch {
	case err == nil:
		return history.OK
	case errors.Is(err, reentrant.ErrLost):
		return history.Lost
	case errors.Is(err, reentrant.ErrNotHeld):
		return history.NotHeld
	case errors.Is(err, errUntold):
		return history.Untold
	case kind == history.Unlock:
		return history.Unknown
	}
	return history.No
}

// acquire takes the lock in one of the possible ways.
func (w *worker) acquire(ctx context.Context, l *reentrant.Lock) bool {
	op := w.do(l, history.Acquire, func() error {
		switch w.random.IntN(4) {
		case 0:
			return taken(l.TryLock(ctx))
		case 1:
			return taken(l.TryLockFor(ctx, time.Duration(w.random.Int64N(int64(tryFor)))))
		case 2:
			ctx, cancel := context.WithTimeout(ctx, time.Duration(w.random.Int64N(int64(tryFor))))
			defer cancel()
			return l.Lock(ctx)
		default:
			ctx, cancel := context.WithTimeout(ctx, lockFor)
			defer cancel()
			return l.Lock(ctx)
		}
	})
	if op.Outcome == history.OK {
		token, _ := l.Token(context.Background()) // there is no token if the lock has been lost by now
		op.Token = uint64(token)
	}
	w.write(op)
	if op.Outcome == history.OK && op.Token == 0 {
		w.look(l) // the worker learns of the loss, so its next acquire is not a re-entry
	}
	return op.Outcome == history.OK
}

func taken(ok bool, err error) error {
	if err == nil && !ok {
		err = errNot
	}
	return err
}

func (w *worker) unlock(l *reentrant.Lock) {
	w.write(w.do(l, history.Unlock, func() error { return l.Unlock(context.Background()) }))
}

func (w *worker) verify(l *reentrant.Lock) {
	ctx, cancel := context.WithTimeout(context.Background(), callWithin)
	defer cancel()
	w.write(w.do(l, history.Verify, func() error { return l.Verify(ctx) }))
}

// look asks whether the lock is held. That sends no command. The call is recorded only when it has returned: a call that does
// not return shows nothing.
func (w *worker) look(l *reentrant.Lock) bool {
	op := history.Op{Process: w.Name, Client: w.name, Lock: l.Name(), Kind: history.Look, Call: history.Now()}
	held := l.IsHeldByCurrentOwner(context.Background())
	op.Return = history.Now()
	op.Outcome = history.Lost
	if held {
		op.Outcome = history.OK
	}
	w.write(op)
	return held
}
