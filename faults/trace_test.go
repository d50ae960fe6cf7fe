package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

var (
	traces    = flag.String("traces", "", "a folder for traces: TestTraces writes what spec/trace/RelockTrace.tla explains, TestSharedTraces what SharesTrace.tla does, and TestSimulation what WorldTrace.tla does")
	traceRuns = flag.Int("traceruns", 2, "how many traces TestTraces and TestSharedTraces record")
	traceLen  = flag.Int("tracelen", 300, "how many steps a trace of TestTraces or TestSharedTraces has at least, and one of TestSimulation at most")
)

// The sizes of a traced world: the defaults of a session.
const (
	traceLease  = reentrant.DefaultLease
	traceBeat   = reentrant.DefaultHeartbeat
	traceOwners = 2
)

// traced is the name of the lock in a traced world.
const traced = "traced"

// Sessions use one lock over a network that delays, loses and doubles messages. Each step is recorded: what sessions send, what
// the server executes and replies, what sessions hear, and for how long an owner has the lock. Then spec/trace/RelockTrace.tla
// shows whether the specification explains the traces (.ci/traces).
func TestTraces(t *testing.T) {
	recordTraces(t, func(s *reentrant.Session, w tracedWork) func(context.Context) {
		return (&traceWorker{w, s.NewLock(traced)}).work
	})
}

// recordTraces records traces of sessions. work returns the function that each owner of a session runs.
func recordTraces(t *testing.T, work func(*reentrant.Session, tracedWork) func(context.Context)) {
	first := *seed
	if first == 0 {
		first = rand.Uint64N(1 << 32)
	}
	for i := first; i < first+uint64(*traceRuns); i++ {
		t.Run(fmt.Sprintf("seed=%d", i), func(t *testing.T) {
			t.Parallel()
			var tr *trace
			synctest.Test(t, func(t *testing.T) {
				tr = newTrace(t, i)
				tr.record(t, work)
			})
			assert.GreaterOrEqual(t, len(tr.steps), *traceLen)
			if *traces != "" {
				require.NoError(t, os.WriteFile(filepath.Join(*traces, fmt.Sprintf("%d.trace", i)), []byte(tr.text()), 0o600))
			}
		})
	}
}

// A step is an event of a trace.
type step struct {
	at      int64  // ms since the beginning
	what    string // send, execute, hear, drop, got, left, lost, flush
	s       string // the session
	kind    string // of the message: as in spec/Relock.tla
	epoch   uint64
	age     int64         // of the message, ms
	until   int64         // attempt: its notAfter; release: for how long a copy of an attempt may be under way
	token   backend.Token // given or confirmed; attempt: the highest that the session has seen
	keep    bool          // the attempt leaves the lease as it is
	prior   uint64        // the epoch whose record the attempt compares, if the session knows it
	again   bool          // the message stays under way
	reply   string        // to the message that was executed
	to      string        // the session that got the lock by this message while it waited
	toEpoch uint64        // the epoch of that session
	share   *shareStep    // for a shared name; nil for a lock
}

// A trace is what sessions and their server did about one lock.
type trace struct {
	seed   uint64
	server *redistest.Server
	turn   chan struct{} // has a value while a message is executed

	mu     sync.Mutex
	random *rand.Rand
	start  time.Time
	steps  []step
	full   bool
	cut    map[string]time.Time // the times until which sessions that are cut off hear and say nothing
	pushed []step               // the messages that the server has sent for the message being executed
	fault  error

	sharing // for a shared name
}

func newTrace(t *testing.T, seed uint64) *trace {
	return &trace{
		seed: seed, server: redistest.InBubble(t), turn: make(chan struct{}, 1), random: rand.New(rand.NewPCG(seed, 0)), start: time.Now(),
		cut: make(map[string]time.Time), sharing: sharing{names: make(map[string]string)},
	}
}

