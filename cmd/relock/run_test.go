//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

func TestTheExitStatusIsTheCommandsOwn(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, []byte("not a program"), 0o600))
	broken := filepath.Join(t.TempDir(), "broken")
	require.NoError(t, os.WriteFile(broken, []byte("#!/nowhere/sh\n"), 0o700))
	for name, test := range map[string]struct {
		command []string
		want    int
	}{
		"success":     {[]string{"true"}, 0},
		"own":         {[]string{"sh", "-c", "exit 7"}, 7},
		"killed":      {[]string{"sh", "-c", "kill -KILL $$"}, 128 + 9},
		"not found":   {[]string{"no-such-command-here"}, 127},
		"no file":     {[]string{"/no/such/command"}, 127},
		"no program":  {[]string{plain}, 126},
		"no intepret": {[]string{broken}, 126},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, url, append([]string{"run", "lock", "--"}, test.command...)...).exits(test.want)
			assert.False(t, state(t, session(t, url), "lock").Locked, "the lock was not released")
		})
	}
}

func TestTheEnvironmentNamesWhatTheCommandHolds(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	last := uint64(0)
	for range 2 {
		r := start(t, url, "run", "a lock", "--", "sh", "-c", `echo "$RELOCK_NAME|$RELOCK_TOKEN|$RELOCK_SESSION|$RELOCK_OWNER"; `+
			`echo done; read line`)
		r.says("done")
		told := strings.Split(strings.Split(r.stdout.String(), "\n")[0], "|")
		require.Len(t, told, 4)
		token, err := strconv.ParseUint(told[1], 10, 64)
		require.NoError(t, err)
		assert.Greater(t, token, last, "tokens rise")
		last = token
		r.exits(1) // the exit status of read at the end of its input
		assert.Equal(t, "a lock", told[0])
		assert.Equal(t, fmt.Sprintf("relock[%d]@%s", r.cmd.Process.Pid, hostname()), told[3])
		assert.EqualValues(t, token, state(t, session(t, url), "a lock").Token)
	}
}

func TestAWaitThatIsOverHasAStatusOfItsOwn(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	s := session(t, url)
	release := holdLock(t, s, "lock", "alice")
	marker := filepath.Join(t.TempDir(), "marker")
	for _, wait := range []string{"0", "0s", "800ms"} { // the last line is without a heartbeat, whose reply could come too late
		r := answered(t, url, "run", "lock", "--wait", wait, "--", "touch", marker)
		r.exits(exitNotAcquired)
		assert.Contains(t, r.stderr.String(), "lock lock was not acquired: it is held by owner ~alice of session "+s.ID())
	}
	assert.NoFileExists(t, marker)
	assert.Empty(t, state(t, s, "lock").Waiting, "relock left its place in the queue")
	release()
	answered(t, url, "run", "lock", "--wait", "0", "--", "touch", marker).exits(0)
	assert.FileExists(t, marker)
}

func TestARunThatWouldWaitForItselfIsRefused(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	relock, err := os.Executable()
	require.NoError(t, err)
	inner, other := []string{relock, "run", longLease, "lock", "--"}, []string{relock, "run", longLease, "other", "--"}
	for name, command := range map[string][]string{
		"inside":       slices.Concat(inner, []string{"echo", "never"}),
		"deep inside":  slices.Concat(other, inner, []string{"echo", "never"}),
		"in the shell": {"sh", "-c", `"$0" run --wait 0 --lease 1m lock -- echo never`, relock},
	} {
		t.Run(name, func(t *testing.T) {
			r := answered(t, url, append([]string{"run", "lock", "--"}, command...)...) // the inner one may ask once
			r.exits(exitUsage)
			assert.Contains(t, r.stderr.String(), "lock lock is already held by the relock run that this one is a part of")
			assert.Empty(t, r.stdout.String())
		})
	}
	start(t, url, slices.Concat([]string{"run", "lock", "--"}, other, []string{"true"})...).exits(0)

	// A process that the command left behind, in a session of its own, still has the variable when the run is over.
	r := newRun(t, url, "run", "lock", "--", "true")
	r.cmd.Env = append(r.cmd.Env, sessionsVariable+"=of-a-run-that-is-over")
	r.begin()
	r.exits(0)
}

