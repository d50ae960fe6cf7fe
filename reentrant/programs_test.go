package reentrant_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/reentrant"
)

// A weather is what can happen while a program runs.
type weather struct {
	lost, again int // of a thousand commands and messages, how many are lost, or come again; both 0: each channel keeps their order
	lease       time.Duration
	heartbeat   time.Duration
	event       func(p *program, s *reentrant.Session) // it happens to a session now and then
	forgets     bool                                   // the server takes units from sessions without their knowledge
}

// weathers has the kinds of weather. Calls in the calm one have so little time that none may need a heartbeat.
var weathers = map[string]weather{
	"calm":   {lease: time.Minute, heartbeat: 20 * time.Second},
	"rough":  {lost: 50, again: 100, lease: 10 * time.Second, heartbeat: time.Second},
	"cuts":   {lease: 10 * time.Second, heartbeat: time.Second, event: (*program).cut},
	"closes": {lease: 10 * time.Second, heartbeat: time.Second, event: (*program).close},
	"forces": {lease: 10 * time.Second, heartbeat: time.Second, event: (*program).force, forgets: true},
	"old":    {lease: 10 * time.Second, heartbeat: time.Second, event: (*program).forget, forgets: true},
}

// A program is run by players of several sessions, which do what they like with a read-write lock or a semaphore. All that
// they see is checked.
type program struct {
	t        *testing.T
	seed     uint64
	weather  weather
	b        *memory.Backend
	sessions []*reentrant.Session
	rnd      *rand.Rand // of the events
	restore  func()
	begun    time.Time
	hold     time.Duration // how long a player is inside before its next step
	idle     time.Duration

	mu       sync.Mutex
	trace    []string
	arrivals map[string]time.Time // of the latest message to each session
	inside   map[*player]bool
	struck   map[*reentrant.Session]bool // the session may lose what it has
	forgot   time.Time                   // when the server last took units from sessions that do not know
	writes   int
	highest  reentrant.Token                        // of all writers
	versions map[reentrant.Token]int                // how many writes there had been when a reader had this version
	seen     map[*reentrant.Session]reentrant.Token // the session's highest token or version
}

// A player is one owner, or one caller that takes permits.
type player struct {
	p             *program
	name          string
	ctx           context.Context
	s             *reentrant.Session
	rnd           *rand.Rand
	l             *reentrant.RWLock
	m             *reentrant.Semaphore // nil: the player locks
	reads, writes int
	permits       int
	lost          <-chan struct{} // of what it has; written under the program's mutex
}

func (p *program) sayLocked(format string, args ...any) {
	p.trace = append(p.trace, fmt.Sprintf("%v ", time.Since(p.begun))+fmt.Sprintf(format, args...))
}

func (p *program) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sayLocked(format, args...)
}

func (p *program) failLocked(format string, args ...any) {
	p.sayLocked("! "+format, args...)
	if !p.t.Failed() {
		p.t.Errorf("seed %d\n%s", p.seed, strings.Join(p.trace[max(0, len(p.trace)-100):], "\n"))
	}
}

func (p *program) check(ok bool, format string, args ...any) {
	if !ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.failLocked(format, args...)
	}
}

// judge delays what is under way, loses some of it and doubles some, each time the same for the same seed.
func (p *program) judge(op memory.Op) memory.Verdict {
	h := fnv.New64a()
	fmt.Fprint(h, op.Session, op.Verb, op.Lock, op.Epoch, op.Try)
	rnd := rand.New(rand.NewPCG(p.seed, h.Sum64()))
	late := func() time.Duration { return time.Duration(rnd.Int64N(int64(5 * time.Millisecond))) }
	v := memory.Verdict{Delay: late(), Late: late()}
	switch {
	case op.Verb == memory.Connect:
		return memory.Pass
	case op.Verb == memory.Push && p.weather.lost == 0:
		return memory.Delay(p.inOrder(op.Session, v.Delay))
	}
	v.Lost, v.Mute = rnd.IntN(1000) < p.weather.lost, rnd.IntN(1000) < p.weather.lost
	if rnd.IntN(1000) < p.weather.again {
		v.Again = time.Duration(1 + rnd.Int64N(int64(4*time.Second)))
	}
	return v
}

