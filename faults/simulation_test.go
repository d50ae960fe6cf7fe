package faults

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/faults/history"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

var hours = flag.Float64("hours", 0.5, "how many hours TestSimulation simulates")

// The sizes of a world.
const (
	simulated    = 10 * time.Minute // with faults; after that everything is repaired
	simProcesses = 3
	simWorkers   = 2
	simLease     = 30 * time.Second
	simHeartbeat = 5 * time.Second
	simPatience  = 10 * time.Minute // in virtual time

	simLeast       = min(simLease*2/3, simHeartbeat*3/2) - simHeartbeat/10 // see least
	simLeastCohort = min(simLease/3, simHeartbeat) - simHeartbeat/10
)

// Processes with clients of their own use locks of one server in virtual time, while connections are cut, slow or
// silent, replies are lost, requests arrive twice, processes vanish, and the server forgets. Package history judges what
// they did; in the end every worker gets a lock, and nothing is left in Redis.
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
				synctest.Test(t, w.play)
				v := w.judge(t)
				holds.Add(int64(v.Holds))
				lost.Add(int64(v.Lost))
			})
		}
	})
	t.Logf("%v: %d holds, %d of them lost", time.Duration(rounds)*simulated, holds.Load(), lost.Load())
	assert.Positive(t, holds.Load())
}

// A world is a server, the processes that use it, and what happens to them.
type world struct {
	t      *testing.T // of the bubble
	seed   uint64
	server *redistest.Server
	start  time.Time
	born   uint64
	ending sync.WaitGroup // processes that have died

	mu      sync.Mutex
	last    int64 // the last reading of now
	ops     []history.Op
	open    map[string]history.Op // the calls that have not returned, by client
	deaths  map[string]int64
	forgets []history.Span
	turns   map[string]int // the number of times that a worker had a lock
	diary   []string

	holds     map[string]held  // by client and lock: the last that it had
	repaired  map[string]int64 // when the last fault that concerned a process was over
	unfounded []string         // holds that were lost though nothing had happened
}

// held is a hold.
type held struct {
	token uint64
	since int64
}

// broken is a time of repair that has not come.
const broken = math.MaxInt64 / 2

func newWorld(seed uint64) *world {
	return &world{
		seed: seed, open: make(map[string]history.Op), deaths: make(map[string]int64), turns: make(map[string]int),
		holds: make(map[string]held), repaired: make(map[string]int64),
	}
}

func (w *world) random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(w.seed, stream)) }

func (w *world) play(t *testing.T) {
	w.t, w.server, w.start = t, redistest.InBubble(t), time.Now()
	var alive []*process
	for range simProcesses {
		alive = append(alive, w.begin())
	}
	w.rage(alive)
	for _, p := range alive {
		p.cable.turn(passing, passing)
	}
	w.recovers(alive)
	for _, p := range alive {
		p.stop()
	}
	for _, p := range alive {
		p.ended.Wait()
		p.cable.busy.Wait()
	}
	w.ending.Wait()
	for _, lock := range w.locks() {
		w.within("everything was released", func() bool { return len(keys(t, w.server.Client(), lock)) == 0 })
	}
}

// The seed decides what kind of world it is: whether the server forgets, and whether most sessions are WithCohort.
func (w *world) forgetful() bool { return w.seed%2 == 0 }
func (w *world) cohorts() bool   { return w.seed%4 >= 2 }

func (w *world) locks() []string { return []string{"left", "right"} }

// now is the virtual time. No two readings are equal: a command takes no virtual time, but it has an order.
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

// rage breaks one thing after the other. A process that dies is replaced.
func (w *world) rage(alive []*process) {
	random := w.random(0)
	for time.Since(w.start) < simulated {
		time.Sleep(between(random, time.Second, 30*time.Second))
		i := random.IntN(len(alive))
		p := alive[i]
		switch random.IntN(10) {
		case 0:
			w.kill(p)
			alive[i] = w.begin()
		case 1:
			if w.forgetful() {
				w.flush()
			}
		case 2:
			w.note("the server forgets its scripts")
			w.command("SCRIPT", "FLUSH")
		case 3, 4:
			w.breaks(p, "drops requests", dropping, passing, random)
		case 5, 6:
			w.breaks(p, "drops replies", passing, dropping, random)
		case 7:
			w.breaks(p, "is cut", cutting, cutting, random)
		default:
			w.breaks(p, "is slow", delaying, delaying, random)
		}
	}
}

func (w *world) breaks(p *process, what string, up, down fault, random *rand.Rand) {
	d := between(random, time.Second, simLease*3/2)
	w.note("the cable of %s %s for %v", p.name, what, d)
	w.concerns(p.name, broken)
	p.cable.turn(up, down)
	time.Sleep(d)
	p.cable.turn(passing, passing)
	w.note("the cable of %s is repaired", p.name)
	w.concerns(p.name, w.now())
}