func TestRunsExcludeEachOther(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	folder := filepath.Join(t.TempDir(), "inside")
	script := fmt.Sprintf("mkdir '%s' && sleep 0.02 && rmdir '%[1]s' && echo alone", folder)
	var runs []*run
	for range 6 {
		runs = append(runs, start(t, url, "run", "lock", "--", "sh", "-c", script))
	}
	for _, r := range runs {
		r.exits(0)
		assert.Equal(t, "alone\n", r.stdout.String())
	}
}

func TestSignalsReachTheCommand(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	for name, sig := range map[string]syscall.Signal{
		"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT,
		"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, url, "run", name, "--", "sh", "-c", "trap 'echo got; exit 3' "+name+"; echo ready; while :; do sleep 0.01; done")
			r.says("ready")
			r.signal(sig)
			r.exits(3)
			assert.Equal(t, "ready\ngot\n", r.stdout.String())
		})
	}
}

func TestASignalWithoutATrapIsTheExitStatus(t *testing.T) {
	t.Parallel()
	r := start(t, embedded(t), "run", "lock", "--", "sh", "-c", "echo ready; sleep 100; echo never")
	r.says("ready")
	r.signal(syscall.SIGTERM)
	r.exits(128 + 15)
	assert.Equal(t, "ready\n", r.stdout.String())
}

func TestAnInterruptEndsTheWait(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	s := session(t, url)
	release := holdLock(t, s, "lock", "alice")
	defer release()
	r := start(t, url, "run", "lock", "--", "echo", "never")
	eventually(t, func() bool { return len(state(t, s, "lock").Waiting) == 1 }, "relock does not wait")
	r.signal(syscall.SIGINT)
	r.exits(128 + 2)
	assert.Empty(t, r.stdout.String())
	assert.Empty(t, state(t, s, "lock").Waiting, "relock left its place in the queue")
}

// nohup's SIG_IGN must reach the command through relock, which forwards signals.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	require.NoError(t, err)
	r := newRun(t, embedded(t))
	r.cmd.Path, r.cmd.Args = "/bin/sh", []string{"sh", "-c", `trap "" HUP; exec "$0" "$@"`, program,
		"run", longLease, "lock", "--", "sh", "-c", "echo ready; read line; kill -HUP $$; echo alive"}
	input, err := r.cmd.StdinPipe()
	require.NoError(t, err)
	r.cmd.Stdout, r.cmd.Stderr = r.stdout, r.stderr
	r.begin()
	r.says("ready")
	r.signal(syscall.SIGHUP)
	_, err = input.Write([]byte("\n"))
	require.NoError(t, err)
	r.exits(0)
	assert.Equal(t, "ready\nalive\n", r.stdout.String())
}

// The command leaves a process behind that ignores TERM. It is dead before the next session gets the lock.
func TestNothingOfTheCommandOutlivesTheLock(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	h := newHeart(t)
	first := start(t, url, "run", "lock", "--grace", "100ms", "--", "sh", "-c",
		h.command()+" & while ! test -s '"+h.path+"'; do sleep 0.01; done; exit 5")
	h.await(1)
	next := start(t, url, "run", "lock", "--", "true")
	next.exits(0)
	began := clock()
	first.exits(5)
	time.Sleep(200 * time.Millisecond) // enough for many beats of a process that is alive
	_, last := h.read()
	assert.Less(t, last, began, "a process was alive while another session had the lock")
}