func (p *program) inOrder(session string, delay time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := time.Now().Add(delay)
	if before := p.arrivals[session]; !at.After(before) {
		at = before.Add(1)
	}
	p.arrivals[session] = at
	return time.Until(at)
}

// strike notes that sessions can lose what they have, from now on.
func (p *program) strike(what string, sessions ...*reentrant.Session) {
	name := p.b.Name(sessions[0].ID())
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range sessions {
		p.struck[s] = true
	}
	p.forgot = time.Now()
	p.sayLocked("%s: %s", name, what)
}

func (p *program) cut(s *reentrant.Session) {
	p.strike("is cut off", s)
	p.b.Partition(s.ID(), true)
	time.AfterFunc(time.Duration(p.rnd.Int64N(int64(20*time.Second)))/time.Duration(1+99*p.rnd.IntN(2)), func() { p.b.Partition(s.ID(), false) })
}

func (p *program) close(s *reentrant.Session) {
	if s == p.sessions[0] {
		return
	}
	p.strike("closes", s)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(p.rnd.Int64N(int64(50*time.Millisecond))))
	defer cancel()
	_ = s.Close(ctx)
}

func (p *program) force(s *reentrant.Session) {
	p.strike("takes all", p.sessions...)
	_, err := s.NewRWLock("x").ForceUnlock(context.Background())
	_, errOfPermits := s.NewSemaphore("y", 1).ForceRelease(context.Background())
	p.check(err == nil && errOfPermits == nil, "force: %v, %v", err, errOfPermits)
}

func (p *program) forget(s *reentrant.Session) {
	p.strike("sees an older server", p.sessions...)
	switch p.rnd.IntN(3) {
	case 0:
		p.b.Flush()
	case 1:
		p.restore()
	default:
		p.restore = p.b.SaveShared()
	}
	if p.rnd.IntN(2) == 0 {
		p.b.Restart()
	}
}

func (pl *player) mayLose() bool {
	pl.p.mu.Lock()
	defer pl.p.mu.Unlock()
	return pl.p.struck[pl.s]
}

func (pl *player) holds() int { return pl.reads + pl.writes + pl.permits }

// hasLost reports whether the player knows that it has lost what it has.
func (pl *player) hasLost() bool {
	select {
	case <-pl.lost:
		return pl.lost != nil
	default:
		return false
	}
}

func (pl *player) sleep(most time.Duration) {
	time.Sleep([]time.Duration{0, most, 10 * time.Millisecond, time.Duration(pl.rnd.Int64N(int64(most)))}[pl.rnd.IntN(4)])
}

// run takes and leaves at random.
func (pl *player) run(steps int) {
	for range steps {
		switch {
		case pl.holds() == 0:
			pl.sleep(pl.p.idle)
			pl.take()
		case pl.rnd.IntN(3) == 0 && pl.holds() < 4 && !pl.hasLost():
			pl.sleep(pl.p.hold)
			pl.take()
		default:
			pl.sleep(pl.p.hold)
			pl.leave()
		}
	}
	for pl.holds() > 0 {
		pl.leave()
	}
	if pl.m == nil {
		err, errOfReads := pl.l.Unlock(pl.ctx), pl.l.RUnlock(pl.ctx)
		pl.p.check(errors.Is(err, reentrant.ErrNotHeld) && errors.Is(errOfReads, reentrant.ErrNotHeld), "%s left all: %v, %v", pl.name, err, errOfReads)
	}
}

// A way is how to take something.
type way struct {
	write bool
	n     int // permits
	take  func(ctx context.Context) (bool, error)
}

func waiting(take func(context.Context) error) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		err := take(ctx)
		return err == nil, err
	}
}

