package explore

import (
	"cmp"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/relock-go/relock/internal/testsize"
)

// The worlds are as large as some seconds allow. Each has more of one kind of step than the others.
var worlds = []world{
	{name: "hand-over", sessions: 2, attempts: 2, block: 1, left: budget{ticks: 1, faults: 1},
		kinds: []flags{queueUp}, hurries: true},
	{name: "memories", sessions: 2, attempts: 2, block: 1, remembers: true, left: budget{ticks: 1, faults: 1}, kinds: []flags{queueUp}},
	{name: "yielding memories", sessions: 2, attempts: 2, block: 1, remembers: true, left: budget{ticks: 1, faults: 1}, kinds: []flags{queueUp}, hurries: true,
		begin: oneHolds, most: 200_000},
	{name: "long memories", sessions: 2, attempts: 3, block: 1, remembers: true, left: budget{faults: 1}, kinds: []flags{queueUp},
		begin: oneHolds, most: 200_000},
	{name: "lost memories", sessions: 2, attempts: 2, block: 1, remembers: true, left: budget{ticks: 1, faults: 1, nests: 1}, kinds: []flags{queueUp},
		begin: oneHolds, most: 200_000},
	{name: "own memories", sessions: 1, attempts: 3, block: 1, remembers: true, left: budget{ticks: 1, faults: 2, nests: 1, renews: 1}, kinds: []flags{queueUp}},
	{name: "late memories", sessions: 1, attempts: 2, block: 1, remembers: true, portable: true, left: budget{ticks: 2, faults: 2, nests: 1}, kinds: []flags{queueUp}},
	{name: "brief records", sessions: 2, attempts: 2, block: 1, brief: lease, left: budget{ticks: 3, faults: 1}, kinds: []flags{queueUp}, most: 200_000},
	{name: "brief memories", sessions: 2, attempts: 2, block: 1, brief: lease, remembers: true, left: budget{ticks: 3, faults: 1}, kinds: []flags{queueUp}, most: 200_000},
	{name: "own brief memories", sessions: 1, attempts: 3, block: 1, brief: lease, remembers: true, left: budget{ticks: 4, faults: 2, nests: 1, renews: 1},
		kinds: []flags{queueUp}, most: 200_000},
	{name: "faults", sessions: 2, attempts: 1, block: 1, left: budget{ticks: 2, faults: 3}, kinds: []flags{queueUp}},
	{name: "three", sessions: 3, attempts: 1, block: 1, left: budget{ticks: 2, faults: 1}, kinds: []flags{queueUp}},
	{name: "counts", sessions: 2, attempts: 1, block: 1, left: budget{ticks: 2, faults: 2, nests: 2}, kinds: []flags{queueUp}},
	{name: "takeover", sessions: 1, attempts: 2, block: 1, left: budget{ticks: 2, faults: 2, nests: 1, renews: 1}, kinds: []flags{queueUp}},
	{name: "kinds", sessions: 2, attempts: 2, block: 1, left: budget{ticks: 1, faults: 1}, kinds: []flags{queueUp, 0, queueUp | barge}, begin: oneHolds},
	{name: "fixed", sessions: 2, attempts: 1, block: 1, left: budget{ticks: 2, faults: 2}, kinds: []flags{queueUp | fixed}},
	{name: "blocks", sessions: 2, attempts: 2, block: 2, left: budget{ticks: 1, faults: 1}, kinds: []flags{queueUp}, hurries: true},
	{name: "lingering", sessions: 2, attempts: 1, block: 2, lingers: true, left: budget{ticks: 2, faults: 1}, kinds: []flags{queueUp}},
	{name: "lingering tries", sessions: 2, attempts: 2, block: 2, lingers: true, hurries: true, left: budget{ticks: 1, faults: 1, renews: 1}, kinds: []flags{queueUp, 0},
		begin: []action{{what: attempts, session: 0, flags: queueUp, owner: lingering}, {what: releases, session: 0}}, most: 50_000},
	{name: "alone", sessions: 2, attempts: 2, block: 2, alone: true, left: budget{ticks: 3, faults: 1, renews: 1}, kinds: []flags{queueUp}, most: 200_000},
	{name: "alone tries", sessions: 2, attempts: 2, block: 2, alone: true, left: budget{ticks: 2, faults: 1, renews: 1}, kinds: []flags{queueUp, 0},
		begin: []action{{what: attempts, session: 0, flags: queueUp, owner: 1}, {what: releases, session: 0}}, most: 50_000},
	{name: "resumed", sessions: 2, portable: true, attempts: 2, block: 1, left: budget{ticks: 1, faults: 1, resumes: 1}, kinds: []flags{queueUp}, begin: oneHolds},
	{name: "resumed by a waiter", sessions: 2, portable: true, attempts: 3, block: 1, left: budget{ticks: 2, resumes: 1}, kinds: []flags{queueUp}, begin: oneHolds, most: 50_000},
	{name: "memory", sessions: 2, attempts: 2, block: 3, left: budget{ticks: 2, flushes: 1}, kinds: []flags{queueUp}},
	{name: "condition", sessions: 2, attempts: 2, block: 1, left: budget{ticks: 1, faults: 1, awaits: 1, signals: 1}, kinds: []flags{queueUp}, begin: oneHolds},
	{name: "signals", sessions: 3, attempts: 2, block: 1, left: budget{ticks: 2, awaits: 2, signals: 1}, kinds: []flags{queueUp}, begin: twoWait},
	{name: "lost signals", sessions: 3, attempts: 2, block: 1, left: budget{ticks: 1, faults: 1, awaits: 2, signals: 1}, kinds: []flags{queueUp},
		begin: twoWait, most: 100_000},
	{name: "stopped hand-over", sessions: 2, attempts: 2, block: 1, left: budget{ticks: 1, stops: 1}, kinds: []flags{queueUp}, hurries: true},
	{name: "stopped three", sessions: 3, attempts: 1, block: 1, left: budget{ticks: 2, stops: 1}, kinds: []flags{queueUp}},
	{name: "stopped kinds", sessions: 2, attempts: 2, block: 1, left: budget{ticks: 2, stops: 1}, kinds: []flags{queueUp, queueUp | barge, queueUp | fixed}, begin: oneHolds,
		most: 50_000},
	{name: "stopped counts", sessions: 2, attempts: 1, block: 1, left: budget{ticks: 2, stops: 1, nests: 2, renews: 1}, kinds: []flags{queueUp}},
	{name: "stopped memories", sessions: 2, attempts: 2, block: 1, remembers: true, left: budget{ticks: 1, stops: 1}, kinds: []flags{queueUp}, hurries: true,
		begin: oneHolds, most: 50_000},
	{name: "stopped condition", sessions: 2, attempts: 2, block: 1, left: budget{ticks: 1, stops: 1, awaits: 1, signals: 1}, kinds: []flags{queueUp}, begin: oneHolds},
	{name: "stopped signals", sessions: 3, attempts: 2, block: 1, left: budget{ticks: 2, stops: 1, awaits: 2, signals: 1}, kinds: []flags{queueUp}, begin: twoWait,
		most: 50_000},
}

