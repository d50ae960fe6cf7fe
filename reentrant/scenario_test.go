package reentrant_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

var update = flag.Bool("update", false, "write what the scenarios do into testdata/scenarios")

// TestScenarios runs the stories in testdata/scenarios in virtual time. A line that starts with "> " is a step, the
// lines after it are all that came of it: commands executed by the server, calls that returned, holds that were
// lost, and all holders and waiters afterwards, if they changed. Owners are written session.owner.
//
//	session A [lease=10s] [heartbeat=1s] [turn=2] [cohort] [linger=5s]   open a session
//	lock A.g1 [fixed=3s]   unlock A.g1   verify A.g1    start the call; it may block
//	try A.g1   tryfor A.g1 500ms                        likewise
//	await A.g1   awaitfor A.g1 2s   signal A.g1   signalall A.g1
//	rlock A.g1   runlock A.g1   wlock A.g1   wunlock A.g1    of the read-write lock "book"
//	wawait A.g1   wsignal A.g1                          for a condition of its write side
//	acquire A.g1 2/3   give A.g1 2/3                    two permits of the semaphore "pool", which has three
//	cancel A.g1                                         end the context of the call that is blocked
//	advance 3s                                          let time pass
//	fault acquire lose,losereply,pass…                  what becomes of the next commands of a verb, or of "push"
//	slow A.release=2ms B.release=1ms                    how long these commands are on their way from now on
//	partition A   heal A   flush   restart   force A    the server and the way to it
//	close A 5s                                          close the session, with a time limit
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			var got string
			synctest.Test(t, func(t *testing.T) { got = newStage(t).play(string(want)) })
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			assert.Equal(t, string(want), got)
		})
	}
}

// A stage is where a scenario runs.
type stage struct {
	t        *testing.T
	backend  *memory.Backend
	sessions map[string]*reentrant.Session
	actors   map[string]*actor
	before   string // the holders and waiters after the last step

	mu  sync.Mutex
	log []string // the events of the step
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, sessions: map[string]*reentrant.Session{}, actors: map[string]*actor{}}
	s.backend = memory.New(memory.WithTrace(func(line string) { s.note("  redis: " + line) }))
	return s
}

func (s *stage) note(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, line)
}

// play runs the steps of a script, and returns the script with the events of each step.
func (s *stage) play(script string) string {
	var out strings.Builder
	lines := bufio.NewScanner(strings.NewReader(script))
	for lines.Scan() {
		step, isStep := strings.CutPrefix(lines.Text(), "> ")
		if !isStep {
			if strings.HasPrefix(lines.Text(), "#") || lines.Text() == "" {
				fmt.Fprintln(&out, lines.Text())
			}
			continue
		}
		fmt.Fprintln(&out, lines.Text())
		s.run(strings.Fields(step))
		synctest.Wait()
		for _, line := range s.outcome() {
			fmt.Fprintln(&out, line)
		}
	}
	s.end()
	return out.String()
}

// end ends all calls. A goroutine that stays blocked fails the bubble.
func (s *stage) end() {
	for _, a := range s.actors {
		a.cancel()
		close(a.calls)
	}
	s.backend.SetFault(nil)
	for name, session := range s.sessions {
		s.backend.Partition(name, false)
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
		_ = session.Close(ctx)
		cancel()
	}
	synctest.Wait()
}

// outcome returns the log of the step, calls in the order of their owners, and then the holders and waiters if they
// have changed.
func (s *stage) outcome() []string {
	for _, name := range slices.Sorted(maps.Keys(s.actors)) {
		s.actors[name].watch()
	}
	s.mu.Lock()
	lines := s.log
	s.log = nil
	s.mu.Unlock()
	// The server's lines are in the order of execution; the other lines have no order of their own, so they are sorted.
	slices.SortStableFunc(lines, func(a, b string) int {
		ra, rb := strings.HasPrefix(a, "  redis:"), strings.HasPrefix(b, "  redis:")
		switch {
		case ra && rb:
			return 0
		case ra:
			return -1
		case rb:
			return 1
		}
		return strings.Compare(a, b)
	})
	if now := s.standing(); now != s.before {
		s.before = now
		lines = append(lines, now)
	}
	return lines
}

