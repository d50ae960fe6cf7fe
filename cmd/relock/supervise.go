//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// A supervisor watches the command while the lock is held. Only the goroutine of its loop uses it.
type supervisor struct {
	*hold
	command *command
	name    string // the lock's name, as it is shown

	status  int       // the command's exit status
	exited  bool      // the command has exited; its group may still have members
	stopped bool      // the command was stopped, and waits for the terminal
	lost    error     // why the lock counts as lost
	ending  time.Time // when the group got TERM; zero before that
	killed  time.Time // when the group got KILL; zero before that
	outage  outage    // whether Redis replies
}

// sweep is the interval at which relock looks for members of the group once its leader has exited. The kernel does not
// report the end of the last one.
const sweep = 5 * time.Millisecond

// run runs the command until its whole group has ended, and returns its exit status.
func (h *hold) run(c *command, signals <-chan os.Signal) (int, error) {
	s := &supervisor{hold: h, command: c, name: shown(h.lock.Name()), outage: outage{stderr: h.news()}}
	lost := h.lock.Lost(h.owner)
	if err := c.start(h.environment()); err != nil {
		return 0, err
	}
	defer c.finish()
	replies, stop := h.askRepeatedly()
	defer stop()

	for {
		select {
		case change := <-c.changes:
			s.changed(change)
		case sig := <-signals:
			c.forward(sig)
		case a := <-replies:
			s.handleReply(a)
		case <-lost:
			lost = nil
			s.lose(errors.New(leaseEnded))
		case <-time.After(time.Until(s.next())):
		}
		if s.over() {
			return s.result()
		}
		s.act(time.Now())
	}
}

// Why a lock counts as lost.
const (
	leaseEnded = "its lease could not be renewed, or Redis no longer has it"
	takenAway  = "another session took it, or Redis forgot it"
)

// result returns the command's exit status, or an error if the lock was lost.
func (s *supervisor) result() (int, error) {
	if s.lost != nil {
		return 0, failf(exitLost, "lock %s was lost (%w); the command was ended", s.name, s.lost)
	}
	return s.status, nil
}

// over reports whether the command and all of its group have ended, or could not be reaped.
func (s *supervisor) over() bool {
	if !s.exited {
		return false
	}
	// Where relock cannot adopt orphans and there is no init, dead members are never reaped and stay in the group for
	// ever.
	unreaped := !s.killed.IsZero() && time.Since(s.killed) > s.deadline.room()
	return !s.command.groupAlive() || unreaped
}

// changed handles a change of state of the command's own process.
func (s *supervisor) changed(change change) {
	switch {
	case change.exited:
		s.exited, s.status = true, change.status
	case change.wantsTerminal:
		s.stopped = !s.command.lendTerminal()
	}
}

// handleReply handles a reply of Redis.
func (s *supervisor) handleReply(a reply) {
	if s.stopped { // relock may be in the foreground by now; there is no signal for that
		s.stopped = !s.command.lendTerminal()
	}
	s.outage.update(a.err, func() string {
		return fmt.Sprintf("the command is ended in %v unless it does", time.Until(s.deadline.term()).Round(time.Millisecond))
	})
	switch {
	case a.err != nil:
	case a.gone:
		s.lose(errors.New(takenAway + a.state.reason()))
	default:
		s.deadline = s.deadline.confirmed(a.asked, a.left)
	}
}

// lose records why the lock is lost; the first reason counts.
func (s *supervisor) lose(why error) {
	if s.lost == nil {
		s.lost = why
	}
}

// next returns when to call act again.
func (s *supervisor) next() time.Time {
	switch {
	case s.exited && !s.ending.IsZero():
		return time.Now().Add(sweep)
	case !s.killed.IsZero():
		return s.killed.Add(s.deadline.lease) // all that is left is to wait for the end
	case !s.ending.IsZero():
		return s.killAt()
	}
	return s.deadline.term()
}

// killAt returns when a group that got TERM gets KILL: after its grace, and no later than the deadline's kill.
func (s *supervisor) killAt() time.Time {
	at := s.ending.Add(s.deadline.grace)
	if limit := s.deadline.kill(); limit.Before(at) {
		return limit
	}
	return at
}

// act sends TERM or KILL to the group if it is time.
func (s *supervisor) act(now time.Time) {
	if !s.exited && !now.Before(s.deadline.term()) {
		s.lose(s.unanswered())
	}
	if s.ending.IsZero() && (s.lost != nil || s.exited) {
		s.ending = now
		s.command.terminate()
	}
	if !s.ending.IsZero() && s.killed.IsZero() && !now.Before(s.killAt()) {
		s.killed = now
		s.command.kill()
	}
}

// unanswered returns why the deadline came before the lease was renewed.
func (s *supervisor) unanswered() error {
	if s.outage.err != nil {
		return fmt.Errorf("no reply from Redis in time: %w", s.outage.err)
	}
	return errors.New("it was not renewed in time")
}
