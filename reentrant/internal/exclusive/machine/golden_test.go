package machine_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant/internal/exclusive/machine"
)

// stories are the scenarios of package reentrant that are about one lock, with no command that is lost or late. The driver in
// this file has no goroutine, mutex or timer of its own, so the machine alone decides what a story shows.
var stories = []string{"cohort", "cohort_fixed", "cohort_renewal", "cohort_turn", "fixed_lease", "linger", "linger_alone", "linger_alone_time",
	"linger_asked", "linger_yield", "one_process", "reentry", "renewal", "two_processes"}

func TestTheMachineTellsTheStories(t *testing.T) {
	for _, name := range stories {
		t.Run(name, func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join("..", "..", "..", "testdata", "scenarios", name+".txt"))
			require.NoError(t, err)
			synctest.Test(t, func(t *testing.T) {
				p := &player{T: t}
				p.backend = memory.New(memory.WithTrace(func(line string) { p.redis = append(p.redis, "  redis: "+line) }))
				assert.Equal(t, string(want), p.play(string(want)))
			})
		})
	}
}

// A player plays a story.
type player struct {
	*testing.T
	backend  *memory.Backend
	sessions []*session
	redis    []string // what the server did in this step
	calls    []string // which calls returned
	before   string
}

func (p *player) play(story string) string {
	var out strings.Builder
	lines := bufio.NewScanner(strings.NewReader(story))
	for lines.Scan() {
		line := lines.Text()
		step, ok := strings.CutPrefix(line, "> ")
		if !ok {
			if strings.HasPrefix(line, "#") || line == "" {
				fmt.Fprintln(&out, line)
			}
			continue
		}
		fmt.Fprintln(&out, line)
		p.step(strings.Fields(step))
		p.hear()
		slices.Sort(p.calls)
		for _, line := range append(p.redis, p.calls...) {
			fmt.Fprintln(&out, line)
		}
		p.redis, p.calls = nil, nil
		if now := p.standing(); now != p.before {
			p.before = now
			fmt.Fprintln(&out, now)
		}
	}
	for _, s := range p.sessions {
		assert.NoError(p, s.conn.Close())
	}
	return out.String()
}

func (p *player) standing() string {
	var parts []string
	for _, s := range p.sessions {
		part := s.name + " free"
		if s.holder != "" && s.m.Owned() {
			part = fmt.Sprintf("%s %s×%d", s.name, s.holder, s.holds)
		}
		for _, c := range s.line {
			if c.verb == "try" {
				continue // it does not wait in line
			}
			part += " ◀ " + c.owner
		}
		parts = append(parts, part)
	}
	return "  [" + strings.Join(parts, " | ") + "]"
}

func (p *player) step(f []string) {
	switch f[0] {
	case "session":
		p.sessions = append(p.sessions, p.open(f[1], f[2:]))
	case "advance":
		p.advance(p.duration(f[1]))
	default:
		name, owner, _ := strings.Cut(f[1], ".")
		s := p.sessions[slices.IndexFunc(p.sessions, func(s *session) bool { return s.name == name })]
		c := &call{owner: owner, verb: f[0]}
		if len(f) > 2 {
			c.fixed = p.duration(strings.TrimPrefix(f[2], "fixed="))
		}
		s.call(c)
	}
}

func (p *player) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	require.NoError(p, err)
	return d
}

// hear lets the sessions hear their messages, until there are no more.
func (p *player) hear() {
	for more := true; more; {
		more = false
		synctest.Wait()
		for _, s := range p.sessions {
			for len(s.messages) > 0 {
				(<-s.messages)()
				more = true
			}
		}
	}
}

// advance lets time pass, from one moment at which a session has something to do to the next.
func (p *player) advance(d time.Duration) {
	for end := time.Now().Add(d); ; {
		next := end.Add(1)
		var do func()
		for _, s := range p.sessions {
			if s.parked != nil && s.wakes.Before(next) {
				next, do = s.wakes, s.wake
			}
			if !s.surveys.IsZero() && s.surveys.Before(next) {
				next, do = s.surveys, func() { s.survey(false) }
			}
		}
		if do == nil {
			time.Sleep(time.Until(end))
			return
		}
		time.Sleep(time.Until(next))
		do()
		p.hear()
	}
}

// A call is a call of Lock, Unlock or another method by an owner.
type call struct {
	owner, verb string
	fixed       time.Duration
}

// A session drives one machine.
type session struct {
	*player
	name     string
	options  machine.Options
	cohort   bool
	jitter   time.Duration
	m        machine.Machine[string]
	conn     backend.Conn
	remote   backend.Remote
	messages chan func()

	epoch   uint64
	seen    backend.Token
	line    []*call // the first one has the baton, if no owner has the lock
	holder  string  // the holder, which may have lost the lock
	owes    string  // an owner that has lost the lock and not unlocked
	holds   int
	parked  *call     // the head, if it is parked
	wakes   time.Time // when the parked head asks again
	surveys time.Time // when the keeper looks at the hold; zero: there is none
}

