package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/faults/history"
)

// rest lets the time before the first fault pass. In some worlds the server's clock goes back a little in this time; that does
// not count as a fault.
func (w *world) rest(alive []*process) {
	random := w.random(1 << 33)
	for i := 1; time.Since(w.start) < simCalm-auditEvery; i++ {
		time.Sleep(auditEvery)
		w.audit()
		if w.lags() && i%3 == 0 {
			d := between(random, time.Second, simBlock)
			w.note("the server's clock steps back by %v", d)
			w.server.StepClock(-d)
		}
	}
	time.Sleep(simCalm - time.Since(w.start))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.storm, w.calm = w.nowLocked(), false
	for _, p := range alive {
		w.scripts += p.cable.sent()
		p.cable.settle(false)
	}
	w.noteLocked("the storm begins")
}

// stillCalm reports whether there has been no fault yet.
func (w *world) stillCalm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.storm == 0
}

// A calamity is a fault of the storm. It may replace a process.
type calamity func(w *world, random *rand.Rand, p **process, alive []*process)

var calamities = []calamity{
	(*world).dies,
	(*world).leaves,
	(*world).forgetsScripts,
	breaks("drops requests", dropping, passing), breaks("drops requests", dropping, passing),
	breaks("drops replies", passing, dropping), breaks("drops replies", passing, dropping),
	breaks("drops everything", dropping, dropping),
	breaks("is cut", cutting, cutting),
	breaks("is slow", delaying, delaying), breaks("is slow", delaying, delaying),
	breaks("holds requests back", holding, passing),
	breaks("holds replies back", passing, holding), breaks("holds everything back", holding, holding),
	(*world).stalls,
	(*world).flush,
	(*world).failsOver,
	(*world).clockSteps,
}

// rage causes one fault after the other, until there is a finding or the storm is over.
func (w *world) rage(alive []*process) {
	random := w.random(0)
	for (time.Since(w.start) < simulated || w.tracesMore()) && !w.found() {
		time.Sleep(between(random, time.Second, 4*simHeartbeat))
		w.audit()
		happens := calamities[random.IntN(len(calamities))]
		if w.recorder != nil && w.forgetful() && random.IntN(8) == 0 { // traces show best what a session does about a loss
			happens = (*world).flush
		}
		happens(w, random, &alive[random.IntN(len(alive))], alive)
	}
}

// tracesMore reports whether some trace is not yet as long as it may become.
func (w *world) tracesMore() bool {
	return w.recorder != nil && time.Since(w.start) < 3*simulated && !w.recorder.full()
}

func breaks(what string, up, down fault) calamity {
	return func(w *world, random *rand.Rand, p **process, _ []*process) {
		d := between(random, time.Second, simLease*3/2)
		w.note("the cable of %s %s for %v", (*p).name, what, d)
		w.concerns(broken, *p)
		(*p).cable.turn(up, down)
		time.Sleep(d)
		(*p).cable.turn(passing, passing)
		w.note("the cable of %s is repaired", (*p).name)
		w.concerns(w.now(), *p)
	}
}

// concerns records that a fault concerns processes, until the time over.
func (w *world) concerns(over int64, all ...*process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range all {
		w.repaired[p.name] = over
	}
}

// lost checks that a loss has a reason: a fault concerned the process during its hold, or within a lease before. The process's
// owners may have handed the lock to each other since the fault. w.mu is held.
func (w *world) lost(c call) {
	h := w.holds[c.key()]
	over := w.repaired[c.Process]
	for _, f := range w.forgets {
		over = max(over, f.To)
	}
	if over == 0 || h.since > over+simLease.Nanoseconds() {
		w.findLocked("%s lost %s though nothing had happened since %v", c.Client, c.Lock, time.Duration(over))
	}
}

// dies ends a process suddenly, as seen by others: its connections are closed, or stay open and carry nothing.
func (w *world) dies(random *rand.Rand, p **process, _ []*process) {
	dead := *p
	end := []fault{cutting, dropping}[random.IntN(2)]
	dead.cable.dies(end)
	w.mu.Lock()
	w.noteLocked("%s dies", dead.name)
	w.deaths[dead.name] = w.nowLocked()
	for client, c := range w.open {
		if c.Process == dead.name {
			w.calls = append(w.calls, c)
			delete(w.open, client)
		}
	}
	w.mu.Unlock()
	w.replace(p)
}

