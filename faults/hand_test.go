package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/faults/history"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// The names that the workers of a simulation use.
const (
	simLeft, simRight  = "left", "right"
	simNorth, simSouth = "north", "south" // taken together, or one of them
	simEither          = "north or south"
	simKiln            = "kiln"  // with fixed leases
	simBell            = "bell"  // with a least time
	simGate            = "gate"  // with unfair waiters
	simFerry           = "ferry" // moves between sessions
	simBook            = "book"
	simSeats           = "seats"
	simSeatsFree       = 3
	simDesks           = "desks" // with numbers
	simDesksFree       = 2
)

var simLocks = []string{simLeft, simRight, simNorth, simSouth, simKiln, simBell, simGate, simFerry, simDesks + "#0", simDesks + "#1"}

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
	p.cable.recorder = w.recorder
	p.cable.settle(w.calm)
	p.cable.brittle = p.runsNoScripts()
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

// gone waits until a process that stops has ended, and then until its cable carries nothing. The order matters: a process that
// has not ended may connect again when its cable carries nothing.
func (p *process) gone() {
	p.ended.Wait()
	p.cable.busy.Wait()
}

// run opens a session, lets its workers work until ctx ends, and closes it.
func (p *process) run(ctx context.Context) error {
	option := p.server.ClientOption()
	option.DialCtxFn = p.cable.dial
	option.Dialer = net.Dialer{KeepAlive: simHeartbeat, Timeout: slowest}
	option.ConnWriteTimeout = slowest // as redisbackend.Open does
	client, err := rueidis.NewClient(option)
	if err != nil {
		return err
	}
	defer client.Close()
	server, err := p.backend(client)
	if err != nil {
		return err
	}
	watch := newWitness(p)
	session, err := reentrant.NewSession(server, append(p.options(), reentrant.WithObserver(watch))...)
	if err != nil {
		return err
	}
	defer func() { watch.ends(session) }()
	if p.deaf() { // a session that hears nothing when it is opened is refused
		p.cable.deafen()
	}
	p.mu.Lock()
	p.sessions[session.ID()] = p.name
	p.mu.Unlock()
	var all sync.WaitGroup
	for i := range simWorkers {
		name := clientName(p.name, i)
		worker := &hand{
			process: p, session: session, name: name, own: reentrant.WithOwner(context.Background(), name),
			random: p.random(p.number*100 + uint64(i) + 1),
		}
		all.Go(func() { worker.work(reentrant.WithOwner(ctx, name)) })
	}
	all.Wait()
	return p.end(session)
}

// end closes a session, and waits until the session's background work has ended, too.
func (p *process) end(session *reentrant.Session) error {
	soon, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := session.Close(soon)
	late, cancel := context.WithTimeout(context.Background(), simPatience)
	defer cancel()
	if again := session.Close(late); !errors.Is(again, reentrant.ErrClosed) {
		p.find("the session of %s does not end: %v", p.name, again)
	}
	return err
}

// backend returns a process's backend.
func (p *process) backend(client rueidis.Client) (backend.Backend, error) {
	if p.recorder == nil {
		return redisbackend.New(client, p.verbs()...)
	}
	b, err := redisbackend.New(recordedClient{client}, p.verbs()...)
	return recordedBackend{b, p.recorder}, err
}

// verbs returns the options of a process's backend that choose its verbs.
func (p *process) verbs() []redisbackend.Option {
	if p.runsNoScripts() {
		return []redisbackend.Option{redisbackend.WithoutScripts()}
	}
	return nil
}

// runsNoScripts reports whether a process runs no scripts, as most processes of a plain world do. The cable of such a process
// is brittle: the client's pool closes a connection with a command, and waits for the reply under the pool's mutex; a goroutine
// that waits for a mutex stops the clock.
func (p *process) runsNoScripts() bool { return p.plain() && p.number%4 != 0 }

func (p *process) options() []reentrant.Option {
	opts := []reentrant.Option{reentrant.WithLease(simLease), reentrant.WithHeartbeat(simHeartbeat)}
	if p.inCohort() {
		opts = append(opts, reentrant.WithCohort(), reentrant.WithLinger(simLinger))
		if p.recorder != nil { // so that it uses its tokens up
			opts = append(opts, reentrant.WithTurn(simTurn, 0))
		}
	}
	if p.async() && p.number%2 == 0 {
		opts = append(opts, reentrant.WithAsyncUnlock())
	}
	return opts
}

func (p *process) inCohort() bool { return p.cohorts() && p.number%simProcesses != 0 }

