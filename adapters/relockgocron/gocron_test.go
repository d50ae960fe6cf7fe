package relockgocron_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/adapters/relockgocron"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// process opens a session, which stands for a process.
func process(t *testing.T, server *redistest.Server) *reentrant.Session {
	t.Helper()
	session, err := reentrant.NewSession(server.Backend(), reentrant.WithLease(time.Minute), reentrant.WithHeartbeat(20*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = session.Close(ctx) // what a test still holds is abandoned
	})
	return session
}

// patient has Shutdown wait for jobs for longer than a machine stands still.
var patient = gocron.WithStopTimeout(time.Minute)

// answered asks again while Redis does not reply in time, as on a machine that stands still. What an attempt without a
// reply may have acquired is released.
func answered(ask func() error) error {
	err := ask()
	for begun := time.Now(); errors.Is(err, reentrant.ErrUnavailable) && time.Since(begun) < time.Minute; err = ask() {
	}
	return err
}

// locks makes a locker try to get the lock of a job.
func locks(t *testing.T, locker *relockgocron.Locker, key string) (lock gocron.Lock, err error) {
	t.Helper()
	err = answered(func() (err error) {
		lock, err = locker.Lock(t.Context(), key)
		return err
	})
	return lock, err
}

// leads asks an elector whether it is the leader.
func leads(t *testing.T, elector *relockgocron.Elector) error {
	t.Helper()
	return answered(func() error { return elector.IsLeader(t.Context()) })
}

func TestOneRunOfAJobHasTheLock(t *testing.T) {
	server := redistest.Start(t)
	here := relockgocron.NewLocker(process(t, server), 0)
	there := relockgocron.NewLocker(process(t, server), 0)
	lock, err := locks(t, here, "report")
	require.NoError(t, err)
	for name, locker := range map[string]*relockgocron.Locker{"same process": here, "another": there} {
		_, err = locks(t, locker, "report")
		require.ErrorIs(t, err, relockgocron.ErrTaken, name)
	}
	_, err = locks(t, there, "another job")
	require.NoError(t, err)
	unlocked := make(chan error)
	go func() { unlocked <- lock.Unlock(t.Context()) }() // gocron may unlock from any goroutine
	require.NoError(t, <-unlocked)
	_, err = locks(t, there, "report")
	require.NoError(t, err)
}

func TestALockIsKeptForTheSplay(t *testing.T) {
	server := redistest.Start(t)
	here := relockgocron.NewLocker(process(t, server), 200*time.Millisecond)
	there := relockgocron.NewLocker(process(t, server), 0)
	began := time.Now()
	lock, err := locks(t, here, "report")
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(t.Context()))
	require.Eventually(t, func() bool {
		_, err := locks(t, there, "report")
		return err == nil
	}, time.Minute, time.Millisecond)
	assert.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond)
}

// Two schedulers of the real gocron run a job that takes longer than its interval: it never runs twice at once.
func TestSchedulersRunAJobOneAtATime(t *testing.T) {
	server := redistest.Start(t)
	var inside, runs, overlaps atomic.Int32
	for range 2 {
		scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(relockgocron.NewLocker(process(t, server), 0)), patient)
		require.NoError(t, err)
		_, err = scheduler.NewJob(gocron.DurationJob(5*time.Millisecond), gocron.NewTask(func() {
			if inside.Add(1) != 1 {
				overlaps.Add(1)
			}
			time.Sleep(10 * time.Millisecond) // the job's work
			inside.Add(-1)
			runs.Add(1)
		}), gocron.WithName("report"))
		require.NoError(t, err)
		scheduler.Start()
		t.Cleanup(func() { assert.NoError(t, scheduler.Shutdown()) })
	}
	require.Eventually(t, func() bool { return runs.Load() >= 20 }, time.Minute, time.Millisecond)
	assert.Zero(t, overlaps.Load())
}

func TestThereIsOneLeader(t *testing.T) {
	server := redistest.Start(t)
	first, second := process(t, server), process(t, server)
	here, there := relockgocron.NewElector(first, "leader"), relockgocron.NewElector(second, "leader")
	require.NoError(t, leads(t, here))
	asks := func() uint64 {
		before := first.Stats().Commands
		require.NoError(t, leads(t, here))
		return first.Stats().Commands - before
	}
	commands := asks()
	for range 4 {
		commands = min(commands, asks()) // a renewal may come between
	}
	assert.Zero(t, commands, "the leader asks no server")
	require.ErrorIs(t, leads(t, there), relockgocron.ErrNotLeader)
	require.NoError(t, here.Resign(t.Context()))
	require.NoError(t, here.Resign(t.Context()), "again")
	require.NoError(t, leads(t, there))
	require.ErrorIs(t, leads(t, here), relockgocron.ErrNotLeader)
}

func TestAnotherProcessLeadsWhenTheLeaderEnds(t *testing.T) {
	server := redistest.Start(t)
	first := process(t, server)
	here, there := relockgocron.NewElector(first, "leader"), relockgocron.NewElector(process(t, server), "leader")
	require.NoError(t, leads(t, here))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = first.Close(ctx) // releases what is held
	require.Eventually(t, func() bool { return leads(t, there) == nil }, time.Minute, time.Millisecond)
	require.ErrorIs(t, leads(t, here), reentrant.ErrClosed)
}

func TestALeaderThatLostTheLockCampaignsAgain(t *testing.T) {
	server := redistest.Start(t)
	session := process(t, server)
	elector := relockgocron.NewElector(session, "leader")
	require.NoError(t, leads(t, elector))
	require.NoError(t, answered(func() error {
		_, err := session.NewLock("leader").ForceUnlock(t.Context())
		return err
	}))
	require.Error(t, session.NewLock("leader").Verify(t.Context())) // asking as another owner changes nothing
	require.NoError(t, leads(t, elector))
}

// With an elector, jobs run in only one of the processes with schedulers.
func TestOnlyTheLeaderRunsJobs(t *testing.T) {
	server := redistest.Start(t)
	var runs [2]atomic.Int32
	for i := range runs {
		scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(relockgocron.NewElector(process(t, server), "leader")), patient)
		require.NoError(t, err)
		_, err = scheduler.NewJob(gocron.DurationJob(5*time.Millisecond), gocron.NewTask(func() { runs[i].Add(1) }))
		require.NoError(t, err)
		scheduler.Start()
		t.Cleanup(func() { assert.NoError(t, scheduler.Shutdown()) })
	}
	require.Eventually(t, func() bool { return runs[0].Load()+runs[1].Load() >= 20 }, time.Minute, time.Millisecond)
	assert.Zero(t, min(runs[0].Load(), runs[1].Load()))
}