func TestAForcedUnlockEndsTheCommand(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	h := newHeart(t)
	r := start(t, url, "run", "lock", "--lease", "30s", "--grace", "5s", "--", "sh", "-c",
		"trap 'echo told' TERM; "+h.command()+" & echo ready; while :; do wait; done")
	r.says("ready")
	h.await(1)
	takeAway(t, url, "lock")
	r.exits(exitLost)
	ended := clock()
	assert.Equal(t, "ready\ntold\n", r.stdout.String(), "TERM comes before KILL")
	assert.Contains(t, r.stderr.String(), "lock lock was lost (")
	time.Sleep(100 * time.Millisecond)
	_, last := h.read()
	assert.Less(t, last, ended)
}

func TestAnErrorNeverShowsThePassword(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		url    string
		status int
	}{
		"unreachable": {"redis://user:hunter2@127.0.0.1:1", exitRedis},
		"malformed":   {"redis://user:hun/ter2@127.0.0.1:1", exitUsage},
		"scheme":      {"http://user:hunter2@127.0.0.1:1", exitUsage},
	} {
		for _, args := range [][]string{{"run", "lock", "--", "true"}, {"inspect", "lock"}, {"list"}, {"watch", "lock"}, {"unlock", "lock"}} {
			t.Run(name+"/"+args[0], func(t *testing.T) {
				r := start(t, test.url, args...)
				r.exits(test.status)
				assert.NotEmpty(t, r.stderr.String())
				assert.NotContains(t, r.stderr.String()+r.stdout.String(), "ter2")
			})
		}
	}
}

func TestACommandLineThatIsWrongHasTheStatusOfAMistake(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"no lock":         {"run"},
		"no command":      {"run", "lock"},
		"empty name":      {"run", "", "--", "true"},
		"nothing to run":  {"run", "lock", "--"},
		"unknown flag":    {"run", "lock", "-l", "--", "ls"},
		"no URL":          {"run", "lock", "--redis=127.0.0.1:6379", "--", "true"},
		"negative wait":   {"run", "lock", "--wait=-1s", "--", "true"},
		"short lease":     {"run", "lock", "--lease=100ms", "--", "true"},
		"long grace":      {"run", "lock", "--lease=3s", "--grace=1100ms", "--", "true"},
		"negative grace":  {"run", "lock", "--grace=-1s", "--", "true"},
		"no duration":     {"run", "lock", "--wait=soon", "--", "true"},
		"no number":       {"run", "lock", "-w", "NaN", "--", "true"},
		"two waits":       {"run", "lock", "-n", "-w", "3", "--", "true"},
		"two kinds":       {"run", "-s", "-x", "lock", "--", "true"},
		"kind of permits": {"hold", "-s", "--permits", "2", "lock"},
		"no permits":      {"run", "--permits", "0", "lock", "--", "true"},
		"many permits":    {"hold", "--permits", "2147483648", "lock"},
		"two commands":    {"run", "lock", "-c", "true", "--", "true"},
		"large status":    {"run", "lock", "-E", "256", "--", "true"},
		"negative status": {"hold", "lock", "-E=-1"},
		"command to hold": {"hold", "lock", "--", "true"},
		"help of nothing": {"help", "nothing"},
		"interval":        {"watch", "lock", "--interval=0s"},
		"unknown command": {"lock", "lock"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, "redis://127.0.0.1:1", args...)
			r.exits(exitUsage)
			assert.True(t, strings.HasPrefix(r.stderr.String(), "relock: "), r.stderr)
		})
	}
}

// Arguments after the command belong to the command, with or without -- before it.
func TestTheCommandHasItsOwnFlags(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	for _, args := range [][]string{
		{"run", "lock", "--wait=10s", "--", "echo", "--wait=1s", "--", "-x"},
		{"run", "lock", "--wait=10s", "echo", "--wait=1s", "--", "-x"},
	} {
		r := start(t, url, args...)
		r.exits(0)
		assert.Equal(t, "--wait=1s -- -x\n", r.stdout.String(), "%q", args)
	}
}

func TestHelpNamesEveryExitStatus(t *testing.T) {
	t.Parallel()
	r := start(t, "", "run", "--help")
	r.exits(0)
	for _, status := range []int{exitUsage, exitRedis, exitNotAcquired, exitLost, exitNoExec, exitNotFound} {
		assert.Contains(t, r.stdout.String(), strconv.Itoa(status)+"  ")
	}
}

