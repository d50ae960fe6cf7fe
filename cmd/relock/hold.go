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

// A hold is a lock that relock holds while the command runs.
type hold struct {
	server   *server
	deadline deadline
	stderr   io.Writer
	quiet    bool // only errors are printed

	session *reentrant.Session
	close   func()
	lock    lock
	name    string          // the owner's name
	owner   context.Context // carries the owner, and does not end
	held    bool
	silent  bool            // Redis did not answer when relock gave up waiting for the lock
	token   reentrant.Token // for a reader the version; 0 for a permit
}

func newHold(s *server, stderr io.Writer, d deadline) *hold {
	return &hold{server: s, stderr: stderr, deadline: d}
}

// during takes the lock, calls f while it is held, and gives the lock back. It returns f's result, as an error with an
// exit status.
func (h *hold) during(name string, kind sharing, w waiting, f func(signals <-chan os.Signal) (status int, err error)) error {
	h.quiet = w.Quiet
	signals := make(chan os.Signal, 16)
	notify(signals) // until the end, so that no signal stops the last message

	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	err := w.status(untilSignal(signals, cancel, func() error { return h.take(ctx, name, kind, w.limit()) }))
	h.silent = h.silent || errors.Is(err, reentrant.ErrUnavailable)
	status := 0
	if err == nil {
		status, err = f(signals)
	}
	released, kept := h.giveBack()
	if err == nil {
		err = released
	}
	if err == nil && status != 0 {
		err = fail(status, nil)
	}
	return conclude(err, kept, h.stderr)
}

// conclude prints err and then kept, and returns the exit status of err.
func conclude(err, kept error, stderr io.Writer) error {
	if kept == nil {
		return err
	}
	status := report(err, stderr)
	fmt.Fprintln(stderr, "relock:", words(kept))
	return fail(status, nil)
}

// untilSignal calls f, and cancels its context when one of the ending signals arrives. The error then names the signal.
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

// take opens the session and takes the lock, with a full lease. Both have to be done within wait; nil means no limit.
func (h *hold) take(ctx context.Context, name string, kind sharing, wait *time.Duration) (err error) {
	began := time.Now()
	h.session, h.close, err = h.server.openWithin(ctx, wait, reentrant.WithLease(h.deadline.lease))
	if err != nil {
		return err
	}
	// relock inspect shows the owner's name, which is more useful than a goroutine's number. And the goroutine that unlocks is
	// not the one that locks.
	h.name = ownerName(hostname(), os.Getpid())
	h.owner, ctx = reentrant.WithOwner(context.Background(), h.name), reentrant.WithOwner(ctx, h.name)
	h.lock, ctx = kind.lock(h.session, name), reentrant.WithNote(ctx, kind.Note)
	if err = refuseNested(ctx, h.lock); err == nil {
		err = h.acquireConfirmed(ctx, wait, began)
	}
	return withFlags(ctx, err, h.session, name)
}

// acquireConfirmed waits for the lock until relock has it with a full lease. If the lock is lost before that, because
// relock was paused while it had the short lease of a grant, or the lock was forced open, it has protected nothing yet,
// and the rest of wait, which counts from began, is for further tries. After ten losses acquireConfirmed fails.
func (h *hold) acquireConfirmed(ctx context.Context, wait *time.Duration, began time.Time) error {
	for range mostLosses {
		err := h.acquire(ctx, wait, began)
		if err != nil {
			return err
		}
		h.held = true
		err = h.confirmWithin(ctx, wait, began)
		if !errors.Is(err, reentrant.ErrLost) {
			return err
		}
		_ = h.lock.Unlock(ctx) // the lost hold still needs its Unlock
		h.held = false
	}
	return failf(exitLost, "lock %s was lost %d times before the command began", shown(h.lock.Name()), mostLosses)
}

const mostLosses = 10

// confirmWithin is confirm with a time limit: what is left of wait, counted from began. The command has not begun yet, so relock
// does not wait longer for a server that falls silent.
func (h *hold) confirmWithin(ctx context.Context, wait *time.Duration, began time.Time) error {
	if wait == nil {
		return h.confirm(ctx)
	}
	return within(ctx, max(*wait-time.Since(began), leastToConfirm), h.confirm)
}

// leastToConfirm is as long as the session itself gives a command.
const leastToConfirm = 2 * time.Second

// confirm waits until the lock has a full lease, and sets the deadline. A lock that was granted to a waiter has a short
// lease until the session's next renewal, and the grace may not fit into that. While Redis is silent the session goes on
// renewing, so confirm goes on asking. It returns ErrLost if this session no longer has the lock.
func (h *hold) confirm(ctx context.Context) (err error) {
	if err := h.lock.renew(ctx); err != nil && !silent(ctx, err) {
		return err
	}
	if h.token, err = h.lock.Token(ctx); err != nil {
		return err
	}
	lost := h.lock.Lost(ctx)
	for {
		a := h.ask(ctx)
		switch {
		case a.err != nil && !silent(ctx, a.err):
			return a.err
		case a.gone:
			return reentrant.ErrLost
		case a.err == nil && h.deadline.renewed(a.left):
			h.deadline = h.deadline.confirmed(a.asked, a.left)
			return nil
		}
		select {
		case <-lost:
			return reentrant.ErrLost
		case <-time.After(renewalPoll):
		}
	}
}

// silent reports whether err says that Redis did not reply, or could not be reached, rather than that it refused or that
// ctx ended.
func silent(ctx context.Context, err error) bool {
	return ctx.Err() == nil && errors.Is(err, reentrant.ErrUnavailable) && !errors.Is(err, reentrant.ErrLost)
}