func (p *player) open(name string, options []string) *session {
	s := &session{player: p, name: name, jitter: time.Duration(len(p.sessions)+1) * 7 * time.Millisecond, messages: make(chan func(), 100)}
	lease, turn, linger := 10*time.Second, 64, time.Duration(0)
	for _, o := range options {
		key, value, _ := strings.Cut(o, "=")
		switch key {
		case "cohort":
			s.cohort, turn = true, 512
		case "linger":
			linger = p.duration(value)
		case "lease":
			lease = p.duration(value)
		case "turn":
			turn, _ = strconv.Atoi(value)
		default:
			p.Fatalf("no option %q", key)
		}
	}
	s.options = machine.Options{
		Opened: time.Now(), Lease: lease, Heartbeat: time.Second, CommandTimeout: min(lease/3, 2*time.Second), Patience: 3 * time.Second,
		GrantTTL: 3 * time.Second, Handoffs: turn, HandoffTime: 50 * time.Millisecond, Generation: 5 * time.Millisecond,
		Linger: linger, Block: turn + 1, CohortOwner: backend.CohortOwner,
	}
	if linger > 0 {
		s.options.CohortOwner = backend.LingeringOwner
	}
	if !s.cohort {
		s.options.Block = 513
	}
	var err error
	s.conn, err = p.backend.Connect(context.Background(), name, s)
	require.NoError(p, err)
	s.remote, err = s.conn.Bind("orders")
	require.NoError(p, err)
	return s
}

func (s *session) at(owner string) *machine.Moment {
	return &machine.Moment{Options: &s.options, Now: time.Now(), Seen: s.seen, Field: "~" + owner, Waiters: max(len(s.line)-1, 0)}
}

func (s *session) age() time.Duration { return time.Since(s.options.Opened) }

// timeout returns the context of a command.
func (s *session) timeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), s.options.CommandTimeout)
}

func (s *session) returns(c *call, result string) {
	s.calls = append(s.calls, fmt.Sprintf("  %s.%s: %s → %s", s.name, c.owner, c.verb, result))
}

func (s *session) call(c *call) {
	mine := s.holder == c.owner && s.m.Owned()
	switch {
	case c.verb == "unlock" && s.owes == c.owner:
		s.owes = ""
		s.returns(c, "lost while it was held")
	case c.verb == "unlock" && !mine:
		s.returns(c, "not held by this owner")
	case c.verb == "unlock" && s.holds == 1:
		s.unlock(c)
	case c.verb == "unlock":
		s.count(s.holds - 1)
		s.returns(c, "ok")
	case mine && c.verb == "lock":
		s.count(s.holds + 1)
		s.returns(c, "ok")
	case mine:
		s.count(s.holds + 1)
		s.returns(c, "true")
	case c.verb == "try" && (s.holder != "" || len(s.line) > 0):
		s.returns(c, "false")
	default:
		if s.line = append(s.line, c); s.holder == "" && len(s.line) == 1 {
			s.head()
		}
	}
}

// count sets the hold count.
func (s *session) count(holds int) {
	s.holds = holds
	if s.m.Hold().Cohort {
		require.Equal(s, machine.Ask, s.m.Trust(s.at(s.holder), "").Do)
		return
	}
	s.m.Operate()
	h := s.m.Hold()
	ctx, cancel := s.timeout()
	defer cancel()
	reply, err := s.remote.Reenter(ctx, backend.ReenterRequest{Epoch: h.Epoch, Owner: "~" + h.Owner, Op: h.Op, Holds: holds, Lease: h.Span})
	require.NoError(s, err)
	require.Equal(s, machine.Nothing, s.m.Operated(true, reply.Gone).Do)
	require.Equal(s, machine.Settle, s.m.Finish().Do)
}

// unlock gives up the last hold.
func (s *session) unlock(c *call) {
	defer s.returns(c, "ok")
	s.holder = ""
	if len(s.line) > 0 && s.m.CanHandOver(&s.options, s.age()) {
		s.m.HandOver()
		s.head()
		return
	}
	if s.m.Hold().Cohort {
		if until, ok := s.m.Linger(&s.options, s.age(), false); ok {
			s.wakeBy(s.options.Opened.Add(until))
			return
		}
	}
	require.Equal(s, machine.Release, s.m.Exit(s.at(c.owner)).Do)
	s.release()
}

// release gives back what the session has, and passes the baton on.
func (s *session) release() {
	ctx, cancel := s.timeout()
	defer cancel()
	result, err := s.remote.Release(ctx, s.m.ReleaseRequest(s.at("")))
	require.NoError(s, err)
	s.m.Released(true, result == backend.Freed)
	s.head()
}

