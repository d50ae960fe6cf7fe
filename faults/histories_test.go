package faults

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/faults/history"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/internal/testsize"
)

var (
	duration = flag.Duration("duration", time.Second, "how long TestHistories goes on after its first rounds have begun")
	seed     = flag.Uint64("seed", 0, "of the first round of TestHistories; 0 for a random one")
)

// The sizes of a round.
const (
	processes      = 5
	workers        = 4
	roundLease     = time.Second
	roundHeartbeat = 200 * time.Millisecond

	// least is the shortest time for which a hold lasts. A lock that is handed over has at least two thirds of its lease left.
	// A lock that was pushed is trusted for at least half of a grant's three heartbeats. The margin is subtracted from both.
	least = min(roundLease*2/3, roundHeartbeat*3/2) - roundHeartbeat/10
	// leastCohort is least in cohort mode, where a lock is handed over if a third of its lease, or of its grant, is left.
	leastCohort = min(roundLease/3, roundHeartbeat) - roundHeartbeat/10
)

// Processes use two locks in every possible way, while a nemesis breaks what it can. Then everything is repaired, and
// every worker must get a lock again. Package history judges what they did, and the registers that the locks protect
// must have lost no update.
//
// Six kinds of rounds take turns. Without RELOCK_FULL=1, and for a duration of up to a second, only one is run, chosen
// by the seed. To run for longer, with the seed of a round that failed: go test ./faults -run Histories -duration 2h
// -timeout 0 -seed 42.
func TestHistories(t *testing.T) {
	t.Parallel()
	first := *seed
	if first == 0 {
		first = rand.Uint64N(1 << 32)
	}
	end := time.Now().Add(*duration)
	for i := first; i == first || time.Now().Before(end); i++ {
		for _, k := range kinds(i) {
			if !t.Run(fmt.Sprintf("%s/seed=%d", k, i), func(t *testing.T) { playRound(t, i, k) }) {
				return
			}
		}
	}
}

// chaos returns how long the faults of a round last: a long run has long rounds, of up to some ten thousand operations.
func chaos() time.Duration {
	shortest := time.Duration(testsize.Of(3000, 1500)) * time.Millisecond
	return min(max(shortest, *duration/15), 15*time.Second)
}

// A kind of round says whether Redis keeps everything, whether most sessions are WithCohort, and whether there are
// read-write locks and a semaphore in place of locks.
type kind struct{ durable, cohort, shared bool }

func (k kind) String() string {
	name := "forgetful"
	if k.durable {
		name = "durable"
	}
	if k.cohort {
		name += " cohorts"
	}
	if k.shared {
		name += " shared"
	}
	return name
}

// kinds returns all kinds of rounds at full size or in a long run, and otherwise one kind, which the seed decides.
func kinds(seed uint64) []kind {
	all := []kind{
		{durable: true}, {durable: false}, {durable: true, cohort: true}, {durable: false, cohort: true},
		{durable: true, shared: true}, {durable: false, shared: true},
	}
	if testsize.Full() || *duration > time.Second {
		return all
	}
	return all[seed%uint64(len(all)):][:1]
}

// A round is a run with new processes and a new Redis.
type round struct{ *nemesis }

func playRound(t *testing.T, seed uint64, k kind) {
	dir, err := os.MkdirTemp("", "relock-histories-") //nolint:usetesting // it outlives a test that fails
	require.NoError(t, err)
	r := newRound(t, seed, k, dir)
	t.Cleanup(func() { r.keep(dir) })

	ctx, cancel := context.WithTimeout(t.Context(), chaos())
	defer cancel()
	r.rage(ctx)
	r.recovers()
	r.stop()
	if k.shared {
		r.judgeShared(t, dir)
		return
	}
	c := client(t, r.servers.master.Addr())
	for _, lock := range r.role.Locks {
		eventually(t, func() bool { return len(keys(t, c, lock)) == 0 }, "everything was released")
	}
	r.judge(t, dir)
}

func newRound(t *testing.T, seed uint64, k kind, dir string) *round {
	servers := &pair{t: t}
	if k.durable {
		// Redis writes its file before it replies, but does not wait for the disk. A kill loses nothing of what was written,
		// and a busy disk delays nothing.
		servers.master = redisserver.StartWithClock(t, "--appendonly", "yes", "--appendfsync", "no")
	} else {
		servers = newPair(t)
	}
	register, addr := newRegister(t, true)
	f := newFleet(t, processes, servers.master.Addr(), dir, role{
		Register: addr, Locks: []string{"left", "right"}, Workers: workers,
		Lease: roundLease, Heartbeat: roundHeartbeat, Seed: seed,
		Cohort: k.cohort, Linger: roundHeartbeat / 2, Shared: k.shared,
	})
	f.each(func(c string) bool { return register.turnsOf(c) > 0 }, "all workers have begun")
	proxy := newLink(t, servers.master.Addr())
	return &round{&nemesis{
		fleet: f, servers: servers, register: register, proxy: proxy, admin: client(t, proxy.addr), seed: seed, kind: k,
	}}
}