// oneHolds begins a world: session a has the lock.
var oneHolds = []action{{what: attempts, session: 0, flags: queueUp, owner: 1}}

// twoWait begins a world: sessions a and b wait for the condition, and c has the lock.
var twoWait = []action{
	{what: attempts, session: 0, flags: queueUp, owner: 1}, {what: awaits, session: 0},
	{what: attempts, session: 1, flags: queueUp, owner: 1}, {what: awaits, session: 1},
	{what: attempts, session: 2, flags: queueUp, owner: 1},
}

// ceiling is the largest number of states of a world that must be explored completely. A larger world fails before it takes
// all memory.
const ceiling = 1_000_000

// room limits the worlds that are explored at once to two, for which there is memory.
var room = make(chan struct{}, 2)

// deep is how many states of each world, with one fault more, are to be reached; 0: all states, without that fault. A million
// takes some 10 to 30 s of a processor and 1 GB, and two worlds run at once.
var deep = must(strconv.Atoi(cmp.Or(os.Getenv("RELOCK_EXPLORE"), "0")))

// hasty reports whether worlds are only looked at: everywhere but at full size, and there too with the race
// detector, which finds little in one goroutine.
func hasty() bool {
	return testing.Short() || underRace || !testsize.Full() && deep == 0
}

// look is how many states of each world are explored at full size, however late it is. glance is how many are explored in
// hasty runs.
const look, glance = 1_000, 30

