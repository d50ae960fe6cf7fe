package faults

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/faults/history"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

var hours = flag.Float64("hours", float64(testsize.Of(75, 25))/60, "how many hours TestSimulation simulates")

// The sizes of a world.
const (
	simCalm      = 5 * time.Minute // the time without faults
	simulated    = 25 * time.Minute
	simProcesses = 3
	simWorkers   = 4
	simLease     = 6 * simHeartbeat
	simHeartbeat = 12 * time.Second
	simLinger    = simHeartbeat / 2
	simTurn      = 3                // the most hand-overs of a cohort of which traces are written
	simPatience  = 30 * time.Minute // in virtual time
	simKept      = 5 * time.Minute  // how long the server keeps the records of a name that is not in use

	simLeast       = min(simLease*2/3, simHeartbeat*3/2) - simHeartbeat/10 // like least
	simLeastCohort = min(simLease/3, simHeartbeat) - simHeartbeat/10
)

// Processes with clients of their own use all kinds of locks of one server in virtual time. At first nothing goes wrong,
// and everything must be prompt and in order. Then connections are cut, slow or silent, replies are lost, requests arrive
// twice, processes vanish, and the server stands still, forgets, fails over to an older copy, or gets another clock. Package
// history judges what the processes did; in the end every worker gets a lock, and nothing is left in Redis.
//
// The seed decides the faults, and what the workers want. Which goroutine runs first is Go's choice, so a seed that fails
// may need several runs: go test ./faults -run Simulation -seed 42 -hours 1. For longer: make simulate HOURS=100.
func TestSimulation(t *testing.T) {
	first := *seed
	if first == 0 {
		first = rand.Uint64N(1 << 32)
	}
	rounds := uint64(max(1, *hours*float64(time.Hour)/float64(simulated)))
	var holds, lost atomic.Int64
	t.Run("worlds", func(all *testing.T) {
		for i := first; i < first+rounds; i++ {
			all.Run(fmt.Sprintf("seed=%d", i), func(t *testing.T) {
				t.Parallel()
				if all.Failed() {
					t.Skip("another world has failed")
				}
				w := newWorld(i)
				if *traces != "" && !w.traced() {
					t.Skip("no traces can be written")
				}
				synctest.Test(t, w.play)
				if w.recorder != nil {
					w.recorder.write(t, *traces, i)
				}
				h, l := w.judge(t)
				holds.Add(int64(h))
				lost.Add(int64(l))
			})
		}
	})
	t.Logf("%v: %d holds, %d of them lost", time.Duration(rounds)*simulated, holds.Load(), lost.Load())
	assert.Positive(t, holds.Load())
}

// A world is a server, the processes that use it, and what happens to them.
type world struct {
	t        *testing.T // the test in the bubble
	seed     uint64
	server   *redistest.Server
	recorder *recorder          // nil: no traces are written
	asker    *reentrant.Session // connected to the server without a cable: no fault concerns it
	start    time.Time
	calm     bool // true until the first fault; written between the phases, when no process begins
	born     uint64
	ending   sync.WaitGroup // processes that have died

	mu       sync.Mutex
	last     int64 // the last reading of now
	calls    []call
	open     map[string]call // the calls that have not returned, by client and name
	deaths   map[string]int64
	forgets  []history.Span
	restored int64           // when an older copy of the data last took over
	turns    map[string]int  // the number of times that a worker had something
	inside   map[*part]*hand // parts in use, by hands that have not begun to release them
	seen     map[string]bool // the holds of Locks about which observers have heard, by session, name and token
	trips    []*trip
	trip     int // the number of trips so far
	diary    []string

	holds    map[string]held  // the latest hold of each key
	repaired map[string]int64 // when the last fault that concerned a process was over
	findings []string

	sessions map[string]string // the processes, by the ids of their sessions
	used     map[stake]int64   // when a process last had something to do with a name

	storm   int64 // when the calm was over
	scripts int   // the number of scripts sent in the calm
}

// held is a hold, as far as the calls about it show.
type held struct {
	token uint64
	since int64 // when the acquire was called
	got   int64 // when it returned
	depth int
	terms terms
	gone  bool // its loss has been seen
}

// broken stands for the time of a repair that has not happened yet.
const broken = math.MaxInt64 / 2

