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

// A hold is the lock while the command runs.
type hold struct {
	server   *server
	deadline deadline
	stderr   io.Writer

	session *reentrant.Session
	close   func()
	lock    lock
	name    string          // of the owner
	owner   context.Context // carries it, and does not end
	held    bool
	token   reentrant.Token // of a reader its version; 0 with a permit
}

func newHold(s *server, stderr io.Writer, d deadline) *hold {
	return &hold{server: s, stderr: stderr, deadline: d}
}

// during takes the lock, calls f while it is held, and gives the lock back. The result is f's.
func (h *hold) during(name string, kind sharing, w waiting, f func(signals <-chan os.Signal) (status int, err error)) error {
	signals := make(chan os.Signal, 16)
	notify(signals) // to the very end, when it is said how it went

	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	err := w.status(untilSignal(signals, cancel, func() error { return h.take(ctx, name, kind, w.limit()) }))
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

// conclude says how it went, and after that what is left of it.
func conclude(err, kept error, stderr io.Writer) error {
	if kept == nil {
		return err
	}
	status := report(err, stderr)
	fmt.Fprintln(stderr, "relock:", words(kept))
	return fail(status, nil)
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

// take takes the lock, with a full lease.
func (h *hold) take(ctx context.Context, name string, kind sharing, wait *time.Duration) (err error) {
	h.session, h.close, err = h.server.open(ctx, reentrant.WithLease(h.deadline.lease))
	if err != nil {
		return err
	}
	// A name says more to who inspects the lock than a goroutine's number, and the hold is given back by others.
	h.name = ownerName(hostname(), os.Getpid())
	h.owner, ctx = reentrant.WithOwner(context.Background(), h.name), reentrant.WithOwner(ctx, h.name)
	h.lock, ctx = kind.lock(h.session, name), reentrant.WithNote(ctx, kind.Note)
	if err = refuseNested(ctx, h.lock); err == nil {
		err = h.stand(ctx, wait)
	}
	return withFlags(ctx, err, h.session, name)
}

// stand stands in line for the lock until it has a full lease. A lock that is lost before, because relock was paused
// with the short lease of a push or somebody forced it open, protected nothing yet: what is left of wait is for other
// tries. Whoever loses it ten times is told.
func (h *hold) stand(ctx context.Context, wait *time.Duration) error {
	began := time.Now()
	for range mostLosses {
		if err := h.acquire(ctx, wait, began); err != nil {
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

// confirm finds out until when the lock is ours, once it has a full lease: a lock that was pushed to us comes with a short
// one, until the session's next renewal, and the grace has to fit into it. ErrLost says that it is not ours.
func (h *hold) confirm(ctx context.Context) (err error) {
	if err := h.lock.renew(ctx); err != nil {
		return err
	}
	if h.token, err = h.lock.Token(ctx); err != nil {
		return err
	}
	for {
		var a answer
		err := patiently(func() error {
			a = h.ask(ctx)
			return a.err
		})
		switch {
		case err != nil:
			return err
		case a.gone:
			return reentrant.ErrLost
		case h.deadline.renewed(a.left):
			h.deadline = h.deadline.confirmed(a.asked, a.left)
			return nil
		}
		time.Sleep(renewalPoll)
	}
}

// renewalPoll is how often Redis is asked whether the session has renewed a lock that came with a short lease. It does so
// within a heartbeat.
const renewalPoll = 50 * time.Millisecond

// sessionsVariable lists the sessions of the runs that a command is a part of, the outermost first.
const sessionsVariable = "RELOCK_SESSIONS"

// refuseNested fails if a run that this one is a part of has the lock, or a part of it: each would wait for the other's
// end. A reader would, too, if a writer stands between the two.
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

// acquire takes the lock within wait since it began; nil is for ever. What it waits for is said.
func (h *hold) acquire(ctx context.Context, wait *time.Duration, began time.Time) error {
	if wait == nil || *wait > 0 {
		watching, stop := context.WithCancel(ctx)
		defer stop()
		go newBulletin(h).follow(watching)
	}
	if wait == nil {
		return h.lock.acquire(ctx)
	}
	ok, err := h.lock.TryLockFor(ctx, *wait-time.Since(began))
	if err == nil && !ok {
		return failf(exitNotAcquired, "lock %s was not to be had%s", shown(h.lock.Name()), holder(ctx, h.lock))
	}
	return err
}

// holder names who has the lock, if that can be found out.
func holder(ctx context.Context, l lock) string {
	st, err := lookAt(ctx, l)
	if err != nil {
		return ""
	}
	return st.reason()
}

// giveBack unlocks and closes the session, as far as Redis answers in time: the lease is the hedge. The command has
// ended while the lock was ours unless err is ErrLost, so a Redis that is silent now only costs others time: kept says
// how much.
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
	patient, until := closeTimeout, time.Now().Add(h.deadline.lease)
	if !h.deadline.until.IsZero() { // when the lease has ended, there is nothing to give back
		until = h.deadline.until
		patient = min(patient, time.Until(until))
	}
	limit := time.NewTimer(patient)
	defer limit.Stop()
	err = errors.New("no answer from Redis")
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

// unlock gives up the hold, if there is one, and waits until Redis has it back.
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
	state status
	left  time.Duration // of our lease; negative if it has no end
	gone  bool          // it is not ours any more
	err   error
}

// ask asks Redis.
func (h *hold) ask(ctx context.Context) answer {
	a := answer{asked: time.Now()}
	a.state, a.err = h.lock.look(ctx)
	if errors.Is(a.err, reentrant.ErrWrongKind) { // Redis forgot it, and others use the name
		a.state, a.err = status{}, nil
	}
	if a.err == nil {
		left, ours := a.state.leaseOf(h.session.ID(), h.token)
		a.left, a.gone = left, !ours
	}
	return a
}

// askOften asks Redis again and again until stop is called. When too long passes without an answer is not its concern.
func (h *hold) askOften() (_ <-chan answer, stop func()) {
	ctx, cancel := context.WithCancel(h.owner)
	answers, pause := make(chan answer), h.deadline.poll()
	go func() {
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
	}()
	return answers, cancel
}