// A hand is a worker of a process.
type hand struct {
	*process
	session *reentrant.Session
	name    string
	own     context.Context // of the worker as an owner, so that others can ask about its holds
	random  *rand.Rand
}

// jobs are what hands do. In each season most hands do the same job, so that they meet.
var jobs = []func(*hand, context.Context){
	(*hand).useLock, (*hand).read, (*hand).write, (*hand).sit, (*hand).useSlot, (*hand).waitAndSignal, (*hand).giveWay, (*hand).travel,
	(*hand).useBoth, (*hand).useEither, (*hand).useKiln, (*hand).useBell, (*hand).useGate, (*hand).useNoted,
	(*hand).waitAndSignal, // a second time: conditions need many hands, and time
}

// tracedJobs are what hands mostly do in a world of which traces are written: they use the locks that are traced.
var tracedJobs = []func(*hand, context.Context){
	(*hand).useTraced, (*hand).useTraced, (*hand).useBriefly, (*hand).useBriefly, (*hand).giveWay, (*hand).useBoth, (*hand).useEither,
	(*hand).travel, (*hand).travel, (*hand).travel,
}

func (h *hand) work(ctx context.Context) {
	for ctx.Err() == nil {
		h.job()(h, ctx)
		time.Sleep(between(h.random, 0, h.pace()))
	}
}

func (h *hand) job() func(*hand, context.Context) {
	if h.recorder != nil && h.random.IntN(8) > 0 {
		return tracedJobs[h.random.IntN(len(tracedJobs))]
	}
	if h.random.IntN(4) == 0 {
		return jobs[h.random.IntN(len(jobs))]
	}
	return jobs[h.season()]
}

// season returns the index of the job that most hands do now. All jobs take turns, in an order that the seed decides.
func (h *hand) season() int {
	now := time.Since(h.start) * time.Duration(len(jobs)) / simCalm
	if now >= time.Duration(len(jobs)) {
		now /= 3
	}
	return h.process.random(1 << 32).Perm(len(jobs))[now%time.Duration(len(jobs))]
}

// pace returns the longest time that a short use may last. While nothing goes wrong, uses are shorter, so that there are many.
func (h *hand) pace() time.Duration {
	if time.Since(h.start) < simCalm {
		return simHeartbeat / 6
	}
	return simHeartbeat
}

func (h *hand) useLock(ctx context.Context) {
	h.useOne(ctx, h.session.NewLock([]string{simLeft, simLeft, simLeft, simRight}[h.random.IntN(4)]))
}

func (h *hand) useTraced(ctx context.Context) {
	h.useOne(ctx, h.session.NewLock(simTraced[h.random.IntN(len(simTraced))]))
}

// useBriefly takes a lock several times, each time for a moment, so that owners of one process hand the lock to each other.
func (h *hand) useBriefly(ctx context.Context) {
	l := h.session.NewLock(simTraced[h.random.IntN(len(simTraced))])
	for range 1 + h.random.IntN(8) {
		p := lockPart(h.own, l)
		if !h.acquire(ctx, p) {
			return
		}
		h.giveAll(p, 1)
	}
}

// useOne takes a lock, re-enters it some times, checks it, and releases it as often as it was acquired.
func (h *hand) useOne(ctx context.Context, l *reentrant.Lock) {
	p := lockPart(h.own, l)
	if !h.acquire(ctx, p) {
		return
	}
	holds := 1 + h.reenters(ctx, p)
	if h.random.IntN(3) == 0 {
		h.runs(ctx, p, doer{do: l.TryDo, doFor: l.TryDoFor})
	}
	if h.random.IntN(2) == 0 {
		h.record(call{Op: p.op(history.Verify)}, func(*call) error { return l.Verify(h.own) })
	}
	h.dwell(p)
	h.giveAll(p, holds)
}

// reenters enters a part some more times.
func (h *hand) reenters(ctx context.Context, p *part) (holds int) {
	for range h.random.IntN(3) {
		if h.acquire(ctx, p) {
			holds++
		}
	}
	return holds
}

// dwell uses a part for a while. A few uses last for more than two leases.
func (h *hand) dwell(p *part) {
	time.Sleep(between(h.random, 0, h.pace()))
	if h.random.IntN(12) == 0 {
		for end := time.Now().Add(simLease * 5 / 2); time.Now().Before(end) && h.look(p); {
			time.Sleep(simHeartbeat)
		}
	}
}

func (h *hand) giveAll(p *part, holds int) {
	for range holds {
		h.look(p)
		h.give(p)
	}
	if p.exclusive && h.random.IntN(8) == 0 {
		h.record(call{Op: p.op(history.Unlock), extra: true}, func(*call) error { return p.release() })
	}
}