// standing returns the holders and waiters, session by session.
func (s *stage) standing() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.sessions)) {
		l := s.sessions[name].NewLock("orders")
		part := name + " free"
		for _, a := range s.actors {
			if a.session == name && a.lock.IsHeldByCurrentOwner(a.owner) {
				part = fmt.Sprintf("%s %s×%d", name, a.name, l.HoldCount(a.owner))
			}
		}
		for _, o := range l.QueuedOwners() {
			part += " ◀ " + strings.TrimPrefix(o.String(), "~")
		}
		parts = append(parts, part)
	}
	return "  [" + strings.Join(parts, " | ") + "]"
}

func (s *stage) run(f []string) {
	verb, args := f[0], f[1:]
	switch verb {
	case "session":
		session, err := reentrant.NewSession(s.backend, s.options(args[1:])...)
		require.NoError(s.t, err)
		s.sessions[args[0]] = session
	case "advance":
		time.Sleep(s.duration(args[0]))
	case "cancel":
		s.actor(args[0]).cancel()
	case "fault":
		s.backend.SetFault(memory.Script(memory.Verb(args[0]), s.verdicts(args[1])...))
	case "slow":
		s.backend.SetFault(s.delays(args))
	case "partition", "heal":
		s.backend.Partition(args[0], verb == "partition")
	case "flush":
		s.backend.Flush()
	case "restart":
		s.backend.Restart()
	case "force":
		had, err := s.sessions[args[0]].NewLock("orders").ForceUnlock(s.t.Context())
		s.note(fmt.Sprintf("  force: %v %s", had, verdict(err)))
	case "close":
		ctx, cancel := context.WithTimeout(s.t.Context(), s.duration(args[1]))
		defer cancel()
		s.note("  close: " + verdict(s.sessions[args[0]].Close(ctx)))
		delete(s.sessions, args[0])
	default:
		s.actor(args[0]).start(verb, args[1:])
	}
}

func (s *stage) options(args []string) []reentrant.Option {
	// The heartbeats of different sessions come at different moments, so that their order is the same in every run.
	opts := []reentrant.Option{reentrant.WithJitter(time.Duration(len(s.sessions)+1) * 7 * time.Millisecond)}
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "lease":
			opts = append(opts, reentrant.WithLease(s.duration(value)))
		case "heartbeat":
			opts = append(opts, reentrant.WithHeartbeat(s.duration(value)))
		case "turn":
			n, err := strconv.Atoi(value)
			require.NoError(s.t, err)
			opts = append(opts, reentrant.WithTurn(n, 0))
		case "cohort":
			opts = append(opts, reentrant.WithCohort())
		case "linger":
			opts = append(opts, reentrant.WithLinger(s.duration(value)))
		default:
			s.t.Fatalf("session has no option %q", key)
		}
	}
	return opts
}

func (s *stage) verdicts(list string) (verdicts []memory.Verdict) {
	for word := range strings.SplitSeq(list, ",") {
		switch name, rest, _ := strings.Cut(word, ":"); name {
		case "lose":
			verdicts = append(verdicts, memory.Lose)
		case "losereply":
			verdicts = append(verdicts, memory.LoseReply)
		case "pass":
			verdicts = append(verdicts, memory.Pass)
		case "refuse":
			verdicts = append(verdicts, memory.Refuse("NOPERM"))
		case "delay":
			verdicts = append(verdicts, memory.Delay(s.duration(rest)))
		case "again":
			verdicts = append(verdicts, memory.Duplicate(s.duration(rest)))
		default:
			s.t.Fatalf("no fault %q", word)
		}
	}
	return verdicts
}

// delays is a fault that makes commands of some sessions arrive later, so that commands sent at the same moment arrive
// in a fixed order.
func (s *stage) delays(args []string) memory.Fault {
	late := map[string]time.Duration{}
	for _, arg := range args {
		command, d, _ := strings.Cut(arg, "=")
		late[command] = s.duration(d)
	}
	return func(op memory.Op) memory.Verdict { return memory.Delay(late[op.Session+"."+string(op.Verb)]) }
}

func (s *stage) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	require.NoError(s.t, err)
	return d
}

// An actor is an owner, whose goroutine makes its calls one after the other.
type actor struct {
	stage         *stage
	session, name string
	lock          *reentrant.Lock
	owner         context.Context
	cancel        context.CancelFunc // cancels the latest call
	calls         chan func()
	lost          <-chan struct{}
}

