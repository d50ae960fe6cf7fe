//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// A supervisor watches over the command while the lock is held. All of it is its one loop's.
type supervisor struct {
	*hold
	command *command
	name    string // of the lock, to be shown

	status  int       // of the command
	exited  bool      // the command has; its group may still have members
	stopped bool      // it waits for the terminal
	lost    error     // why the lock counts as lost
	ending  time.Time // when the group got TERM; zero before
	killed  time.Time // when it got KILL; zero before
	outage  outage    // of Redis
}

// sweep is how often the group is looked at once its leader has exited: nobody tells when the last member goes.
const sweep = 5 * time.Millisecond

// run runs the command until nothing of it is left, and answers its exit status.
func (h *hold) run(c *command, signals <-chan os.Signal) (int, error) {
	s := &supervisor{hold: h, command: c, name: shown(h.lock.Name()), outage: outage{stderr: h.stderr}}
	lost := h.lock.Lost(h.owner)
	if err := c.start(h.environment()); err != nil {
		return 0, err
	}
	defer c.finish()
	answers, stop := h.askOften()
	defer stop()

	for {
		select {
		case change := <-c.changes:
			s.changed(change)
		case sig := <-signals:
			c.forward(sig)
		case a := <-answers:
			s.heard(a)
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
	takenAway  = "somebody took it, or Redis forgot it"
)

// result is the command's exit status, if it ran under the lock to its end.
func (s *supervisor) result() (int, error) {
	if s.lost != nil {
		return 0, failf(exitLost, "lock %s was lost (%w); the command was ended", s.name, s.lost)
	}
	return s.status, nil
}

// over reports whether the command and all of its group have ended, or could not be killed.
func (s *supervisor) over() bool {
	if !s.exited {
		return false
	}
	// Members that nobody reaps, where relock cannot adopt them and there is no init, stay in the group for ever.
	unreaped := !s.killed.IsZero() && time.Since(s.killed) > s.deadline.room()
	return !s.command.groupAlive() || unreaped
}

// changed takes in what became of the command itself.
func (s *supervisor) changed(change change) {
	switch {
	case change.exited:
		s.exited, s.status = true, change.status
	case change.wantsTerminal:
		s.stopped = !s.command.lendTerminal()
	}
}

// heard takes in what Redis said.
func (s *supervisor) heard(a answer) {
	if s.stopped { // relock may be in the foreground by now: nobody tells
		s.stopped = !s.command.lendTerminal()
	}
	s.outage.heard(a.err, func() string {
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

// lose notes why the lock is lost; the first reason counts. What is over cannot be lost.
func (s *supervisor) lose(why error) {
	if s.lost == nil {
		s.lost = why
	}
}

// next is when act has something to do.
func (s *supervisor) next() time.Time {
	switch {
	case s.exited && !s.ending.IsZero():
		return time.Now().Add(sweep)
	case !s.killed.IsZero():
		return s.killed.Add(s.deadline.lease) // nothing more can be done than to wait for the end
	case !s.ending.IsZero():
		return s.killAt()
	}
	return s.deadline.term()
}

// killAt is when a group that got TERM gets KILL: after its grace, and never too late.
func (s *supervisor) killAt() time.Time {
	at := s.ending.Add(s.deadline.grace)
	if limit := s.deadline.kill(); limit.Before(at) {
		return limit
	}
	return at
}

// act ends the group as far as it is time to.
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

// unanswered says why the deadline came.
func (s *supervisor) unanswered() error {
	if s.outage.err != nil {
		return fmt.Errorf("no answer from Redis in time: %w", s.outage.err)
	}
	return errors.New("it was not renewed in time")
}