func newWorld(seed uint64) *world {
	return &world{
		seed: seed, calm: true, open: make(map[string]call), deaths: make(map[string]int64), turns: make(map[string]int),
		inside: make(map[*part]*hand), seen: make(map[string]bool), holds: make(map[string]held), repaired: make(map[string]int64),
		used: make(map[stake]int64), sessions: make(map[string]string),
	}
}

func (w *world) random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(w.seed, stream)) }

func (w *world) play(t *testing.T) {
	w.t, w.server, w.start = t, redistest.InBubble(t), time.Now()
	if *traces != "" {
		w.recorder = newRecorder(w.server)
	}
	var err error
	w.asker, err = reentrant.NewSession(w.server.Backend())
	require.NoError(t, err)
	defer func() { assert.NoError(t, w.asker.Close(t.Context())) }()
	var alive []*process
	for range simProcesses {
		alive = append(alive, w.begin())
	}
	w.rest(alive)
	w.rage(alive)
	for _, p := range alive {
		p.cable.turn(passing, passing)
	}
	w.recovers(alive)
	for _, p := range alive {
		p.stop()
	}
	for _, p := range alive {
		p.gone()
	}
	w.ending.Wait()
	w.within("everything was released", w.released)
	w.expires()
}

// expires checks that everything that is left in the server ends by itself, and soon.
func (w *world) expires() {
	c := w.server.Client()
	left, err := c.Do(w.t.Context(), c.B().Keys().Pattern("*").Build()).AsStrSlice()
	require.NoError(w.t, err)
	for _, key := range left {
		ttl, err := c.Do(w.t.Context(), c.B().Pttl().Key(key).Build()).AsInt64()
		require.NoError(w.t, err)
		if ttl == -1 || ttl > w.kept(key).Milliseconds() {
			w.find("%s stays for %d ms", key, ttl)
		}
	}
}

// kept returns how long the server may keep a key. A record whose tokens ran ahead of the clock is kept for longer by that
// much, rounded up to seconds.
func (w *world) kept(key string) time.Duration {
	if !strings.Contains(key, ":t:") {
		return simKept
	}
	c := w.server.Client()
	record := c.B().Get().Key(key).Build()
	kind, err := c.Do(w.t.Context(), c.B().Type().Key(key).Build()).ToString()
	require.NoError(w.t, err)
	if kind == "hash" { // of a shared name
		record = c.B().Hget().Key(key).Field("=").Build()
	}
	words, err := c.Do(w.t.Context(), record).ToString()
	require.NoError(w.t, err)
	now, err := c.Do(w.t.Context(), c.B().Time().Build()).AsIntSlice()
	require.NoError(w.t, err)
	var first string
	var last int64 // tokens are microseconds
	_, err = fmt.Sscan(words, &first, &last)
	require.NoError(w.t, err)
	return simKept + max(0, time.Duration(last-now[0]*1_000_000-now[1])*time.Microsecond) + time.Second
}

// The seed decides what kind of world it is: whether the server forgets, whether most sessions are
// WithCohort, whether some are WithAsyncUnlock, whether most processes run no scripts, and whether before the storm all
// messages that are published are lost, or the server's clock goes back at times.
func (w *world) forgetful() bool { return w.seed%2 == 0 }
func (w *world) cohorts() bool   { return w.seed%4 >= 2 }
func (w *world) async() bool     { return w.seed%3 == 0 }
func (w *world) plain() bool     { return w.seed%7 == 1 }
func (w *world) deaf() bool      { return w.seed%11 == 6 }
func (w *world) lags() bool      { return w.seed%11 == 7 }

// lateness returns by how much calls are later because messages are lost. Each lost message costs a heartbeat, and some calls
// need two messages.
func (w *world) lateness() time.Duration {
	if w.deaf() {
		return simHeartbeat * 5 / 2
	}
	return 0
}

// traced reports whether traces of a world can be written. The specification explains neither steps of the server's clock nor
// what the server does without scripts.
func (w *world) traced() bool { return !w.lags() && !w.plain() }

// released reports whether the server has nothing left under any name.
func (w *world) released() bool {
	for _, lock := range simLocks {
		if len(keys(w.t, w.server.Client(), lock)) > 0 {
			return false
		}
	}
	for _, inspect := range []func() (reentrant.SharedState, error){
		func() (reentrant.SharedState, error) { return w.asker.NewRWLock(simBook).Inspect(w.t.Context()) },
		func() (reentrant.SharedState, error) {
			return w.asker.NewSemaphore(simSeats, simSeatsFree).Inspect(w.t.Context())
		},
		func() (reentrant.SharedState, error) {
			return w.asker.NewSemaphore(simDesks, simDesksFree).Inspect(w.t.Context())
		},
	} {
		state, err := inspect()
		require.NoError(w.t, err)
		if len(state.Holders)+len(state.Waiting) > 0 {
			return false
		}
	}
	return true
}

