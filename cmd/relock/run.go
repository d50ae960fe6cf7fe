//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/relock-go/relock/reentrant"
)

// runCommand is `relock run`.
type runCommand struct {
	lockName
	Command []string       `arg:"" passthrough:"partial" help:"The command and its arguments; relock's own options come before it."`
	Wait    *time.Duration `placeholder:"DURATION" help:"How long to wait for the lock; 0 tries once. Default: for ever."`
	Lease   time.Duration  `default:"10s" help:"How long others wait after a crash of this machine, and about how long an outage of Redis may last before the command is ended."`
	Grace   *time.Duration `placeholder:"DURATION" help:"What the command gets between TERM and KILL; at most a third of the lease. Default: a fifth of it."`

	deadline deadline
}

// Help is shown by --help.
func (c *runCommand) Help() string {
	return `relock run [OPTION…] NAME -- COMMAND [ARGUMENT…]

The command runs in a process group of its own, with RELOCK_NAME, RELOCK_TOKEN (the fencing token), RELOCK_SESSION, RELOCK_SESSIONS (those of the runs around it, too) and RELOCK_OWNER in its environment. Signals are passed on to it. When it exits, what is left of its group is ended, and then the lock is given back.

If the lock is lost, or Redis does not answer for too long, the group gets TERM, and KILL after --grace: early enough to be dead before Redis can give the lock to another.

Exit status: the command's own, or 128 plus the signal that ended it; and
   64  usage; or a run around this one has the lock
   69  Redis cannot be reached, or refuses
   75  the lock was not to be had within --wait
   79  the lock was lost, and the command was ended
  126  the command cannot be executed
  127  the command was not found`
}

// Validate is called by the parser.
func (c *runCommand) Validate() (err error) {
	if err := c.lockName.Validate(); err != nil {
		return err
	}
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	if len(c.Command) == 0 {
		return errors.New("the command is missing: relock run [OPTION…] NAME -- COMMAND [ARGUMENT…]")
	}
	if c.Wait != nil && *c.Wait < 0 {
		return fmt.Errorf("--wait %v: must not be negative", *c.Wait)
	}
	c.deadline, err = newDeadline(c.Lease, c.Grace)
	return err
}

// Run is the whole command: find the program, take the lock, run the program under it, give the lock back.
func (c *runCommand) Run(s *server, std *streams) error {
	program, err := lookPath(c.Command[0])
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 16)
	notify(signals) // to the very end, when it is said how it went

	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	h := &hold{deadline: c.deadline, stderr: std.err}
	var status int
	err = untilSignal(signals, cancel, func() error { return h.take(ctx, s, c.Name, c.Wait) })
	if err == nil {
		status, err = h.run(&command{program: program, args: c.Command}, signals)
	}
	if released := h.giveBack(); err == nil {
		err = released
	}
	if err == nil && status != 0 {
		err = fail(status, nil)
	}
	return err
}

// untilSignal calls f, and ends its context when a signal that means the end arrives. The signal is then the error.
func untilSignal(signals <-chan os.Signal, cancel context.CancelCauseFunc, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	var got syscall.Signal
	for {
		select {
		case err := <-done:
			if got != 0 {
				return failf(exitSignal+int(got), "%v while waiting for the lock", got)
			}
			return err
		case sig := <-signals:
			if slices.Contains(endings, sig) {
				got = sig.(syscall.Signal)
				cancel(errors.New(got.String()))
			}
		}
	}
}

var endings = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// A hold is the lock while the command runs.
type hold struct {
	deadline deadline
	stderr   io.Writer

	session *reentrant.Session
	close   func()
	lock    *reentrant.Lock
	name    string          // of the owner
	owner   context.Context // carries it, and does not end
	held    bool
	token   reentrant.Token
}

// take takes the lock, with a full lease.
func (h *hold) take(ctx context.Context, s *server, name string, wait *time.Duration) (err error) {
	h.session, h.close, err = s.open(ctx, reentrant.WithLease(h.deadline.lease))
	if err != nil {
		return err
	}
	// A name says more to who inspects the lock than a goroutine's number, and the hold is given back by others.
	h.name = hostname() + ":" + strconv.Itoa(os.Getpid())
	h.owner, ctx = reentrant.WithOwner(context.Background(), h.name), reentrant.WithOwner(ctx, h.name)
	h.lock = h.session.NewLock(name)
	if err := refuseNested(ctx, h.lock); err != nil {
		return err
	}
	return h.stand(ctx, wait)
}

// stand stands in line for the lock until it has a full lease. A lock that is lost before, because relock was paused
// with the short lease of a push or somebody forced it open, protected nothing yet: what is left of wait is for other
// tries. Whoever loses it ten times is told.
func (h *hold) stand(ctx context.Context, wait *time.Duration) error {
	began := time.Now()
	for range mostLosses {
		if err := acquire(ctx, h.lock, wait, began); err != nil {
			return err
		}
		h.held = true
		err := h.confirm(ctx)
		if !errors.Is(err, reentrant.ErrLost) {
			return err
		}
		_ = h.lock.Unlock(ctx) // it is owed for the hold that was lost
		h.held = false
	}
	return failf(exitLost, "lock %s was lost %d times before the command began", shown(h.lock.Name()), mostLosses)
}