// A run that waits gets the lock by a message, with a short lease at first. It waits for a full lease, so the grace
// fits.
func TestALockThatWasWaitedForHasAFullLease(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	s := session(t, url)
	release := holdLock(t, s, "lock", "alice")
	r := start(t, url, "run", "lock", "--lease", "30s", "--grace", "10s", "--", "sh", "-c", "sleep 0.2; exit 4")
	eventually(t, func() bool { return len(state(t, s, "lock").Waiting) == 1 }, "relock does not wait")
	release()
	r.exits(4)
	assert.NotContains(t, r.stderr.String(), "lost")
}

// If the lock is lost before the command has begun, it has protected nothing: relock waits for it again.
func TestALockThatIsLostBeforeTheCommandBeginsIsWaitedForAgain(t *testing.T) {
	t.Parallel()
	h, thief, releases := robbed(t)
	stood := make(chan error, 1)
	go func() { stood <- h.acquireConfirmed(h.owner, nil, time.Now()) }()
	eventually(t, func() bool { return len(state(t, thief, "lock").Waiting) == 1 }, "relock does not wait")

	ctx, cancel := context.WithTimeout(h.owner, patience)
	defer cancel()
	err := h.lock.renew(ctx)
	for errors.Is(err, reentrant.ErrUnavailable) && ctx.Err() == nil { // a reply came late
		err = h.lock.renew(ctx)
	}
	require.ErrorIs(t, err, reentrant.ErrLost, "an owner with nothing to re-enter does not wait")

	(<-releases)()
	require.NoError(t, <-stood)
	st := state(t, thief, "lock")
	assert.Equal(t, h.session.ID(), st.Session)
	assert.Equal(t, h.token, st.Token)
	assert.Equal(t, 1, st.Holds)
	assert.True(t, h.held)
	assert.True(t, h.deadline.until.After(time.Now()))
	require.NoError(t, h.lock.Unlock(h.owner))
	assert.ErrorIs(t, h.lock.Unlock(h.owner), reentrant.ErrNotHeld, "an Unlock of the lost hold is still due")
}

func TestALockThatIsLostBeforeTheCommandBeginsIsNotWaitedForLongerThanAsked(t *testing.T) {
	t.Parallel()
	h, _, releases := robbed(t)
	err := h.acquireConfirmed(h.owner, new(time.Duration), time.Now())
	for reentrant.OutcomeUnknown(err) { // a reply came late
		err = h.acquireConfirmed(h.owner, new(time.Duration), time.Now())
	}
	assert.Equal(t, exitNotAcquired, report(err, io.Discard), err)
	assert.False(t, h.held)
	(<-releases)()
}

// robbed returns a hold whose lock a thief takes as soon as it is acquired, before it has its full lease. The thief
// releases it when asked to.
func robbed(t *testing.T) (h *hold, thief *reentrant.Session, releases <-chan func()) {
	t.Helper()
	url := embedded(t)
	thief = session(t, url)
	taken, once := make(chan func(), 1), sync.Once{}
	b, err := redisbackend.Open(t.Context(), url)
	require.NoError(t, err)
	victim := sessionOn(t, robbedBackend{b, func() {
		once.Do(func() {
			force(t, thief, "lock")
			taken <- holdLock(t, thief, "lock", "thief")
		})
	}}, b.Close)
	d, err := newDeadline(50*time.Second, nil)
	require.NoError(t, err)
	h = &hold{server: &server{Redis: url}, deadline: d, stderr: io.Discard, session: victim, lock: plainLock{victim.NewLock("lock")}, owner: reentrant.WithOwner(t.Context(), "victim")}
	return h, thief, taken
}

// robbedBackend calls rob between the grant of a lock and the return of the Acquire.
type robbedBackend struct {
	backend.Backend
	rob func()
}