// head begins with the first caller in line, if there is one.
func (s *session) head() {
	if len(s.line) == 0 {
		return
	}
	c := s.line[0]
	common := c.fixed == 0 && (s.cohort || s.options.Linger > 0)
	h := machine.Head[string]{Owner: c.owner, Cohort: common && s.cohort, Alone: common && !s.cohort, Waits: c.verb == "lock", Barges: c.verb == "try", Fixed: c.fixed}
	if common {
		if do, _ := s.m.Inherit(&s.options, s.age(), len(s.line)-1, &h.Owner); do == machine.Settle {
			s.settle(c, 1)
			return
		}
	}
	s.carryOut(c, s.m.Begin(s.at(c.owner), &h))
}

// carryOut carries out the steps of a head until it is parked, or has the lock, or leaves.
func (s *session) carryOut(c *call, step machine.Step) {
	for s.parked = nil; ; {
		switch step.Do {
		case machine.Settle:
			s.settle(c, step.Holds)
			s.wakeBy(s.m.Hold().Lease.Wake())
			return
		case machine.Ask, machine.AskAnew:
			step = s.ask(c)
		case machine.Park:
			wait := s.options.Heartbeat - min(s.jitter, s.options.Heartbeat/8)
			if step.TTL >= 0 && step.TTL < wait {
				wait = step.TTL + time.Millisecond + min(s.jitter, time.Millisecond)
			}
			s.parked, s.wakes = c, time.Now().Add(wait)
			return
		case machine.Pause:
			s.parked, s.wakes = c, time.Now().Add(step.Wait)
			return
		default:
			s.line = s.line[1:]
			s.returns(c, "false")
			s.head()
			return
		}
	}
}

// ask sends a copy of the head's attempt.
func (s *session) ask(c *call) machine.Step {
	next := uint64(0)
	if s.m.Phase() == machine.Begun {
		s.epoch++
		next = s.epoch
	}
	s.m.Send(s.at(c.owner), next)
	ctx, cancel := s.timeout()
	defer cancel()
	reply, err := s.remote.Acquire(ctx, s.m.AcquireRequest(s.at(c.owner)))
	require.NoError(s, err)
	return s.m.Replied(s.at(c.owner), &reply)
}

// settle makes the head the holder.
func (s *session) settle(c *call, holds int) {
	s.line, s.holder, s.holds, s.seen = s.line[1:], c.owner, holds, max(s.seen, s.m.Hold().Token)
	if c.verb == "try" {
		s.returns(c, "true")
	} else {
		s.returns(c, "ok")
	}
}

// wake wakes the parked head.
func (s *session) wake() {
	if c := s.parked; c != nil {
		s.carryOut(c, s.m.Woken(s.at(c.owner)))
	}
}

// wakeBy and survey do what the keeper does, for one lock.
func (s *session) wakeBy(at time.Time) {
	if s.surveys.IsZero() || at.Before(s.surveys) {
		s.survey(true)
	}
}

func (s *session) survey(nudged bool) {
	second := time.Now().Add(time.Second)
	step := s.m.Tick(s.at(s.holder), machine.Survey{})
	s.surveys = time.Time{}
	if nudged || !step.Wake.IsZero() {
		s.surveys = second
	}
	if !step.Wake.IsZero() && step.Wake.Before(second) {
		s.surveys = step.Wake
	}
	switch step.Do {
	case machine.Renew:
		s.renew()
		s.survey(false)
	case machine.Dismiss:
		s.dismiss()
	case machine.Lose:
		s.owes = s.holder
		s.calls = append(s.calls, fmt.Sprintf("  %s.%s: lost", s.name, s.holder))
	case machine.Evict:
		s.m.Evicted()
		s.holder = ""
		s.head()
	}
}

func (s *session) renew() {
	sent := time.Now()
	r := []backend.Renewal{{Remote: s.remote, Epoch: s.m.Epoch(), Lease: s.m.Hold().Span}}
	ctx, cancel := s.timeout()
	defer cancel()
	s.conn.Renew(ctx, r)
	require.NoError(s, r[0].Err)
	s.m.Renewed(s.at(s.holder), machine.Renewed{Epoch: r[0].Epoch, First: r[0].First, Gone: r[0].Gone, Sent: sent})
}

// dismiss gives back an idle hold.
func (s *session) dismiss() {
	if s.m.Arrive() && s.holder == "" && len(s.line) == 0 {
		s.m.Clean()
		s.release()
	}
}

func (s *session) Granted(g backend.Grant) {
	s.messages <- func() {
		if s.m.Pushed(s.at(""), &g, false, s.holder != "" || len(s.line) > 0).Do == machine.Wake {
			s.wake()
		}
	}
}

func (s *session) Wanted(_ string, epoch uint64) {
	s.messages <- func() {
		if s.m.Wanted(epoch).Do == machine.Dismiss {
			s.dismiss()
		}
	}
}

func (s *session) Taken(string, uint64)           {}
func (s *session) Signalled(string, uint64, bool) {}
func (s *session) Reconnected()                   {}