func (pl *player) way() way {
	wait := time.Duration(pl.rnd.Int64N(int64(20 * time.Millisecond)))
	timed := func(take func(context.Context, time.Duration) (bool, error)) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) { return take(ctx, wait) }
	}
	if pl.m != nil {
		n := 1 + pl.rnd.IntN(max(1, pl.m.Permits()-pl.permits))
		return []way{
			{n: n, take: waiting(func(ctx context.Context) error { return pl.m.Acquire(ctx, n) })},
			{n: n, take: func(ctx context.Context) (bool, error) { return pl.m.TryAcquire(ctx, n) }},
			{n: n, take: func(ctx context.Context) (bool, error) { return pl.m.TryAcquireFor(ctx, n, wait) }},
		}[pl.rnd.IntN(3)]
	}
	return []way{
		{take: waiting(pl.l.RLock)}, {take: pl.l.TryRLock}, {take: timed(pl.l.TryRLockFor)},
		{write: true, take: waiting(pl.l.Lock)}, {write: true, take: pl.l.TryLock}, {write: true, take: timed(pl.l.TryLockFor)},
	}[pl.rnd.IntN(6)]
}

// take takes something. A caller that has permits, and waits for more, could wait for ever, so it is not patient.
func (pl *player) take() {
	p, w, held, ctx := pl.p, pl.way(), pl.holds(), pl.ctx
	patient := pl.rnd.IntN(3) > 0 && pl.permits == 0
	if !patient {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(pl.rnd.Int64N(int64(50*time.Millisecond))))
		defer cancel()
	}
	begun := time.Now()
	ok, err := w.take(ctx)
	p.say("%s takes %+v, patient %v, since %v: %v, %v", pl.name, w.n, patient, begun.Sub(p.begun), ok, err)
	p.check(time.Since(begun) < p.patience(), "%s waited for %v", pl.name, time.Since(begun))
	upgrade := w.write && pl.reads > 0 && pl.writes == 0
	switch {
	case held > 0 && pl.hasLost():
		if ok { // new, or lost with the others
			pl.give(w)
		}
	case upgrade:
		p.check(errors.Is(err, reentrant.ErrUpgrade), "%s upgrades: %v", pl.name, err)
	case ok:
		p.check(pl.permits > 0 || held == 0 || time.Since(begun) == 0 || pl.mayLose(), "%s waited to enter again", pl.name)
		pl.entered(w)
	default:
		p.check(pl.expects(err), "%s: %v", pl.name, err)
		p.check(pl.permits > 0 || held == 0 || !patient, "%s did not enter again: %v", pl.name, err)
	}
}

// patience is longer than any wait.
func (p *program) patience() time.Duration {
	if p.weather.event == nil && p.weather.lost == 0 {
		return 2*time.Second + 100*p.hold
	}
	return 40*time.Second + 100*p.hold
}

// expects reports whether a claim can fail with err.
func (pl *player) expects(err error) bool {
	switch {
	case err == nil || errors.Is(err, context.DeadlineExceeded):
		return true
	case errors.Is(err, reentrant.ErrUnavailable):
		return pl.p.weather.lost > 0 || pl.mayLose()
	}
	return errors.Is(err, reentrant.ErrClosed) && pl.mayLose()
}