func (b robbedBackend) Connect(ctx context.Context, session string, sink backend.Sink) (backend.Conn, error) {
	c, err := b.Backend.Connect(ctx, session, sink)
	return robbedConn{c, b.rob}, err
}

type robbedConn struct {
	backend.Conn
	rob func()
}

func (c robbedConn) Bind(name string) (backend.Remote, error) {
	r, err := c.Conn.Bind(name)
	return robbedRemote{r, c.rob}, err
}

type robbedRemote struct {
	backend.Remote
	rob func()
}

func (r robbedRemote) Acquire(ctx context.Context, req backend.AcquireRequest) (backend.AcquireReply, error) {
	reply, err := r.Remote.Acquire(ctx, req)
	if err == nil && reply.Status == backend.Granted {
		r.rob()
	}
	return reply, err
}

// force takes a lock from its holder. No other session waits for it, so the command may be repeated.
func force(t *testing.T, s *reentrant.Session, name string) {
	t.Helper()
	for {
		_, err := s.NewLock(name).ForceUnlock(t.Context())
		if !errors.Is(err, reentrant.ErrUnavailable) {
			require.NoError(t, err)
			return
		}
	}
}

func TestTheDeadlineLeavesTheGrace(t *testing.T) {
	t.Parallel()
	grace := 3 * time.Second
	d, err := newDeadline(10*time.Second, &grace)
	require.NoError(t, err)
	asked := time.Now()
	d = d.confirmed(asked, 8*time.Second)
	end := asked.Add(8 * time.Second)
	assert.True(t, d.kill().Before(end.Add(-500*time.Millisecond)), "no room for the KILL")
	assert.Equal(t, grace, d.kill().Sub(d.term()))
	assert.Equal(t, d.until, d.confirmed(asked, time.Second).until, "a shorter lease does not move the promised deadline")
	assert.True(t, d.confirmed(asked, -1).until.Before(asked.Add(10*time.Second)))
}

func TestALockIsKeptForAtLeastSoLong(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	s := session(t, url)
	start(t, url, "run", "--at-least", "1h", "--note", "nightly", "lock", "--", "sh", "-c", "exit 7").exits(7)
	st := state(t, s, "lock")
	require.True(t, st.Locked && st.Unlocked, "%v", st)
	assert.Greater(t, st.TTL, 30*time.Minute)

	r := answered(t, url, "run", "-n", "lock", "--", "true")
	r.exits(exitNotAcquired)
	assert.Contains(t, r.stderr.String(), "lock lock was not acquired: it is kept by owner ~relock")

	left := []string{sessionsVariable + "=" + st.Session} // of what the command left behind
	answeredWith(t, left, url, "run", "-n", "lock", "--", "true").exits(exitNotAcquired)

	look := answered(t, url, "inspect", "lock")
	look.exits(0)
	assert.Regexp(t, `state +kept until its lease ends, though unlocked \(--at-least\)\n`, look.stdout.String())
	look = answered(t, url, "inspect", "--json", "lock")
	look.exits(0)
	assert.Contains(t, look.stdout.String(), `"unlocked":true`)

	takeAway(t, url, "lock")
	answered(t, url, "run", "-n", "lock", "--", "true").exits(0)
	assert.False(t, state(t, s, "lock").Locked)
}

func TestOnlyAPlainLockIsKeptForAtLeastSoLong(t *testing.T) {
	t.Parallel()
	for _, kind := range [][]string{{"-s"}, {"-x"}, {"--permits", "2"}} {
		r := start(t, "redis://127.0.0.1:1", slices.Concat([]string{"run", "--at-least", "5"}, kind, []string{"lock", "--", "true"})...)
		r.exits(exitUsage)
		assert.Contains(t, r.stderr.String(), "--at-least is for plain locks")
	}
	r := start(t, "redis://127.0.0.1:1", "run", "--at-least=-5", "lock", "--", "true")
	r.exits(exitUsage)
	assert.Contains(t, r.stderr.String(), "--at-least")
}