func (h *hand) read(ctx context.Context) {
	l := h.session.NewRWLock(simBook)
	p := readPart(h.own, l)
	if h.random.IntN(4) == 0 {
		h.runs(ctx, p, doer{do: l.TryRDo, doFor: l.TryRDoFor})
		return
	}
	if h.acquire(ctx, p) {
		holds := 1 + h.reenters(ctx, p)
		h.look(p)
		h.dwell(p)
		h.giveAll(p, holds)
	}
}

// write uses the write side, and in some cases goes on as a reader.
func (h *hand) write(ctx context.Context) {
	l := h.session.NewRWLock(simBook)
	p, r := writePart(h.own, l), readPart(h.own, l)
	if h.random.IntN(4) == 0 {
		h.runs(ctx, p, doer{do: l.TryDo, doFor: l.TryDoFor})
		return
	}
	if !h.acquire(ctx, p) {
		return
	}
	h.dwell(p)
	h.look(p)
	reads := h.random.IntN(3) == 0 && h.acquire(ctx, r)
	h.look(p)
	h.give(p)
	if reads {
		h.look(r)
		h.dwell(r)
		h.look(r)
		h.give(r)
	}
}

func (h *hand) sit(ctx context.Context) {
	p := permitPart(h.session.NewSemaphore(simSeats, simSeatsFree), 1+h.random.IntN(2))
	if h.random.IntN(4) == 0 {
		h.runs(ctx, p, permitDoer(h.session.NewSemaphore(simSeats, simSeatsFree), p.units))
		return
	}
	if h.acquire(ctx, p) {
		h.dwell(p)
		h.look(p)
		h.give(p)
	}
}

// useSlot takes a permit with a number. The number is judged as a lock.
func (h *hand) useSlot(ctx context.Context) {
	var slot reentrant.Slot
	p := &part{name: simDesks, units: 1, release: func() error { return slot.Release(context.Background()) }}
	p.held = func() (uint64, bool) {
		token, err := slot.Token()
		return uint64(token), err == nil
	}
	taking := call{Op: p.op(history.Acquire), way: patiently, limit: simPatience}
	c := h.record(taking, func(*call) (err error) {
		ctx, cancel := context.WithTimeout(ctx, simPatience)
		defer cancel()
		slot, err = h.session.NewSemaphore(simDesks, simDesksFree).AcquireSlot(ctx)
		return err
	})
	if c.Outcome != history.OK {
		return
	}
	p.lost, p.name, p.units = slot.Lost(), fmt.Sprintf("%s#%d", simDesks, slot.Number()), 0
	token, _ := slot.Token()
	c.Token = uint64(token)
	h.also(c, p.name, 0)
	p.exclusive = true
	h.enter(p)
	for range 2 {
		h.also(h.lookAt(p), simDesks, 1)
		time.Sleep(between(h.random, 0, h.pace()))
	}
	c = h.give(p)
	if c.Outcome == history.Unknown { // the outcome of the number's release is unknown
		c.Outcome = history.OK
	}
	h.also(c, simDesks, 1)
}

// waitAndSignal waits for a condition, or signals it.
func (h *hand) waitAndSignal(ctx context.Context) {
	left, book := h.session.NewLock(simLeft), h.session.NewRWLock(simBook)
	p, c := lockPart(h.own, left), left.NewCondition("news")
	switch h.random.IntN(12) {
	case 0, 1, 2:
		p, c = writePart(h.own, book), book.NewCondition("news")
	case 3:
		l := h.session.NewLock(simBell, reentrant.WithAtLeast(simAtLeast))
		p, c = lockPart(h.own, l), l.NewCondition("news")
		p.terms.atLeast = simAtLeast
	case 4:
		l := h.session.NewLock(simKiln, reentrant.WithFixedLease(simFixed))
		p, c = lockPart(h.own, l), l.NewCondition("news")
		p.terms.fixed = simFixed
	}
	if !h.acquire(ctx, p) {
		return
	}
	holds := 1
	if p.exclusive {
		holds += h.reenters(ctx, p)
	}
	switch h.random.IntN(6) {
	case 0, 1, 2:
		h.await(p, c)
	case 3:
		h.record(call{Op: p.op(signalled), all: true}, func(*call) error { return c.SignalAll(h.own) })
	default:
		h.record(call{Op: p.op(signalled)}, func(*call) error { return c.Signal(h.own) })
	}
	time.Sleep(between(h.random, 0, time.Second))
	h.giveAll(p, holds)
}