// lateFrom returns the time from which the worlds are only looked at: half of the time that go test gives this package is over, so
// the machine is too slow to see them as a whole.
func lateFrom(t *testing.T) time.Time {
	end, limited := t.Deadline()
	if !limited || deep > 0 {
		return time.Now().Add(24 * time.Hour)
	}
	return loaded.Add(end.Sub(loaded) / 2)
}

// loaded is about when the tests began.
var loaded = time.Now()

// sized returns a world as large as there is time for, and whether it may be cut.
func (w world) sized() (_ world, mayBeCut bool) {
	switch {
	case hasty():
		w.most = glance
	case deep > 0:
		w.left.faults, w.most = w.left.faults+1, deep
	case w.most == 0:
		w.most = ceiling
		return w, false
	}
	return w, true
}

func extent(complete bool) string {
	if complete {
		return "complete"
	}
	return "CUT"
}

func TestExplore(t *testing.T) {
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			room <- struct{}{}
			defer func() { <-room }()
			w, mayBeCut := w.sized()
			began := time.Now()
			e := newExplorer(&w, newStore(t, overheard(t)), lateFrom(t))
			story, complete := e.explore()
			t.Logf("%s: %d states, %d steps, %d deep, %d while it is left to itself; %d runs of scripts on %d memories; %v",
				extent(complete), len(e.seen), e.steps, e.depth, len(e.drained), e.store.count, len(e.store.ids), time.Since(began).Round(time.Millisecond))
			if story != "" {
				t.Fatalf("\n%s", story)
			}
			if !complete && !mayBeCut && !e.late() {
				t.Errorf("the world has more than %d states, and is not marked as one that may be cut", w.most)
			}
		})
	}
}

// wide is a world with more of everything than can be explored.
var wide = world{sessions: 3, attempts: 4, block: 1, left: budget{ticks: 8, faults: 5, nests: 4, renews: 3, flushes: 1, awaits: 2, signals: 2, resumes: 1},
	kinds: []flags{queueUp, 0, queueUp | barge, queueUp | fixed}, hurries: true}

// seed returns the seed of the walks. It is the same in every run, so that a failure comes from a change. If RELOCK_EXPLORE
// is set, each run has a new seed.
func seed() uint64 {
	switch text := os.Getenv("RELOCK_SEED"); {
	case text != "":
		return must(strconv.ParseUint(text, 10, 64))
	case deep > 0:
		return uint64(time.Now().UnixNano())
	}
	return 1
}

func TestExploreAtRandom(t *testing.T) {
	seed := seed()
	t.Logf("RELOCK_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	walks, steps := 2000, 0
	switch {
	case hasty():
		walks = few / 5
	case deep > 0:
		walks *= 50
	}
	w := wide
	e := newExplorer(&w, newStore(t, overheard(t)), lateFrom(t))
	for i := range walks {
		if i >= few && e.late() {
			t.Log("CUT")
			walks = i
			break
		}
		w.block, w.remembers, w.portable = 1+2*uint8(i%2), i%4 < 2, i%8 < 4
		run, bad := e.walk(random)
		if bad {
			t.Fatalf("\n%s", e.tell(e.shorter(run)))
		}
		steps += len(run)
	}
	t.Logf("%d walks, %d steps; %d runs of scripts on %d memories", walks, steps, e.store.count, len(e.store.ids))
}

// few is the number of walks that are made at full size, however late it is.
const few = 50

// longest bounds a walk: a random walk can go in circles.
const longest = 1000

// walk takes random steps through a world, and reports whether they break a rule.
func (e *explorer) walk(random *rand.Rand) (run []action, bad bool) {
	x := e.start(e.store)
	for x.bad == "" && len(run) < longest {
		all := e.actions(&x.state)
		if len(all) == 0 {
			break
		}
		run = append(run, all[random.IntN(len(all))])
		x.happen(run[len(run)-1])
	}
	return run, x.bad != "" || !e.drains(&x.state)
}