const mostLosses = 10

// confirm gives the lock a full lease, and finds out until when it is ours. ErrLost says that it is not.
func (h *hold) confirm(ctx context.Context) (err error) {
	if err := renew(ctx, h.lock); err != nil {
		return err
	}
	if h.token, err = h.lock.Token(ctx); err != nil {
		return err
	}
	var a answer
	err = patiently(func() error {
		a = h.ask(ctx)
		return a.err
	})
	switch {
	case err != nil:
		return err
	case a.gone:
		return reentrant.ErrLost
	}
	h.deadline = h.deadline.confirmed(a.asked, a.state)
	return nil
}

// sessionsVariable lists the sessions of the runs that a command is a part of, the outermost first.
const sessionsVariable = "RELOCK_SESSIONS"

// refuseNested fails if a run that this one is a part of has the lock: each would wait for the other's end.
func refuseNested(ctx context.Context, l *reentrant.Lock) error {
	around := strings.Fields(os.Getenv(sessionsVariable))
	if len(around) == 0 {
		return nil
	}
	st, err := lookAt(ctx, l)
	if err == nil && st.Locked && slices.Contains(around, st.Session) {
		return failf(exitUsage, "lock %s is already held by the relock run that this one is a part of: it would wait for itself",
			shown(l.Name()))
	}
	return err
}

// renew makes the lease a full one now, by re-entry: a lock that was pushed to us comes with a short one, until the
// session's next renewal, and the grace has to fit into it. It is done by TryLock: a hold of which nothing is left by now
// cannot be re-entered, and this is not the place to stand in line.
func renew(ctx context.Context, l *reentrant.Lock) error {
	if fault == faultShort {
		return nil
	}
	ok, err := l.TryLock(ctx)
	switch {
	case err != nil:
		return err
	case !ok:
		return reentrant.ErrLost
	}
	return l.Unlock(ctx)
}

// acquire takes the lock within wait since it began; nil is for ever.
func acquire(ctx context.Context, l *reentrant.Lock, wait *time.Duration, began time.Time) error {
	if wait == nil {
		return l.Lock(ctx)
	}
	ok, err := l.TryLockFor(ctx, *wait-time.Since(began))
	if err == nil && !ok {
		return failf(exitNotAcquired, "lock %s was not to be had%s", shown(l.Name()), holder(ctx, l))
	}
	return err
}

// holder names who has the lock, if that can be found out.
func holder(ctx context.Context, l *reentrant.Lock) string {
	st, err := lookAt(ctx, l)
	if err != nil {
		return ""
	}
	return heldBy(st)
}

// giveBack unlocks and closes the session, as far as Redis answers in time: the lease is the hedge. The command has
// ended while the lock was ours unless ErrLost says otherwise, so a Redis that is silent now only costs others time.
func (h *hold) giveBack() error {
	if h.session == nil {
		return nil
	}
	unlocked, closed := make(chan error, 1), make(chan struct{})
	go func() {
		unlocked <- h.unlock()
		h.close()
		close(closed)
	}()
	patient, until := closeTimeout, time.Now().Add(h.deadline.lease)
	if !h.deadline.until.IsZero() { // when the lease has ended, there is nothing to give back
		until = h.deadline.until
		patient = min(patient, time.Until(until))
	}
	limit := time.NewTimer(patient)
	defer limit.Stop()
	err := errors.New("no answer from Redis")
	select {
	case err = <-unlocked:
		select {
		case <-closed:
		case <-limit.C:
		}
	case <-limit.C:
	}
	switch {
	case errors.Is(err, reentrant.ErrLost):
		return failf(exitLost, "lock %s was lost while the command ran", shown(h.lock.Name()))
	case err != nil && time.Now().Before(until):
		fmt.Fprintf(h.stderr, "relock: the lock stays taken for up to %v: %v\n", time.Until(until).Round(time.Millisecond), err)
	}
	return nil
}

// unlock gives up the hold, if there is one.
func (h *hold) unlock() error {
	if !h.held {
		return nil
	}
	return h.lock.Unlock(h.owner)
}

// environment is what the command is told.
func (h *hold) environment() []string {
	return append(os.Environ(),
		"RELOCK_NAME="+h.lock.Name(),
		"RELOCK_TOKEN="+strconv.FormatUint(uint64(h.token), 10),
		"RELOCK_SESSION="+h.session.ID(),
		sessionsVariable+"="+strings.TrimSpace(os.Getenv(sessionsVariable)+" "+h.session.ID()),
		"RELOCK_OWNER="+h.name)
}

// An answer is what Redis said of the lock.
type answer struct {
	asked time.Time // before the question was sent
	state reentrant.State
	gone  bool // it is not ours any more
	err   error
}

// ask asks Redis.
func (h *hold) ask(ctx context.Context) answer {
	a := answer{asked: time.Now()}
	a.state, a.err = h.lock.Inspect(ctx)
	a.gone = a.err == nil && (!a.state.Locked || a.state.Session != h.session.ID() || a.state.Token != h.token)
	return a
}

// askOften asks again and again, until ctx ends. The deadline is not its own.
func (h *hold) askOften(ctx context.Context, pause time.Duration, answers chan<- answer) {
	for {
		select {
		case answers <- h.ask(ctx):
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}