func (h *hand) await(p *part, c *reentrant.Condition) {
	h.leave(p)
	waiting := call{Op: p.op(history.Await), limit: between(h.random, time.Second, 8*simHeartbeat)}
	h.record(waiting, func(done *call) (err error) {
		done.woken, err = c.AwaitFor(h.own, waiting.limit)
		if err == nil {
			done.Token, _ = p.held()
		}
		return err
	})
	p.lost = p.signal()
	h.enter(p)
}

// giveWay holds a part until another owner wants the part.
func (h *hand) giveWay(ctx context.Context) {
	book := h.session.NewRWLock(simBook)
	p := []*part{
		lockPart(h.own, h.session.NewLock(simRight)), lockPart(h.own, h.session.NewLock(simRight)),
		readPart(h.own, book), writePart(h.own, book),
		permitPart(h.session.NewSemaphore(simSeats, simSeatsFree), 1+h.random.IntN(2)),
	}[h.random.IntN(5)]
	if !h.acquire(ctx, p) {
		return
	}
	h.waits(p)
	h.look(p)
	h.give(p)
}

// waits waits until another owner wants the part.
func (h *hand) waits(p *part) {
	h.record(call{Op: p.op(waitedFor), limit: simLease}, func(*call) error {
		select {
		case <-p.wanted():
			return nil
		case <-time.After(simLease):
			return errNot
		}
	})
}

// A trip offers the hold of a portable owner to another process, which may resume the hold.
type trip struct {
	id   string
	from string    // a process
	to   string    // the process that has boarded it; guarded by world.mu
	over chan bool // receives whether the resume failed, so that the hold may still be with the first process
}

// travel resumes a hold of another process, or offers a hold to other processes.
func (h *hand) travel(ctx context.Context) {
	l := h.session.NewLock(simFerry)
	if t := h.board(); t != nil {
		h.resume(l, t)
		return
	}
	t := h.depart()
	owner := reentrant.WithPortableOwner(ctx, t.id)
	p := lockPart(reentrant.WithPortableOwner(context.Background(), t.id), l)
	p.client = t.id
	if !h.acquire(owner, p) {
		return
	}
	h.leave(p) // another may resume it
	h.offer(t)
	time.Sleep(between(h.random, 0, 4*h.pace()))
	if h.claim(t) {
		h.look(p)
		h.give(p)
	} else if h.stays(t, p) {
		h.give(p)
	}
}

// stays waits until another process has resumed a hold, has failed to resume it, or has died, and reports whether the hold is
// still in this session. If the server has forgotten the hold, the other process has shown that to the owner, and this session
// will learn of the loss.
func (h *hand) stays(t *trip, p *part) bool {
	for {
		select {
		case failed := <-t.over:
			return failed && p.inUse()
		case <-time.After(simHeartbeat):
		}
		h.mu.Lock()
		dead := h.deaths[t.to] != 0 && len(t.over) == 0
		h.mu.Unlock()
		if dead {
			return p.inUse()
		}
	}
}

func (h *hand) depart() *trip {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trip++
	return &trip{id: fmt.Sprintf("trip %d", h.trip), from: h.process.name, over: make(chan bool, 1)}
}

// offer lets other processes board a trip.
func (h *hand) offer(t *trip) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trips = append(h.trips, t)
}

// board returns a trip that another process offers, or nil if there is none.
func (h *hand) board() *trip {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, t := range h.trips {
		if t.from != h.process.name {
			h.trips = append(h.trips[:i:i], h.trips[i+1:]...)
			t.to = h.process.name
			return t
		}
	}
	return nil
}

// claim takes a trip off the list, and reports whether it was still there, so that no other process has boarded it.
func (h *hand) claim(t *trip) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, other := range h.trips {
		if other == t {
			h.trips = append(h.trips[:i:i], h.trips[i+1:]...)
			return true
		}
	}
	return false
}

func (h *hand) resume(l *reentrant.Lock, t *trip) {
	owner := reentrant.WithPortableOwner(context.Background(), t.id)
	p := lockPart(owner, l)
	p.client = t.id
	c := h.record(call{Op: p.op(history.Verify)}, func(c *call) error {
		patient, cancel := context.WithTimeout(owner, simPatience) // a process that has died gets no reply
		defer cancel()
		err := l.Resume(patient)
		if errors.Is(err, reentrant.ErrNotHeld) {
			err = errors.Join(reentrant.ErrLost, err) // it had the lock when the trip began
		}
		if err == nil {
			c.Token, _ = p.held()
		}
		return err
	})
	t.over <- c.Outcome != history.OK && c.Outcome != history.Lost
	if c.Outcome != history.OK {
		return
	}
	p.lost = p.signal()
	h.enter(p)
	h.dwell(p)
	h.look(p)
	h.give(p)
}