// entered notes what the player has taken, and checks it against what the others have.
func (pl *player) entered(w way) {
	p, first := pl.p, pl.holds() == 0
	var token, version reentrant.Token
	var err error
	lost := pl.lost
	switch {
	case pl.m != nil:
		lost = pl.m.Lost()
	case first:
		lost = pl.l.Lost(pl.ctx)
	}
	switch {
	case pl.m == nil && w.write && pl.writes == 0:
		token, err = pl.l.Token(pl.ctx)
	case pl.m == nil && first:
		version, err = pl.l.Version(pl.ctx)
	}
	p.check(err == nil || pl.mayLose(), "%s: %v", pl.name, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	pl.lost = lost
	pl.count(w, 1)
	p.inside[pl] = true
	p.sayLocked("%s has %d, %d, %d: token %d, version %d", pl.name, pl.reads, pl.writes, pl.permits, token, version)
	if err != nil || pl.hasLost() {
		return
	}
	if !p.weather.forgets || time.Since(p.forgot) > p.weather.lease {
		p.checkInsideLocked(pl)
	}
	p.checkTokensLocked(pl, token, version)
}

func (p *program) checkInsideLocked(u *player) {
	permits := 0
	for o := range p.inside {
		switch {
		case o.hasLost():
		case o != u && o.writes+u.writes > 0:
			p.failLocked("%s is beside %s", u.name, o.name)
		default:
			permits += o.permits
		}
	}
	if u.m != nil && permits > u.m.Permits() {
		p.failLocked("%d permits are in use", permits)
	}
}

// checkTokensLocked checks that tokens rise, that versions are above them, and that two versions are equal only if nothing
// was written between. If the server can forget, this is checked for each session by itself.
func (p *program) checkTokensLocked(u *player, token, version reentrant.Token) {
	switch {
	case p.weather.forgets:
		if version > 0 && version < p.seen[u.s] {
			p.failLocked("version %d of a session that has seen %d", version, p.seen[u.s])
		}
	case token > 0:
		p.writes++
		for v := range p.versions {
			p.highest = max(p.highest, v)
		}
		if token <= p.highest {
			p.failLocked("token %d after %d", token, p.highest)
		}
		p.highest = token
	case version > 0:
		for v, writes := range p.versions {
			if v == version && writes != p.writes || v > version && writes < p.writes {
				p.failLocked("version %d after %d writes, and %d after %d", version, p.writes, v, writes)
			}
		}
		if version < p.seen[u.s] || p.writes > 0 && version < p.highest {
			p.failLocked("version %d after %d, and token %d", version, p.seen[u.s], p.highest)
		}
		p.versions[version] = p.writes
	}
	p.seen[u.s] = max(p.seen[u.s], token, version)
}

// count adds what a way takes to what the player has.
func (pl *player) count(w way, sign int) {
	switch {
	case pl.m != nil:
		pl.permits += sign * w.n
	case w.write:
		pl.writes += sign
	default:
		pl.reads += sign
	}
}

// leave gives something up.
func (pl *player) leave() {
	w := way{write: pl.writes > 0 && (pl.reads == 0 || pl.rnd.IntN(2) == 0), n: 1 + pl.rnd.IntN(max(1, pl.permits))}
	pl.p.mu.Lock()
	if pl.count(w, -1); pl.holds() == 0 {
		delete(pl.p.inside, pl)
	}
	pl.p.sayLocked("%s leaves, has %d, %d, %d", pl.name, pl.reads, pl.writes, pl.permits)
	pl.p.mu.Unlock()
	pl.give(w)
}

func (pl *player) give(w way) {
	lost, err := pl.hasLost(), error(nil)
	switch {
	case pl.m != nil:
		err = pl.m.Release(pl.ctx, w.n)
	case w.write:
		err = pl.l.Unlock(pl.ctx)
	default:
		err = pl.l.RUnlock(pl.ctx)
	}
	switch {
	case errors.Is(err, reentrant.ErrLost):
		pl.p.check(pl.mayLose() && (pl.hasLost() || pl.m != nil), "%s has lost what it had", pl.name)
	default:
		pl.p.check(err == nil && (!lost || pl.mayLose()), "%s leaves: %v", pl.name, err)
	}
}

// newProgram opens the sessions of a program.
func newProgram(t *testing.T, seed uint64, w weather) *program {
	p := &program{t: t, seed: seed, weather: w, rnd: rand.New(rand.NewPCG(seed, 0)), restore: func() {}, begun: time.Now(),
		arrivals: map[string]time.Time{}, inside: map[*player]bool{}, struck: map[*reentrant.Session]bool{},
		versions: map[reentrant.Token]int{}, seen: map[*reentrant.Session]reentrant.Token{}}
	p.b = memory.New(memory.WithFault(p.judge), memory.WithTrace(func(line string) { p.say("    %s", line) }))
	p.hold = []time.Duration{time.Millisecond, 5 * time.Millisecond, 30 * time.Millisecond}[p.rnd.IntN(3)]
	p.idle = []time.Duration{time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond}[p.rnd.IntN(3)]
	if w.event != nil && p.rnd.IntN(2) == 0 {
		p.hold, p.idle = p.hold*time.Duration(1+p.rnd.IntN(100)), p.idle*time.Duration(1+p.rnd.IntN(30))
	}
	for range 1 + p.rnd.IntN(4) {
		s, err := reentrant.NewSession(p.b, reentrant.WithLease(w.lease), reentrant.WithHeartbeat(w.heartbeat))
		p.check(err == nil, "%v", err)
		p.sessions = append(p.sessions, s)
	}
	return p
}

// players returns the players of a program that uses permits, or a read-write lock if permits is 0.
func (p *program) players(permits int) (all []*player) {
	for i, s := range p.sessions {
		for j := range 1 + p.rnd.IntN(4) {
			u := &player{p: p, name: fmt.Sprintf("%c%d", 'A'+i, j), s: s, rnd: rand.New(rand.NewPCG(p.seed, uint64(10+10*i+j))), ctx: context.Background(), l: s.NewRWLock("x")}
			if p.rnd.IntN(2) == 0 {
				u.ctx = reentrant.WithOwner(u.ctx, u.name)
			}
			if permits > 0 {
				u.m = s.NewSemaphore("y", permits)
			}
			all = append(all, u)
		}
	}
	return all
}

func (p *program) run(permits int) {
	var work sync.WaitGroup
	steps := 10 + p.rnd.IntN(30)
	if p.weather.event != nil {
		steps *= 4
	}
	for _, u := range p.players(permits) {
		work.Go(func() { u.run(steps) })
	}
	over := make(chan struct{})
	go func() {
		work.Wait()
		close(over)
	}()
	p.events(over)
	for _, s := range p.sessions {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		err := s.Close(ctx)
		cancel()
		p.check(err == nil || p.struck[s], "close: %v", err)
		p.check(time.Since(begun) < time.Second || p.weather.lost > 0 || p.weather.event != nil, "close took %v", time.Since(begun))
		_ = s.Close(context.Background())
	}
	if left := slices.Concat(p.b.Left("x"), p.b.Left("y")); p.weather.event == nil && p.weather.lost == 0 {
		p.check(len(left) == 0, "left: %v", left)
	}
}

// events lets things happen until the program is over.
func (p *program) events(over <-chan struct{}) {
	for {
		var next <-chan time.Time
		if p.weather.event != nil {
			next = time.After(time.Duration(p.rnd.Int64N(int64(2 * time.Second))))
		}
		select {
		case <-over:
			return
		case <-next:
			p.weather.event(p, p.sessions[p.rnd.IntN(len(p.sessions))])
		}
	}
}

// Players of several sessions take and leave a read-write lock, or permits, in all kinds of weather: a writer is alone, the
// limit holds, tokens and versions say what was written, nothing is lost that need not be, and no wait is longer than the
// others' holds and what has failed explain.
func TestRandomProgramsOfSharedNames(t *testing.T) {
	for name, w := range weathers {
		for kind, permits := range map[string]int{"locks": 0, "permits": 6} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				programs := testsize.Of(4000, 20)
				if raceEnabled {
					programs = 200
				}
				if w.event != nil { // such programs take longer
					programs /= 10
				}
				for seed := range uint64(programs) {
					synctest.Test(t, func(t *testing.T) { newProgram(t, seed, w).run(min(permits, 1+int(seed%6))) })
					if t.Failed() {
						return
					}
				}
			})
		}
	}
}
