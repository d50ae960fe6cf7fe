package localqueue

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A rig drives a queue and its model through the same steps and compares them after each step. Calls that may wait run
// in goroutines of their own; the bubble shows when all of them are blocked or done.
type rig struct {
	t     *testing.T
	q     Queue[string]
	m     model
	calls int

	mu      sync.Mutex
	results map[int]any

	leave  []leaver // calls that may be waiting in line
	places []placed // places for whose turns no goroutine waits yet
}

// A placed is a Place, with the id of the call that waits for the place's turn.
type placed struct {
	id    int
	place Place[string]
}

// A leaver is a call whose wait can be cancelled.
type leaver struct {
	id              int
	cancel, timeout func()
	cancelled       any // the call's result if its wait is cancelled
}

func newRig(t *testing.T) *rig {
	return &rig{t: t, m: model{results: map[int]any{}}, results: map[int]any{}}
}

// call runs f in a goroutine and records its result.
func (r *rig) call(f func() any) (id int) {
	r.calls++
	r.start(r.calls, f)
	return r.calls
}

func (r *rig) start(id int, f func() any) {
	go func() {
		result := f()
		r.mu.Lock()
		r.results[id] = result
		r.mu.Unlock()
	}()
	synctest.Wait()
}

func (r *rig) claim(owner string, mode Mode) {
	done, timeout := make(chan struct{}), make(chan time.Time, 1)
	id := r.call(func() any { return r.q.Claim(owner, mode, done, timeout) })
	r.m.claim(id, owner, mode)
	r.leave = append(r.leave, leaver{id, func() { close(done) }, func() { timeout <- time.Time{} }, Cancelled})
}

// claimForGood makes a claim that cannot be cancelled: it waits by a plain receive.
func (r *rig) claimForGood(owner string, mode Mode) {
	r.m.claim(r.call(func() any { return r.q.Claim(owner, mode, nil, nil) }), owner, mode)
}

// reserve takes a place. A later step starts the wait for the place's turn. In all other respects the place is a claim.
func (r *rig) reserve(owner string, mode Mode) {
	r.calls++
	r.places = append(r.places, placed{r.calls, r.q.Reserve(owner, mode)})
	r.m.claim(r.calls, owner, mode)
}

// giveWay makes a claimant without holds give way.
func (r *rig) giveWay(mode Mode) {
	r.waitForPlaces()
	switch owner := r.m.owner; {
	case !r.m.busy:
		requireBug(r.t, func() { r.q.GiveWay(owner, mode, nil, nil) })
	case r.m.holds == 0:
		r.m.giveWay(r.call(func() any { return r.q.GiveWay(owner, mode, nil, nil) }), mode)
	}
}

// waitForPlaces starts the waits for the turns of all places.
func (r *rig) waitForPlaces() {
	for _, p := range r.places {
		r.start(p.id, func() any { return r.q.Wait(p.place, nil, nil) })
	}
	r.places = nil
}

func (r *rig) lock(owner string) {
	ctx, cancel := context.WithCancel(context.Background())
	r.m.lock(r.call(func() any { return asAny(lock(ctx, &r.q, owner)) }), owner)
	r.leave = append(r.leave, leaver{r.calls, cancel, nil, context.Canceled})
}

// quit cancels the n'th of the waits that can be cancelled.
func (r *rig) quit(n int, byTimeout bool) {
	if len(r.leave) == 0 {
		return
	}
	n %= len(r.leave)
	l := r.leave[n]
	r.leave = append(r.leave[:n], r.leave[n+1:]...)
	if byTimeout && l.timeout != nil {
		l.timeout()
		r.m.cancel(l.id, TimedOut)
		return
	}
	l.cancel()
	r.m.cancel(l.id, l.cancelled)
}

// end calls the function real, as the goroutine that has the busy baton, and then the function model. If the baton is not
// busy, real must panic.
func (r *rig) end(real func(), model func()) {
	r.waitForPlaces() // this goroutine has the baton
	if !r.m.busy {
		requireBug(r.t, real)
		return
	}
	real()
	model()
}

var fuzzOwners = [...]string{"a", "b", "c", ""}
var fuzzHolds = [...]int{1, 2, 3, MaxHolds}

// step decodes two bytes into a step and carries it out.
func (r *rig) step(code, arg byte) {
	q, m := &r.q, &r.m
	owner, mode, holds := fuzzOwners[arg&3], sharedIf(arg&4 != 0), fuzzHolds[arg>>3&3]
	switch code % 20 {
	case 0, 1:
		r.claim(owner, mode)
	case 2:
		r.claim(owner, mode|Barging) // the offer is accepted at once, so the result is that of a claim that does not barge
	case 3:
		r.claimForGood(owner, mode)
	case 4:
		require.Equal(r.t, m.tryClaim(owner), q.TryClaim(owner, Fair))
	case 5:
		id := r.call(func() any { holds, ok := q.Begin(owner); return beginResult{holds, ok} })
		m.begin(id, owner, m.noteBegin(id))
	case 6, 7:
		r.end(func() { q.Settle(holds) }, func() { m.settle(holds) })
	case 8:
		r.end(func() { require.Equal(r.t, len(m.line) > 0, q.Pass()) }, func() { m.pass() })
	case 9:
		r.end(q.Leave, m.handOver)
	case 10:
		require.Equal(r.t, m.evict(owner), q.Evict(owner))
	case 11:
		holds, ok := q.Reenter(owner)
		require.Equal(r.t, m.reenter(owner), beginResult{holds, ok})
	case 12:
		holds, ok := q.ExitOrBegin(owner)
		require.Equal(r.t, m.exitOrBegin(owner), beginResult{holds, ok})
	case 13:
		r.quit(int(arg>>1), arg&1 != 0)
	case 14:
		if mode == Shared {
			require.Equal(r.t, m.tryLock(owner), tryLock(q, owner))
			return
		}
		r.lock(owner)
	case 15:
		m.unlock(r.call(func() any { return asAny(unlock(q, owner)) }), owner)
	case 16:
		m.sendAway()
		if m.shut = arg >= 0xF0; m.shut {
			q.Shut()
		} else {
			sendAway(q)
		}
	case 17:
		r.reserve(owner, mode)
	case 18:
		r.reserve(owner, mode|First)
	case 19:
		r.giveWay(mode)
	}
}