// record lets sessions work until the trace is full.
func (tr *trace) record(t *testing.T, work func(*reentrant.Session, tracedWork) func(context.Context)) {
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var sessions []*reentrant.Session
	for i := range 2 + tr.seed%2 {
		s, err := reentrant.NewSession(&tracer{tr.server.Backend(), tr, fmt.Sprintf("s%d", i+1)})
		require.NoError(t, err)
		sessions = append(sessions, s)
		for j := range traceOwners {
			f := work(s, tracedWork{tr, fmt.Sprintf("s%d", i+1), rand.New(rand.NewPCG(tr.seed, 1+i*10+uint64(j)))})
			all.Go(func() { f(reentrant.WithOwner(ctx, fmt.Sprint(j))) })
		}
	}
	all.Go(func() { tr.rage(ctx) })
	for !tr.isFull() {
		time.Sleep(time.Second)
	}
	stop()
	all.Wait()
	for _, s := range sessions {
		assert.NoError(t, s.Close(context.WithoutCancel(ctx)))
	}
	time.Sleep(traceLease) // until nothing is under way
	assert.NoError(t, tr.failure())
}

// rage cuts sessions off, and has the server forget in worlds of some seeds.
func (tr *trace) rage(ctx context.Context) {
	random := rand.New(rand.NewPCG(tr.seed, 99))
	for pause(ctx, between(random, time.Second, 4*traceLease)) {
		if tr.seed%4 == 3 && random.IntN(4) == 0 {
			tr.flush()
			continue
		}
		tr.cutOff(fmt.Sprintf("s%d", 1+random.IntN(3)), between(random, traceBeat/4, 3*traceLease/2))
	}
}

func (tr *trace) cutOff(session string, d time.Duration) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.cut[session] = time.Now().Add(d)
}

func (tr *trace) flush() {
	tr.turn <- struct{}{}
	defer func() { <-tr.turn }()
	c := tr.server.Client()
	err := c.Do(context.Background(), c.B().Flushall().Build()).Error()
	tr.note(step{what: "flush"})
	tr.blame(err)
}

func (tr *trace) blame(err error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.fault = errors.Join(tr.fault, err)
}

func (tr *trace) failure() error {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.fault
}

func (tr *trace) isFull() bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.full
}

func (tr *trace) millis() int64 { return time.Since(tr.start).Milliseconds() }

func (tr *trace) note(s step) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.noteLocked(s)
}

func (tr *trace) noteLocked(s step) {
	if tr.full = tr.full || len(tr.steps) >= *traceLen; tr.full {
		return
	}
	s.at = tr.millis()
	tr.steps = append(tr.steps, s)
}

// lag returns how long a message is under way.
func (tr *trace) lag() time.Duration {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	switch tr.random.IntN(10) {
	case 0:
		return between(tr.random, 0, 5*traceBeat/2)
	case 1, 2:
		return between(tr.random, 0, traceBeat/3)
	}
	return between(tr.random, 0, 3*time.Millisecond)
}

// lagOfCopy returns how long after a message its copy arrives: often so late that much has happened in between.
func (tr *trace) lagOfCopy() time.Duration {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return between(tr.random, 0, []time.Duration{3 * time.Millisecond, traceBeat / 10, traceBeat}[tr.random.IntN(3)])
}

// loses reports whether a message from or to a session is lost.
func (tr *trace) loses(session string) bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.random.IntN(25) == 0 || time.Now().Before(tr.cut[session])
}

// doubles reports whether a message arrives twice.
func (tr *trace) doubles() bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.random.IntN(20) == 0
}

// A tracedWork is what the work of an owner needs.
type tracedWork struct {
	tr      *trace
	session string
	random  *rand.Rand
}

// A traceWorker is an owner that uses the lock.
type traceWorker struct {
	tracedWork
	lock *reentrant.Lock
}

func (w *traceWorker) work(own context.Context) {
	for pause(own, between(w.random, 0, 2*traceBeat)) {
		if w.random.IntN(4) == 0 {
			w.hurry(own)
			continue
		}
		if w.waits(own, 5*traceBeat, w.lock.Lock) {
			w.use(context.WithoutCancel(own), w.dwell())
		}
	}
}

// waits reports whether a worker gets a lock. In some cases the worker gives up after the time most.
func (w *tracedWork) waits(own context.Context, most time.Duration, lock func(context.Context) error) bool {
	if w.random.IntN(3) > 0 {
		return lock(own) == nil
	}
	ctx, cancel := context.WithTimeout(own, between(w.random, 0, most))
	defer cancel()
	return lock(ctx) == nil
}