// recovers waits until every worker has had a lock after the last fault. First everything must end that a dead process left
// behind: a lease, a place that lasts for the patience with a waiter, or a grant to the dead waiter. After that every worker
// still needs time for a section.
func (r *round) recovers() {
	began := time.Now()
	before := make(map[string]int)
	variants := []string{""}
	if r.shared {
		variants = sides
	}
	for _, side := range variants {
		for _, c := range r.clients() {
			before[c+side] = r.register.turnsOf(c + side)
		}
	}
	for _, side := range variants {
		r.each(func(c string) bool { return r.register.turnsOf(c+side) > before[c+side] }, "every worker gets a lock when the faults are over: "+side)
	}
	r.note("every worker got a lock within %v", time.Since(began))
}

func (r *round) judge(t *testing.T, dir string) {
	h := history.History{
		Ops: r.ops(), Deaths: r.deaths, Forgets: r.forgets, Lease: roundLease, Least: least, Local: r.cohort,
	}
	if r.cohort {
		h.Least = leastCohort
	}
	began := time.Now()
	v := history.Judge(h)
	sum := r.register.total()
	t.Logf("%d operations, %d holds, %d of them lost, %d deaths, Redis forgot %d times, %d of them by a failover; "+
		"%d updates, %d refused; judged in %v", len(h.Ops), v.Holds, v.Lost, len(h.Deaths), len(h.Forgets), failovers(h),
		sum.updates, sum.refused, time.Since(began).Round(time.Millisecond))
	assert.Zero(t, sum.lost, "updates of a fenced register")
	assert.Positive(t, v.Holds)
	for _, f := range v.Findings {
		assert.Fail(t, f.String())
	}
	assert.NoError(t, v.Save(dir))
}

func failovers(h history.History) (n int) {
	for _, f := range h.Forgets {
		if f.Partly {
			n++
		}
	}
	return n
}

// keep saves what is needed to understand a failure, and prints where it is.
func (r *round) keep(dir string) {
	t := r.t
	if !t.Failed() {
		assert.NoError(t, os.RemoveAll(dir))
		return
	}
	diary := fmt.Sprintf("seed %d, %s\n%s\n", r.seed, r.kind, strings.Join(r.diary, "\n"))
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "nemesis.txt"), []byte(diary), 0o600))
	forgets, err := json.Marshal(r.forgets)
	assert.NoError(t, err)
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "forgets.json"), forgets, 0o600))
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "redis.log"), []byte(r.servers.master.Log()), 0o600))
	t.Logf("seed %d; histories, logs of the processes and of Redis, and pictures are in %s", r.seed, dir)
}

// A holder is suspended between its read and its write until another holder has written. If the register is fenced, it refuses
// the late write. If not, an update is lost. So the fenced registers of TestHistories can show a fault.
func TestRankedAHolderThatIsPausedPastItsLease(t *testing.T) {
	t.Parallel()
	for _, fenced := range []bool{true, false} {
		t.Run(fmt.Sprintf("fenced=%v", fenced), func(t *testing.T) {
			t.Parallel()
			srv := redisserver.Start(t)
			register, addr := newRegister(t, fenced)
			f := newFleet(t, 2, srv.Addr(), t.TempDir(), role{
				Register: addr, Locks: []string{"paused"}, Workers: 1, Lease: roundLease, Heartbeat: roundHeartbeat,
			})
			reading := make(chan struct{})
			register.watch(func(client string) bool {
				if client != clientName("p1.1", 0) {
					return false
				}
				f.seats[0].halt() // the process gets the reply when it runs again
				close(reading)
				return true
			})
			<-reading
			before := register.total().updates
			eventually(t, func() bool { return register.total().updates > before }, "another holder has written")
			f.seats[0].signal(syscall.SIGCONT)
			eventually(t, func() bool { return register.turnsOf(clientName("p1.1", 0)) > 1 }, "the suspended process goes on")
			f.stop()

			sum := register.total()
			assert.Equal(t, fenced, sum.lost == 0, "%d updates lost", sum.lost)
			assert.Equal(t, fenced, sum.refused > 0, "%d writes refused", sum.refused)
			v := history.Judge(history.History{Ops: f.ops(), Deaths: f.deaths, Lease: roundLease, Least: least})
			assert.Empty(t, v.Findings)
			assert.Positive(t, v.Lost, "the holder was notified of the loss")
		})
	}
}