func (s *stage) actor(full string) *actor {
	if a := s.actors[full]; a != nil {
		return a
	}
	session, name, ok := strings.Cut(full, ".")
	require.True(s.t, ok && s.sessions[session] != nil, "no owner %q", full)
	a := &actor{
		stage: s, session: session, name: name, lock: s.sessions[session].NewLock("orders"),
		owner: reentrant.WithOwner(s.t.Context(), name), cancel: func() {}, calls: make(chan func(), 8),
	}
	s.actors[full] = a
	go func() {
		for call := range a.calls {
			call()
		}
	}()
	return a
}

func (a *actor) start(verb string, args []string) {
	ctx, cancel := context.WithCancel(a.owner)
	a.cancel = cancel
	lock := a.lock
	if len(args) > 0 && strings.HasPrefix(args[0], "fixed=") {
		lock = a.stage.sessions[a.session].NewLock("orders",
			reentrant.WithFixedLease(a.stage.duration(strings.TrimPrefix(args[0], "fixed="))))
	}
	a.calls <- func() {
		result := a.call(ctx, lock, verb, args)
		if lock.IsHeldByCurrentOwner(a.owner) {
			a.lost = lock.Lost(a.owner)
		}
		a.stage.note(fmt.Sprintf("  %s.%s: %s → %s", a.session, a.name, verb, result))
	}
}

// book returns a method of the read-write lock, or of a condition of its write side.
func (a *actor) book(verb string) func(context.Context) error {
	l := a.stage.sessions[a.session].NewRWLock("book")
	c := l.NewCondition("ready")
	return map[string]func(context.Context) error{
		"rlock": l.RLock, "runlock": l.RUnlock, "wlock": l.Lock, "wunlock": l.Unlock, "wawait": c.Await, "wsignal": c.Signal,
	}[verb]
}

// pool acquires or releases permits: "2/3" means two permits of a semaphore that has three.
func (a *actor) pool(ctx context.Context, verb, permits string) error {
	var n, limit int
	_, err := fmt.Sscanf(permits, "%d/%d", &n, &limit)
	require.NoError(a.stage.t, err)
	m := a.stage.sessions[a.session].NewSemaphore("pool", limit)
	if verb == "acquire" {
		return m.Acquire(ctx, n)
	}
	return m.Release(ctx, n)
}

func (a *actor) call(ctx context.Context, lock *reentrant.Lock, verb string, args []string) string {
	answer := func(ok bool, err error) string {
		if err == nil {
			return fmt.Sprint(ok)
		}
		return verdict(err)
	}
	switch verb {
	case "lock":
		return verdict(lock.Lock(ctx))
	case "unlock":
		return verdict(lock.Unlock(ctx))
	case "verify":
		return verdict(lock.Verify(ctx))
	case "try":
		return answer(lock.TryLock(ctx))
	case "tryfor":
		return answer(lock.TryLockFor(ctx, a.stage.duration(args[0])))
	case "await":
		return verdict(lock.NewCondition("ready").Await(ctx))
	case "awaitfor":
		return answer(lock.NewCondition("ready").AwaitFor(ctx, a.stage.duration(args[0])))
	case "signal":
		return verdict(lock.NewCondition("ready").Signal(ctx))
	case "rlock", "runlock", "wlock", "wunlock", "wawait", "wsignal":
		return verdict(a.book(verb)(ctx))
	case "acquire", "give":
		return verdict(a.pool(ctx, verb, args[0]))
	case "signalall":
		return verdict(lock.NewCondition("ready").SignalAll(ctx))
	}
	a.stage.t.Errorf("no step %q", verb)
	return ""
}

// watch records when the hold is lost.
func (a *actor) watch() {
	select {
	case <-a.lost:
		a.lost = nil
		a.stage.note(fmt.Sprintf("  %s.%s: lost", a.session, a.name))
	default:
	}
}

// verdict formats an error in one or two words.
func verdict(err error) string {
	words := []string{}
	for _, e := range []error{reentrant.ErrLost, reentrant.ErrNotHeld, reentrant.ErrClosed, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			words = append(words, e.Error())
		}
	}
	if backend.Refused(err) {
		words = append(words, "refused")
	}
	if backend.OutcomeUnknown(err) {
		words = append(words, "outcome unknown")
	}
	switch {
	case err == nil:
		return "ok"
	case len(words) == 0:
		return err.Error()
	}
	return strings.Join(words, "; ")
}