// hurry uses the lock some times, each time for a moment. So owners of one session hand the lock to each other, or give up
// while an attempt is under way.
func (w *traceWorker) hurry(own context.Context) {
	for range 8 {
		if w.waits(own, 6*time.Millisecond, w.lock.Lock) {
			w.use(context.WithoutCancel(own), between(w.random, 0, time.Millisecond))
		}
	}
}

// dwell returns for how long a worker uses a lock.
func (w *tracedWork) dwell() time.Duration {
	switch w.random.IntN(16) {
	case 0, 1:
		return between(w.random, 0, 3*traceLease)
	case 2: // the worker stays until the lease ends
		w.tr.cutOff(w.session, 2*traceLease)
		return 2 * traceLease
	}
	return between(w.random, 0, 2*traceBeat)
}

// use has the lock for a while, and notes the moment from which the owner may no longer act.
func (w *traceWorker) use(own context.Context, dwell time.Duration) {
	token, err := w.lock.Token(own)
	w.tr.note(step{what: "got", s: w.session, token: token})
	lost := w.lock.Lost(own)
	what := "left"
	if err == nil {
		select {
		case <-lost:
			what = "lost"
		case <-time.After(dwell):
		}
	}
	w.tr.note(step{what: what, s: w.session})
	_ = w.lock.Unlock(own) // it returns ErrLost, or the session repeats it until the lease is over
}

// pause waits for d, and returns false if ctx has ended by then.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// A tracer is between a session and its backend, and records what passes.
type tracer struct {
	backend.Backend
	tr      *trace
	session string
}

func (b *tracer) Connect(ctx context.Context, session string, sink backend.Sink) (backend.Conn, error) {
	b.tr.meet(session, b.session)
	conn, err := b.Backend.Connect(ctx, session, tracedSink{sink, sink.(backend.SharedSink), b})
	if err != nil {
		return nil, err
	}
	return tracedConn{conn, b}, nil
}

type tracedSink struct {
	backend.Sink
	shared backend.SharedSink
	b      *tracer
}

// Granted passes a grant on to the session, some time after the command that made the grant.
func (s tracedSink) Granted(g backend.Grant) {
	s.push(step{s: s.b.session, kind: "push", epoch: g.Epoch, token: g.First}, func() { s.Sink.Granted(g) })
}

func (s tracedSink) push(push step, arrive func()) {
	tr, granted := s.b.tr, s.b.tr.millis()
	tr.mu.Lock()
	tr.pushed = append(tr.pushed, push)
	tr.mu.Unlock()
	s.travel(func(again bool) {
		push.what, push.again, push.age = "hear", again, tr.millis()-granted
		tr.note(push)
		arrive()
	})
}

// travel brings a message to the session some time later, perhaps twice, unless the message is lost.
func (s tracedSink) travel(arrive func(again bool)) {
	tr := s.b.tr
	once := func(again bool) {
		time.Sleep(tr.lag())
		if !tr.loses(s.b.session) {
			arrive(again)
		}
	}
	go func() {
		again := tr.doubles()
		once(again)
		if again {
			once(false)
		}
	}()
}

type tracedConn struct {
	backend.Conn
	b *tracer
}

func (c tracedConn) Bind(name string) (backend.Remote, error) {
	remote, err := c.Conn.Bind(name)
	if err != nil {
		return nil, err
	}
	return tracedRemote{remote, remote.(backend.Sharer), c.b}, nil
}

func (c tracedConn) Renew(ctx context.Context, renewals []backend.Renewal) {
	var all sync.WaitGroup
	for i := range renewals {
		all.Go(func() { c.renew(ctx, &renewals[i]) })
	}
	all.Wait()
}