// leaves makes a process close its session and end.
func (w *world) leaves(_ *rand.Rand, p **process, _ []*process) {
	w.note("%s leaves", (*p).name)
	w.replace(p)
}

// replace puts another process in the place of one.
func (w *world) replace(p **process) {
	(*p).stop()
	w.ending.Go((*p).gone)
	*p = w.begin()
}

func (w *world) forgetsScripts(*rand.Rand, **process, []*process) {
	w.note("the server forgets its scripts")
	w.command("SCRIPT", "FLUSH")
}

// stalls lets nothing reach the server, or come back from it, for a while.
func (w *world) stalls(random *rand.Rand, _ **process, alive []*process) {
	all := slices.Clone(alive)
	d := between(random, time.Second, simLease)
	w.note("the server stands still for %v", d)
	w.concerns(broken, all...)
	for _, p := range all {
		p.cable.turn(holding, holding)
	}
	time.Sleep(d)
	for _, p := range all {
		p.cable.turn(passing, passing)
	}
	w.note("the server goes on")
	w.concerns(w.now(), all...)
}

// flush makes the server forget all its data. In a world of which traces are written, flush waits until a session keeps a lock
// that no owner uses, and often closes all connections, so that sessions soon know of the loss.
func (w *world) flush(random *rand.Rand, _ **process, alive []*process) {
	if !w.forgetful() {
		return
	}
	for end := time.Now().Add(2 * simHeartbeat); w.recorder != nil && !w.recorder.lingers() && time.Now().Before(end); {
		time.Sleep(simLinger / 10)
	}
	w.forgetting("the server forgets", false, func() {
		w.traces("forget", func() { w.command("FLUSHALL") })
		if w.recorder != nil && random.IntN(4) > 0 {
			for _, p := range alive {
				p.cable.reconnect()
			}
		}
	})
}

// traces calls do, which changes the server's data. If traces are written, each trace gets a step whose name is what.
func (w *world) traces(what string, do func()) {
	if w.recorder == nil {
		do()
		return
	}
	w.recorder.notes(what, do)
}

// failsOver makes an older copy the server's data. If no traces are written, the server's clock may be ahead afterwards.
func (w *world) failsOver(random *rand.Rand, _ **process, alive []*process) {
	if !w.forgetful() {
		return
	}
	var old dataset
	w.traces("copy", func() { old = copied(w.t, w.server) })
	time.Sleep(between(random, 0, simHeartbeat*2))
	ahead := max(0, between(random, -simLease/2, simLease/2))
	if w.recorder != nil {
		ahead = 0
	}
	what := fmt.Sprintf("a copy from %v takes over, %v ahead", old.at.Sub(w.start), ahead)
	w.forgetting(what, true, func() {
		w.traces("restore", func() { old.restore(w.t, w.server) })
		w.server.StepClock(ahead)
		w.command("SCRIPT", "FLUSH")
		for _, p := range alive {
			p.cable.reconnect()
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.restored = w.nowLocked()
}

func (w *world) clockSteps(random *rand.Rand, _ **process, _ []*process) {
	if w.forgetful() && w.recorder == nil {
		d := between(random, time.Second, simLease*3/2)
		w.forgetting(fmt.Sprintf("the server's clock steps ahead by %v", d), true, func() { w.server.StepClock(d) })
	}
}

// forgetting does something that makes the server forget, and records when.
func (w *world) forgetting(what string, partly bool, do func()) {
	w.mu.Lock()
	w.noteLocked("%s", what)
	w.forgets = append(w.forgets, history.Span{From: w.nowLocked(), To: broken, Partly: partly})
	w.mu.Unlock()
	do()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgets[len(w.forgets)-1].To = w.nowLocked()
}

func (w *world) command(words ...string) {
	c := w.server.Client()
	require.NoError(w.t, c.Do(w.t.Context(), c.B().Arbitrary(words...).Build()).Error())
}