// renewalPoll is the interval at which confirm looks whether the session has renewed the short lease. The session does
// so within a heartbeat.
const renewalPoll = 50 * time.Millisecond

// sessionsVariable is the variable that lists the sessions of the runs that a command is a part of, the outermost first.
const sessionsVariable = "RELOCK_SESSIONS"

// refuseNested fails if a run that this one is a part of has the lock, or a part of it: each would wait for the other's
// end. Two readers would too, if a writer waits between them.
func refuseNested(ctx context.Context, l lock) error {
	around := strings.Fields(os.Getenv(sessionsVariable))
	if len(around) == 0 {
		return nil
	}
	st, err := lookAt(ctx, l)
	if err == nil && slices.ContainsFunc(around, st.heldBy) {
		return failf(exitUsage, "lock %s is already held by the relock run that this one is a part of: it could wait for itself",
			shown(l.Name()))
	}
	return err
}

// acquire takes the lock within wait, counted from began; nil means no limit. Meanwhile it reports what it waits for.
func (h *hold) acquire(ctx context.Context, wait *time.Duration, began time.Time) error {
	if wait == nil || *wait > 0 {
		watching, stop := context.WithCancel(ctx)
		defer stop()
		if !h.quiet {
			go newWaitReporter(h).follow(watching)
		}
	}
	if wait == nil {
		return h.lock.acquire(ctx)
	}
	ok, err := h.lock.TryLockFor(ctx, *wait-time.Since(began))
	if err == nil && !ok {
		return failf(exitNotAcquired, "lock %s was not acquired%s", shown(h.lock.Name()), h.holder(ctx))
	}
	return err
}

// holder describes the holder of the lock. It returns "" if Redis does not name one within lateTime.
func (h *hold) holder(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, lateTime)
	defer cancel()
	st, err := h.lock.look(ctx)
	if err != nil {
		h.silent = true
		return ""
	}
	return st.reason()
}

// lateTime bounds what relock does after it has given up waiting for the lock.
const lateTime = time.Second

// giveBack unlocks and closes the session, if Redis replies in time; otherwise the lease ends by itself. Unless err is
// ErrLost the command has ended while this session had the lock, so a silent Redis only costs other sessions time; kept
// says how much.
func (h *hold) giveBack() (err, kept error) {
	if h.session == nil {
		return nil, nil
	}
	unlocked, closed := make(chan error, 1), make(chan struct{})
	go func() {
		unlocked <- h.unlock()
		h.close()
		close(closed)
	}()
	patient, until := h.patience(), time.Now().Add(h.deadline.lease)
	if !h.deadline.until.IsZero() { // when the lease has ended there is no hold to give back
		until = h.deadline.until
		patient = min(patient, time.Until(until))
	}
	limit := time.NewTimer(patient)
	defer limit.Stop()
	err = errors.New("no reply from Redis")
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
		return failf(exitLost, "lock %s was lost while the command ran", shown(h.lock.Name())), nil
	case err != nil && time.Now().Before(until):
		return nil, fmt.Errorf("the lock stays taken for up to %v: %w", time.Until(until).Round(time.Millisecond), err)
	}
	return nil, nil
}

// patience returns how long giveBack waits for Redis. Without a hold there is only a place in the queue to leave, and for a
// server that is silent relock takes no more than the time to send that command.
func (h *hold) patience() time.Duration {
	switch {
	case h.held:
		return closeTimeout
	case h.silent:
		return notice
	}
	return lateTime
}

// unlock gives up the hold, if there is one, and waits until Redis has released it.
func (h *hold) unlock() error {
	if !h.held {
		return nil
	}
	err := h.lock.Unlock(h.owner)
	if err != nil || !h.lock.givesBackLate() {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return h.session.Close(ctx)
}

// news returns the writer for messages that are no errors.
func (h *hold) news() io.Writer {
	if h.quiet {
		return io.Discard
	}
	return h.stderr
}

// environment returns the command's environment.
func (h *hold) environment() []string {
	return append(os.Environ(),
		"RELOCK_NAME="+h.lock.Name(),
		"RELOCK_TOKEN="+strconv.FormatUint(uint64(h.token), 10),
		"RELOCK_SESSION="+h.session.ID(),
		sessionsVariable+"="+strings.TrimSpace(os.Getenv(sessionsVariable)+" "+h.session.ID()),
		"RELOCK_OWNER="+h.name)
}

// A reply is Redis's reply to a request for the state of the lock.
type reply struct {
	asked time.Time // before the request was sent
	state status
	left  time.Duration // the rest of this session's lease; negative if it has no end
	gone  bool          // this session no longer has the lock
	err   error
}

// ask requests the state of the lock once.
func (h *hold) ask(ctx context.Context) reply {
	a := reply{asked: time.Now()}
	a.state, a.err = h.lock.look(ctx)
	if errors.Is(a.err, reentrant.ErrWrongKind) { // Redis forgot the lock, and other sessions use the name for another kind
		a.state, a.err = status{}, nil
	}
	if a.err == nil {
		left, ours := a.state.leaseOf(h.session.ID(), h.token)
		a.left, a.gone = left, !ours
	}
	return a
}

// askRepeatedly requests the state of the lock until stop is called. It has no time limit for the replies.
func (h *hold) askRepeatedly() (_ <-chan reply, stop func()) {
	ctx, cancel := context.WithCancel(h.owner)
	replies, pause := make(chan reply), h.deadline.poll()
	go func() {
		for {
			select {
			case replies <- h.ask(ctx):
			case <-ctx.Done():
				return
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
		}
	}()
	return replies, cancel
}