func (c tracedConn) renew(ctx context.Context, r *backend.Renewal) {
	asked := *r
	asked.Remote = r.Remote.(tracedRemote).Remote
	m := step{s: c.b.session, kind: "renew", epoch: r.Epoch}
	if r.Under != 0 {
		m.share = &shareStep{under: r.Under}
	}
	got, err := carry(ctx, c.b.tr, m, func(ctx context.Context) (backend.Renewal, step, error) {
		one := []backend.Renewal{asked}
		c.Conn.Renew(ctx, one)
		reply := step{reply: "renewed", token: one[0].First}
		if one[0].Gone {
			reply.reply, reply.token = "gone", 0
		}
		if r.Under != 0 {
			reply.share = &shareStep{units: one[0].Units}
		}
		return one[0], reply, one[0].Err
	})
	r.Gone, r.First, r.Units, r.Err = got.Gone, got.First, got.Units, err
}

type tracedRemote struct {
	backend.Remote
	backend.Sharer
	b *tracer
}

// Acquire at times drops what the session remembers of the lock. Then not pass.lua but the full script keeps the lease.
func (r tracedRemote) Acquire(ctx context.Context, req backend.AcquireRequest) (backend.AcquireReply, error) {
	if req.KeepTTL && req.Epoch%3 == 0 {
		req.Prior = backend.Prior{}
	}
	m := step{
		s: r.b.session, kind: "attempt", epoch: req.Epoch, token: req.Seen, keep: req.KeepTTL, prior: req.Prior.Epoch,
		until: time.Until(req.NotAfter).Milliseconds(),
	}
	if req.Yield {
		m.kind = "yield"
	}
	return carry(ctx, r.b.tr, m, func(ctx context.Context) (backend.AcquireReply, step, error) {
		reply, err := r.Remote.Acquire(ctx, req)
		if err != nil && !backend.OutcomeUnknown(err) && !backend.Refused(err) {
			return reply, step{reply: "late"}, err
		}
		return reply, step{reply: [...]string{"", "granted", "waiting", "stale"}[reply.Status], token: reply.First}, err
	})
}

func (r tracedRemote) Release(ctx context.Context, req backend.ReleaseRequest) (backend.ReleaseResult, error) {
	m := step{s: r.b.session, kind: "release", epoch: req.Epoch}
	if !req.Until.IsZero() {
		m.until = max(0, time.Until(req.Until).Milliseconds())
	}
	return carry(ctx, r.b.tr, m, func(ctx context.Context) (backend.ReleaseResult, step, error) {
		result, err := r.Remote.Release(ctx, req)
		return result, step{reply: "freed"}, err
	})
}

var errLost = backend.WithOutcomeUnknown(fmt.Errorf("%w: the network", backend.ErrUnavailable))

// A verb has a message executed. It returns the reply twice: as the session gets it, and as the trace has it.
type verb[R any] func(ctx context.Context) (R, step, error)

// A delivery brings a message to the server, and the reply back.
type delivery[R any] struct {
	tr   *trace
	m    step
	sent int64
	do   verb[R]
	back chan struct{} // closed when the reply is here
	// tr.mu guards the fields below.
	over  bool // the session no longer waits
	reply R
	err   error
}