// asAny converts a nil error to a nil interface.
func asAny(err error) any {
	if err == nil {
		return nil
	}
	return err
}

// compare asserts that the queue and the model are in the same state, and that the same calls have ended with the same
// results.
func (r *rig) compare() {
	synctest.Wait()
	q, m, t := &r.q, &r.m, r.t
	require.Equal(t, m.waiters(), q.Waiters())
	require.Equal(t, len(m.line), q.Len())
	require.Equal(t, m.queued(), q.QueuedOwners())
	require.Equal(t, len(m.queued()), q.Queued())
	require.Equal(t, len(m.ops), q.ops.Len)
	require.Equal(t, !m.out, q.Idle())
	holder, held := q.Holder()
	claimed := q.state == busy && q.holds == 0
	require.Equal(t, m.out && m.holds > 0, held)
	require.Equal(t, m.out && m.holds == 0, claimed)
	require.Equal(t, m.owner, q.owner)
	if held {
		require.Equal(t, m.owner, holder)
	}
	for _, owner := range fuzzOwners {
		want := 0
		if m.out && owner == m.owner {
			want = m.holds
		}
		require.Equal(t, want, q.HoldCount(owner), "holds of %q", owner)
	}
	r.mu.Lock()
	results := maps.Clone(r.results)
	r.mu.Unlock()
	want := maps.Clone(m.results)
	for _, p := range r.places {
		delete(want, p.id)
	}
	require.Equal(t, want, results)
}

// drain passes the baton on until no call waits for it. All calls that still wait must get the baton, in the model's order.
func (r *rig) drain() {
	r.waitForPlaces()
	for r.m.out {
		if r.m.busy {
			r.q.Leave()
			r.m.handOver()
		} else {
			owner := r.m.owner
			require.True(r.t, r.q.Evict(owner))
			r.m.evict(owner)
		}
		r.compare()
	}
	require.Len(r.t, r.results, len(r.m.results), "every call has ended")
	requireConserved(r.t, &r.q)
}

func runSteps(t *testing.T, steps []byte) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for ; len(steps) >= 2; steps = steps[2:] {
			r.step(steps[0], steps[1])
			r.compare()
		}
		r.drain()
	})
}

// maxSteps limits the length of an input: longer ones find nothing that shorter ones would not.
const maxSteps = 300

func FuzzQueue(f *testing.F) {
	f.Add([]byte{0, 0, 6, 0, 0, 1, 0, 2, 13, 2, 10, 0, 9, 0})                 // settle, two wait, one leaves, evict
	f.Add([]byte{0, 4, 0, 4, 0, 4, 0, 1, 6, 0, 6, 8, 13, 0, 8, 0, 9, 0})      // joiners of a shared owner
	f.Add([]byte{0, 0, 6, 16, 5, 0, 5, 0, 5, 0, 6, 8, 9, 0, 15, 0})           // Begin behind Begin
	f.Add([]byte{14, 0, 14, 1, 14, 2, 14, 0, 13, 0, 15, 0, 15, 0, 15, 1})     // lock and unlock
	f.Add([]byte{14, 4, 6, 0, 4, 0, 14, 0, 15, 0, 6, 24, 11, 0, 14, 0})       // at the maximum of holds
	f.Add([]byte{3, 5, 3, 1, 3, 5, 6, 0, 9, 0, 12, 1, 6, 8, 11, 1, 12, 1})    // waits that cannot be cancelled
	f.Add([]byte{6, 0, 8, 0, 9, 0, 10, 3, 11, 3, 12, 3, 13, 0, 15, 3, 4, 3})  // nothing to end
	f.Add([]byte{0, 4, 0, 4, 14, 0, 14, 1, 16, 0, 6, 0, 15, 4, 0, 4, 13, 0})  // sent away, shared and not
	f.Add([]byte{17, 0, 6, 0, 17, 8, 17, 4, 17, 1, 6, 8, 9, 0, 17, 3, 16, 0}) // places
	f.Add([]byte{0, 0, 0, 1, 18, 2, 19, 0, 18, 4, 18, 4, 9, 0, 19, 4, 6, 0})  // first, and given way to
	f.Fuzz(func(t *testing.T, steps []byte) {
		runSteps(t, steps[:min(len(steps), 2*maxSteps)])
	})
}

// Every test run makes the checks of FuzzQueue on random inputs.
func TestRandomStepsAgreeWithTheModel(t *testing.T) {
	seed := newSeed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range rounds(300) {
		steps := make([]byte, 2+rnd.IntN(200))
		for i := range steps {
			steps[i] = byte(rnd.Uint32())
		}
		runSteps(t, steps)
	}
}