// concerns records that a fault concerns a process, until it is over.
func (w *world) concerns(process string, over int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.repaired[process] = over
}

// lost checks that a loss has a reason: that a fault concerned the process during its hold, or within a lease before. Its
// owners may have handed the lock to each other since. w.mu is held.
func (w *world) lost(op history.Op) {
	h := w.holds[op.Client+op.Lock]
	over := w.repaired[op.Process]
	for _, f := range w.forgets {
		over = max(over, f.To)
	}
	if h.since > over+simLease.Nanoseconds() {
		w.unfounded = append(w.unfounded, fmt.Sprintf("%s lost %s at %v though nothing had happened since %v",
			op.Client, op.Lock, time.Duration(op.Return), time.Duration(over)))
	}
}

func (w *world) flush() {
	w.mu.Lock()
	w.noteLocked("the server forgets")
	w.forgets = append(w.forgets, history.Span{From: w.nowLocked(), To: broken})
	w.mu.Unlock()
	w.command("FLUSHALL")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgets[len(w.forgets)-1].To = w.nowLocked()
}

func (w *world) command(words ...string) {
	c := w.server.Client()
	require.NoError(w.t, c.Do(w.t.Context(), c.B().Arbitrary(words...).Build()).Error())
}

// recovers waits until every worker has had a lock after the last fault.
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

// within fails if a condition does not come about.
func (w *world) within(what string, ok func() bool) {
	for end := time.Now().Add(simPatience); !ok(); time.Sleep(time.Second) {
		if time.Now().After(end) {
			w.note("not within %v: %s", simPatience, what)
			assert.Fail(w.t, what)
			return
		}
	}
}

func (w *world) judge(t *testing.T) history.Verdict {
	h := history.History{Ops: w.ops, Deaths: w.deaths, Forgets: w.forgets, Lease: simLease, Least: simLeast, Local: w.cohorts()}
	if w.cohorts() {
		h.Least = simLeastCohort
	}
	v := history.Judge(h)
	for _, f := range v.Findings {
		assert.Fail(t, f.String())
	}
	assert.Empty(t, w.unfounded)
	if t.Failed() {
		dir, err := os.MkdirTemp("", "relock-simulation-") //nolint:usetesting // it outlives the test
		require.NoError(t, err)
		assert.NoError(t, os.WriteFile(filepath.Join(dir, "diary.txt"), []byte(strings.Join(w.diary, "\n")), 0o600))
		assert.NoError(t, v.Save(dir))
		t.Logf("seed %d; what happened, and pictures, are in %s", w.seed, dir)
	}
	return v
}

// between returns a time between two others.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}

// A process is a session, its client, the cable between the client and the server, and its workers.
type process struct {
	*world
	name   string
	number uint64
	cable  *cable
	stop   context.CancelFunc
	ended  sync.WaitGroup
}

// begin starts a process.
func (w *world) begin() *process {
	w.born++
	ctx, stop := context.WithCancel(context.Background())
	p := &process{world: w, name: fmt.Sprintf("p%d", w.born), number: w.born, stop: stop}
	p.cable = newCable(w.server, w.random(p.number*100))
	w.note("%s begins", p.name)
	p.ended.Go(func() {
		for ctx.Err() == nil { // a fault may keep it from opening its session
			if err := p.run(ctx); err != nil {
				p.note("%s: %v", p.name, err)
				time.Sleep(time.Second)
			}
		}
	})
	return p
}

// run opens a session, lets its workers work until ctx ends, and closes it.
func (p *process) run(ctx context.Context) error {
	option := p.server.ClientOption()
	option.DialCtxFn = p.cable.dial
	option.Dialer = net.Dialer{KeepAlive: simHeartbeat}
	client, err := rueidis.NewClient(option)
	if err != nil {
		return err
	}
	defer client.Close()
	backend, err := redisbackend.New(client)
	if err != nil {
		return err
	}
	session, err := reentrant.NewSession(backend, p.options()...)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for i := range simWorkers {
		worker := &hand{process: p, session: session, name: clientName(p.name, i), random: p.random(p.number*100 + uint64(i) + 1)}
		all.Go(func() { worker.work(ctx) })
	}
	all.Wait()
	closing, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return session.Close(closing)
}

func (p *process) options() []reentrant.Option {
	opts := []reentrant.Option{reentrant.WithLease(simLease), reentrant.WithHeartbeat(simHeartbeat)}
	if p.cohorts() && p.number%simProcesses != 0 {
		opts = append(opts, reentrant.WithCohort(), reentrant.WithLinger(simHeartbeat/2))
	}
	return opts
}