// carry carries a message to the server, and its reply back, while ctx lasts.
func carry[R any](ctx context.Context, tr *trace, m step, do verb[R]) (R, error) {
	d := &delivery[R]{tr: tr, m: m, sent: tr.millis(), do: do, back: make(chan struct{})}
	m.what = "send"
	tr.note(m)
	go d.travel()
	var late <-chan time.Time // a session's contexts have deadlines, but are not done when these pass
	if deadline, ok := ctx.Deadline(); ok {
		late = time.After(time.Until(deadline))
	}
	select {
	case <-d.back:
	case <-late:
	case <-ctx.Done():
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	select {
	case <-d.back:
		return d.reply, d.err
	default:
		d.over = true
		return d.reply, errLost
	}
}

func (d *delivery[R]) travel() {
	time.Sleep(d.tr.lag())
	if d.tr.loses(d.m.s) {
		d.drop(d.m)
		return
	}
	again := d.tr.doubles()
	reply, heard, err := d.execute(again)
	if again {
		go func() {
			time.Sleep(d.tr.lagOfCopy())
			_, _, _ = d.execute(false)
		}()
	}
	time.Sleep(d.tr.lag())
	d.arrive(reply, heard, err)
}

// awaitMillisecond waits for the next whole millisecond of virtual time.
func awaitMillisecond(start time.Time) {
	past := time.Since(start) % time.Millisecond
	time.Sleep((time.Millisecond - past) % time.Millisecond)
}

// execute has the message executed, alone and at a whole millisecond. A copy that comes in the last moment of its time is
// delayed a little, since the two clocks agree on that moment only roughly.
func (d *delivery[R]) execute(again bool) (R, step, error) {
	d.tr.turn <- struct{}{}
	defer func() { <-d.tr.turn }()
	awaitMillisecond(d.tr.start)
	if age := d.age(); d.m.kind != "release" && d.m.until > 0 && -3 < age-d.m.until && age-d.m.until < 3 {
		time.Sleep(6 * time.Millisecond)
	}
	if d.m.share != nil {
		d.tr.fresh = d.tr.read().fresh
	}
	reply, step, err := d.do(context.Background())
	synctest.Wait() // until the messages of this command have arrived
	heard := d.executed(step, again)
	if err != nil && step.reply != "late" {
		d.tr.blame(err)
	}
	return reply, heard, err
}

// executed notes what the server did, and returns the reply as a message.
func (d *delivery[R]) executed(reply step, again bool) step {
	tr := d.tr
	var st sharedState
	if d.m.share != nil {
		st = tr.read()
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	s := d.m
	s.what, s.age, s.again, s.reply, s.token = "execute", d.age(), again, reply.reply, reply.token
	heard := step{s: s.s, kind: reply.reply, epoch: s.epoch, token: reply.token, keep: s.keep}
	if s.share != nil {
		s.share, heard.share = tr.sharedLocked(s, reply.share, st)
	} else if len(tr.pushed) > 0 {
		s.to, s.toEpoch = tr.pushed[0].s, tr.pushed[0].epoch
		s.token = tr.pushed[0].token
		if len(tr.pushed) > 1 {
			tr.fault = errors.Join(tr.fault, fmt.Errorf("two grants by one command: %v", tr.pushed))
		}
	}
	tr.pushed = nil
	tr.noteLocked(s)
	return heard
}

func (d *delivery[R]) age() int64 { return d.tr.millis() - d.sent }

func (d *delivery[R]) arrive(reply R, heard step, err error) {
	lost := d.tr.loses(d.m.s)
	d.tr.mu.Lock()
	defer d.tr.mu.Unlock()
	if lost || d.over {
		return
	}
	if heard.what, heard.age = "hear", d.age(); heard.kind != "late" {
		d.tr.noteLocked(heard)
	}
	d.reply, d.err = reply, err
	close(d.back)
}

func (d *delivery[R]) drop(m step) {
	m.what, m.age = "drop", d.age()
	d.tr.note(m)
}

// text returns the steps as a tuple of TLA+. Tokens are too large for TLC's integers, so they are numbered in their order.
func (tr *trace) text() string {
	tokens := []backend.Token{0}
	for _, s := range tr.steps {
		tokens = append(tokens, s.token)
		if s.share != nil {
			tokens = append(tokens, s.share.tokens()...)
		}
	}
	slices.Sort(tokens)
	tokens = slices.Compact(tokens)
	rank := func(token backend.Token) int {
		i, _ := slices.BinarySearch(tokens, token)
		return i
	}
	lines := make([]string, len(tr.steps))
	for i, s := range tr.steps {
		more := fmt.Sprintf("until |-> %d, keep |-> %s, prior |-> %d, to |-> %q, te |-> %d", s.until, truth(s.keep), s.prior, s.to, s.toEpoch)
		if s.share != nil {
			more = s.share.text(s.what, rank)
		}
		lines[i] = fmt.Sprintf("[at |-> %d, what |-> %q, s |-> %q, kind |-> %q, e |-> %d, age |-> %d, token |-> %d, again |-> %s, reply |-> %q, %s]",
			s.at, s.what, s.s, s.kind, s.epoch, s.age, rank(s.token), truth(s.again), s.reply, more)
	}
	return "<<\n" + strings.Join(lines, ",\n") + ">>\n"
}

func truth(b bool) string { return strings.ToUpper(fmt.Sprint(b)) }