// now is the virtual time. No two readings are equal: commands take no virtual time, but the readings show their order.
func (w *world) now() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nowLocked()
}

func (w *world) nowLocked() int64 {
	w.last = max(w.last+1, time.Since(w.start).Nanoseconds())
	return w.last
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLocked(format, args...)
}

func (w *world) noteLocked(format string, args ...any) {
	w.diary = append(w.diary, fmt.Sprintf("%12v  ", time.Duration(w.nowLocked()))+fmt.Sprintf(format, args...))
}

// recovers waits until every worker has had a lock, a side or permits after the last fault.
func (w *world) recovers(alive []*process) {
	w.mu.Lock()
	before := make(map[string]int)
	for _, p := range alive {
		for i := range simWorkers {
			before[clientName(p.name, i)] = w.turns[clientName(p.name, i)]
		}
	}
	w.mu.Unlock()
	w.within("every worker gets a lock when the faults are over", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for c, n := range before {
			if w.turns[c] == n {
				return false
			}
		}
		return true
	})
}

// find records a violation.
func (w *world) find(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.findLocked(format, args...)
}

func (w *world) found() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.findings) > 0
}

func (w *world) findLocked(format string, args ...any) {
	w.noteLocked(format, args...)
	w.findings = append(w.findings, fmt.Sprintf(format, args...))
}

// within records a violation if ok does not return true within simPatience.
func (w *world) within(what string, ok func() bool) {
	for end := time.Now().Add(simPatience); !ok(); time.Sleep(time.Second) {
		if time.Now().After(end) {
			w.find("not within %v: %s", simPatience, what)
			return
		}
	}
}

// judge returns how many holds there were, and how many of them were lost.
func (w *world) judge(t *testing.T) (holds, lost int) {
	var exclusive, numbers, shared []history.Op
	for _, c := range w.calls {
		switch {
		case c.Kind == signalled || c.Kind == waitedFor || c.Kind == inspected:
		case c.Lock == simBook || c.Lock == simSeats || c.Lock == simDesks:
			shared = append(shared, c.Op)
		case strings.HasPrefix(c.Lock, simDesks):
			numbers = append(numbers, c.Op)
		default:
			exclusive = append(exclusive, c.Op)
		}
	}
	h := history.History{Ops: exclusive, Deaths: w.deaths, Forgets: w.forgets, Lease: simLease, Least: simLeast}
	if h.Local = w.cohorts(); h.Local {
		h.Least = simLeastCohort
	}
	slots := h // a slot is lost with its permit, which a process passes to its next owner without asking Redis
	slots.Ops, slots.Local = numbers, true
	verdicts := []history.Verdict{history.Judge(h), history.Judge(slots), history.JudgeShared(history.SharedHistory{
		Ops: shared, Deaths: w.deaths, Forgets: w.forgets, Lease: simLease,
		Permits: map[string]int{simSeats: simSeatsFree, simDesks: simDesksFree},
	})}
	for _, v := range verdicts {
		holds, lost = holds+v.Holds, lost+v.Lost
		for _, f := range v.Findings {
			assert.Fail(t, f.String())
		}
	}
	for _, what := range slices.Concat(w.findings, w.disorder(), w.tooSoon(), w.unobserved(), w.mistimed()) {
		assert.Fail(t, what)
	}
	if t.Failed() {
		w.keep(t, verdicts)
	}
	return holds, lost
}

// keep saves what is needed to understand a failure.
func (w *world) keep(t *testing.T, verdicts []history.Verdict) {
	if os.Getenv("RELOCK_MUTANT") != "" {
		return // the simulation of a mutant is expected to fail
	}
	dir, err := os.MkdirTemp("", "relock-simulation-") //nolint:usetesting // it outlives the test
	require.NoError(t, err)
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "diary.txt"), []byte(strings.Join(w.diary, "\n")), 0o600))
	for _, v := range verdicts {
		assert.NoError(t, v.Save(dir))
	}
	t.Logf("seed %d; what happened, and pictures, are in %s", w.seed, dir)
}

// between returns a random time from least to most.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}