// kill ends a process at once, as far as others can see.
func (w *world) kill(p *process) {
	p.cable.turn(cutting, cutting)
	w.mu.Lock()
	w.noteLocked("%s dies", p.name)
	w.deaths[p.name] = w.nowLocked()
	for client, op := range w.open {
		if op.Process == p.name {
			w.ops = append(w.ops, op)
			delete(w.open, client)
		}
	}
	w.mu.Unlock()
	p.stop()
	w.ending.Go(p.ended.Wait)
	w.ending.Go(p.cable.busy.Wait)
}

// A hand is a worker of a process.
type hand struct {
	*process
	session *reentrant.Session
	name    string
	random  *rand.Rand
}

func (h *hand) work(ctx context.Context) {
	for ctx.Err() == nil {
		l := h.session.NewLock(h.locks()[h.random.IntN(2)])
		if h.acquire(ctx, l) {
			h.section(ctx, l)
		}
		time.Sleep(between(h.random, 0, simHeartbeat))
	}
}

// section re-enters the lock some times, checks it, and releases it as often as it was acquired. Some sections outlast
// several leases.
func (h *hand) section(ctx context.Context, l *reentrant.Lock) {
	holds := 1
	for range h.random.IntN(3) {
		if h.acquire(ctx, l) {
			holds++
		}
	}
	if h.random.IntN(2) == 0 {
		h.record(l, history.Verify, func() (uint64, error) { return 0, l.Verify(context.Background()) })
	}
	time.Sleep(between(h.random, 0, 5*time.Second))
	if h.random.IntN(8) == 0 {
		for end := time.Now().Add(simLease * 5 / 2); time.Now().Before(end) && h.look(l); {
			time.Sleep(simHeartbeat)
		}
	}
	for range holds {
		h.look(l)
		h.record(l, history.Unlock, func() (uint64, error) { return 0, l.Unlock(context.Background()) })
	}
}

func (h *hand) acquire(ctx context.Context, l *reentrant.Lock) bool {
	way, wait := h.random.IntN(4), between(h.random, 0, 20*time.Second)
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(wait*time.Duration(way%2), simPatience))
	defer cancel()
	op := h.record(l, history.Acquire, func() (uint64, error) {
		var err error
		switch way {
		case 0:
			err = taken(l.TryLock(ctx))
		case 2:
			err = taken(l.TryLockFor(ctx, wait))
		default:
			err = l.Lock(ctx)
		}
		if err != nil {
			return 0, err
		}
		token, _ := l.Token(context.Background()) // there is none if the lock has been lost by now
		return uint64(token), nil
	})
	if op.Outcome == history.OK && op.Token == 0 {
		h.look(l) // the worker knows of the loss, and its next acquire is no re-entry
	}
	return op.Outcome == history.OK
}

func (h *hand) look(l *reentrant.Lock) bool {
	op := h.record(l, history.Look, func() (uint64, error) {
		if l.IsHeldByCurrentOwner(context.Background()) {
			return 0, nil
		}
		return 0, reentrant.ErrLost
	})
	return op.Outcome == history.OK
}

// record records an operation. What a dead process does is not recorded.
func (h *hand) record(l *reentrant.Lock, kind history.Kind, run func() (uint64, error)) history.Op {
	op := history.Op{Process: h.process.name, Client: h.name, Lock: l.Name(), Kind: kind}
	h.mu.Lock()
	op.Call = h.nowLocked()
	if h.deaths[op.Process] == 0 {
		h.open[op.Client] = op
	}
	h.mu.Unlock()

	token, err := run()

	h.mu.Lock()
	defer h.mu.Unlock()
	op.Return, op.Token, op.Outcome = h.nowLocked(), token, outcome(kind, err)
	if err != nil {
		op.Note = err.Error()
	}
	if _, alive := h.open[op.Client]; !alive {
		return op
	}
	delete(h.open, op.Client)
	h.ops = append(h.ops, op)
	h.noteLocked("%s  %s %s, called %v: %s %d %s", op.Client, op.Kind, op.Lock, time.Duration(op.Call), op.Outcome, op.Token, op.Note)
	h.learn(op)
	return op
}

// learn keeps what an operation shows. w.mu is held.
func (w *world) learn(op history.Op) {
	switch of := op.Client + op.Lock; {
	case op.Outcome == history.Lost:
		w.lost(op)
	case op.Kind == history.Acquire && op.Outcome == history.OK:
		w.turns[op.Client]++
		if w.holds[of].token != op.Token {
			w.holds[of] = held{op.Token, op.Call}
		}
	}
}
