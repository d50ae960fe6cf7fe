package explore

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/share/plan"
)

// shareWorlds are the worlds of shared names.
var shareWorlds = []shareWorld{
	{name: "reader and writer", kind: backend.ReadWrite, ops: [maxSessions][]int{{1}, {allUnits}}, ticks: 3, faults: 2, most: 40_000},
	{name: "both", kind: backend.ReadWrite, ops: [maxSessions][]int{{1, allUnits}, {1, allUnits}}, ticks: 2, faults: 1, most: 40_000},
	{name: "write then read", kind: backend.ReadWrite, ops: [maxSessions][]int{{allUnits, 1}, {allUnits, 1}}, ticks: 2, faults: 1, most: 40_000},
	{name: "three", kind: backend.ReadWrite, ops: [maxSessions][]int{{1}, {allUnits}, {1}}, ticks: 2, faults: 1, most: 40_000},
	{name: "overtaken", kind: backend.ReadWrite, ops: [maxSessions][]int{{allUnits, allUnits, 1, allUnits}, {allUnits}}, ticks: 1, quits: 1, calm: true,
		begin: writersThenReader},
	{name: "expiry", kind: backend.ReadWrite, ops: [maxSessions][]int{{allUnits}, {1, 1}}, ticks: 5, faults: 1, most: 40_000},
	{name: "memory", kind: backend.ReadWrite, ops: [maxSessions][]int{{1, 1}, {allUnits}}, ticks: 2, faults: 1, flushes: 1, most: 40_000},
	{name: "permits", kind: backend.Permits, ops: [maxSessions][]int{{1, 1}, {2}}, limit: [maxSessions]int{2, 2, 2}, ticks: 3, faults: 1, most: 40_000},
	{name: "forgotten permits", kind: backend.Permits, ops: [maxSessions][]int{{1, 1}, {2}}, limit: [maxSessions]int{2, 2, 2}, ticks: 1, flushes: 1, most: 40_000},
	{name: "shares", kind: backend.Permits, ops: [maxSessions][]int{{1, 2}, {1, 1}, {1}}, limit: [maxSessions]int{3, 3, 3}, ticks: 1, faults: 1, most: 40_000},
	{name: "attempts to write", kind: backend.ReadWrite, ops: [maxSessions][]int{{1, 1}, {allUnits, allUnits}}, once: [maxSessions][maxOps]bool{{}, {true}},
		ticks: 2, faults: 1, begin: aIsInside, most: 40_000},
	{name: "attempts of three", kind: backend.ReadWrite, ops: [maxSessions][]int{{1}, {allUnits}, {1, allUnits}},
		once: [maxSessions][maxOps]bool{{}, {true}, {false, true}}, ticks: 1, faults: 1, begin: aAndCAreInside, most: 40_000},
	{name: "attempts for permits", kind: backend.Permits, ops: [maxSessions][]int{{1, 1}, {2}, {1}}, once: [maxSessions][maxOps]bool{{}, {true}},
		limit: [maxSessions]int{2, 2, 2}, ticks: 1, faults: 1, most: 40_000},
	{name: "attempts of all", kind: backend.Permits, ops: [maxSessions][]int{{1, 2}, {2}, {1, 1}}, once: [maxSessions][maxOps]bool{{true, true}, {true}, {false, true}},
		limit: [maxSessions]int{3, 3, 3}, ticks: 1, faults: 1, begin: aAndCAreInside, most: 40_000},
	{name: "an attempt and the dead", kind: backend.Permits, ops: [maxSessions][]int{{1}, {2}, {1}}, once: [maxSessions][maxOps]bool{{}, {true}},
		limit: [maxSessions]int{2, 2, 2}, ticks: 5, begin: cDies, most: 40_000},
	{name: "a dead holder", kind: backend.Permits, ops: [maxSessions][]int{{1}, {1}, {1}}, limit: [maxSessions]int{1, 1, 1}, ticks: 6, quits: 1, hasty: 1, calm: true,
		begin: holdersLeaseEnds, most: 40_000},
	{name: "long ago", kind: backend.Permits, ops: [maxSessions][]int{{1}, {1, 1}}, limit: [maxSessions]int{1, 1, 1}, ticks: 9, calm: true,
		begin: givenBack},
	{name: "a reader leaves", kind: backend.ReadWrite, ops: [maxSessions][]int{{1, allUnits}, {allUnits, 1}}, ticks: 2, quits: 2, most: 40_000},
	{name: "a session dies", kind: backend.ReadWrite, ops: [maxSessions][]int{{1}, {allUnits}, {1}}, ticks: 3, deaths: 1, most: 40_000},
	{name: "slow replies", kind: backend.ReadWrite, ops: [maxSessions][]int{{allUnits, 1}, {1}}, ticks: 5, faults: 1, slow: 4, most: 40_000},
	{name: "turns", kind: backend.ReadWrite, ops: [maxSessions][]int{{allUnits, allUnits, 1}, {1}, {allUnits}}, ticks: 2, turn: second, most: 40_000},
	{name: "two permits", kind: backend.Permits, ops: [maxSessions][]int{{1, 1}, {2}, {1}}, limit: [maxSessions]int{2, 2, 2},
		ticks: 1, faults: 1, quits: 1, most: 40_000},
	{name: "a permit's session dies", kind: backend.Permits, ops: [maxSessions][]int{{1}, {2}, {1}}, limit: [maxSessions]int{2, 2, 2},
		ticks: 3, deaths: 1, most: 40_000},
	{name: "turns for permits", kind: backend.Permits, ops: [maxSessions][]int{{1, 1, 1}, {1}, {2}}, limit: [maxSessions]int{2, 2, 2},
		ticks: 3, turn: second, most: 40_000},
	{name: "limits", kind: backend.Permits, ops: [maxSessions][]int{{2, 1}, {1}}, limit: [maxSessions]int{3, 1, 1}, ticks: 2, faults: 1, most: 40_000},
}

// writersThenReader is the beginning of a world: session a has used two tokens and is about to learn that b wants to
// write. A reader is inside.
var writersThenReader = []shareAction{
	{userComes, 0, 0}, {sends, 0, 0}, {what: delivers}, {what: delivers},
	{userComes, 0, 1}, {userComes, 0, 2}, {userLeaves, 0, 0}, {userLeaves, 0, 1},
	{userComes, 1, 0}, {sends, 1, 0}, {what: delivers},
}

// aIsInside and aAndCAreInside are beginnings of worlds in which users are inside.
var (
	aIsInside      = []shareAction{{userComes, 0, 0}, {sends, 0, 0}, {what: delivers}, {what: delivers}}
	aAndCAreInside = append(aIsInside[:4:4], shareAction{userComes, 2, 0}, shareAction{sends, 2, 0}, shareAction{what: delivers}, shareAction{what: delivers})
)

// cDies is the beginning of a world: the lease of c ends soon, a has a unit, and b tries to get both units.
var cDies = []shareAction{{userComes, 2, 0}, {sends, 2, 0}, {what: delivers}, {what: delivers}, {what: timePasses},
	{userComes, 0, 0}, {sends, 0, 0}, {what: delivers}, {what: delivers}, {what: timePasses}, {what: timePasses}, {userComes, 1, 0}, {sends, 1, 0}, {what: delivers}}

// holdersLeaseEnds is the beginning of a world: the server's reply that grants session a its unit is still under way when
// the lease of the unit ends.
var holdersLeaseEnds = []shareAction{{userComes, 0, 0}, {sends, 0, 0}, {what: delivers}, {what: timePasses}, {what: timePasses}, {what: timePasses}}

// givenBack is the beginning of a world: session a has given its unit back, and its entry will soon be deleted.
var givenBack = []shareAction{{userComes, 0, 0}, {sends, 0, 0}, {what: delivers}, {what: delivers}, {userLeaves, 0, 0}, {sends, 0, 0}, {what: delivers},
	{what: delivers}, {what: timePasses}, {what: timePasses}, {what: timePasses}, {what: timePasses}, {what: timePasses}}

// A shareExplorer visits all states of a world, in the order of their distance.
type shareExplorer struct {
	*shareWorld
	driver *shareDriver
	store  *shareStore
	seed   maphash.Seed
	seen   map[uint64]struct{}
	nodes  []shareNode
	calm   [ends]map[uint64]struct{} // states from which all is known to end well
}

type shareNode struct {
	from   int32
	action shareAction
}

func newShareExplorer(t *testing.T, w shareWorld) *shareExplorer {
	if w.kind == backend.ReadWrite {
		w.limit = [maxSessions]int{allUnits, allUnits, allUnits}
	}
	return &shareExplorer{shareWorld: &w, driver: newShareDriver(&w), store: newShareStore(t), seed: maphash.MakeSeed(), seen: map[uint64]struct{}{},
		calm: [ends]map[uint64]struct{}{{}, {}}}
}

func (e *shareExplorer) start() shareState {
	x := shareStep{shareWorld: e.shareWorld, driver: e.driver, store: e.store,
		shareState: shareState{now: 1, memory: e.store.intern(nil, 0), leftTicks: e.ticks, leftFaults: e.faults, leftFlushes: e.flushes, leftQuits: e.quits, leftDeaths: e.deaths}}
	for s := range x.ops {
		x.sessions[s].plan, x.sessions[s].tier.next = plan.New(e.kind), 1
	}
	for _, a := range e.begin {
		if !slices.Contains(x.actions(), a) {
			panic(fmt.Sprintf("%s: the world cannot begin with %v", e.name, a))
		}
		x.happen(a)
	}
	return x.shareState
}

func (e *shareExplorer) fresh(s *shareState) bool {
	h := maphash.Comparable(e.seed, *s)
	_, was := e.seen[h]
	e.seen[h] = struct{}{}
	return !was
}

// explore returns the shortest run that breaks a rule, as text, and whether it has seen all states.
func (e *shareExplorer) explore(most int, until time.Time) (story string, all bool) {
	type reached struct {
		shareState
		node int32
	}
	e.nodes = []shareNode{{}}
	layer := []reached{{e.start(), 0}}
	for len(layer) > 0 {
		var next []reached
		for _, at := range layer {
			if len(e.seen) >= most || len(e.seen) >= look && time.Now().After(until) {
				return "", false
			}
			x := shareStep{shareWorld: e.shareWorld, driver: e.driver, store: e.store, shareState: at.shareState}
			for _, a := range x.actions() {
				y := x
				y.happen(a)
				if y.bad == "" && !e.fresh(&y.shareState) {
					continue
				}
				e.nodes = append(e.nodes, shareNode{at.node, a})
				n := int32(len(e.nodes) - 1)
				if y.bad == "" {
					y.bad = e.answers(y)
				}
				if y.bad == "" {
					y.bad = e.tries(y)
				}
				if y.bad == "" {
					y.bad = e.drain(y)
				}
				if y.bad != "" {
					return e.story(n, y.bad), false
				}
				next = append(next, reached{y.shareState, n})
			}
		}
		layer = next
	}
	return "", true
}

// drain lets nothing fail from now on, and sends one heartbeat in each tick: every user must get in and out. It returns
// which ones do not.
func (e *shareExplorer) drain(x shareStep) string {
	if e.calms(drains, &x, 40, e.over) {
		return x.bad
	}
	return "although nothing fails any more, users are left: " + x.tell(shareAction{what: timePasses})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// pass lets a tick pass, and sessions renew what they have.
func (x *shareStep) pass() {
	x.happen(shareAction{timePasses, 0, 0})
	for s := range x.ops {
		if x.renewalDue(s) {
			x.happen(shareAction{renewsUnits, int8(s), 0})
		}
	}
}

// allSay lets every session say what it has to say, and delivers all messages. If users is true, it also lets users come and
// leave. It reports whether anything happened.
func (x *shareStep) allSay(users bool) (busy bool) {
	do := func(a shareAction) {
		x.happen(a)
		busy = true
	}
	for s := range x.ops {
		for i, state := range x.sessions[s].tier.users[:len(x.ops[s])] {
			if users && state == userAway {
				do(shareAction{userComes, int8(s), int8(i)})
			}
		}
		if c := &x.sessions[s]; c.woken && !c.busy {
			do(shareAction{sends, int8(s), 0})
		}
	}
	for x.count > 0 && x.bad == "" {
		do(shareAction{delivers, 0, 0})
	}
	for s := range x.ops {
		for i := range x.ops[s] {
			switch state := x.sessions[s].tier.users[i]; {
			case users && state == userInside:
				do(shareAction{userLeaves, int8(s), int8(i)})
			case users && state == userLost:
				do(shareAction{lateWrite, int8(s), int8(i)})
			}
		}
	}
	return busy
}

// answers delivers all messages while users stay where they are. If no message was lost and no time has passed, this
// must end every try.
func (e *shareExplorer) answers(x shareStep) string {
	if x.lost || x.leftFaults < e.faults || x.leftFlushes < e.flushes || x.leftTicks < e.ticks {
		return ""
	}
	for range 12 {
		if !x.allSay(false) || x.bad != "" {
			break
		}
	}
	for s := range x.ops {
		if c := &x.sessions[s]; c.plan.Claims() && c.plan.Request(x.at(s), time.Time{}).Try && !x.lost {
			x.must(false, "the try of %s has no result: %s", sessionName(uint8(s)), x.tell(shareAction{what: delivers}))
		}
	}
	return x.bad
}

// tries lets time pass while users stay where they are, and nothing fails any more. This must end every try.
func (e *shareExplorer) tries(x shareStep) string {
	if x.once == [maxSessions][maxOps]bool{} || e.calms(triesEnd, &x, x.timeout()+3, noTry) {
		return x.bad
	}
	return "although nothing fails any more, a try does not end: " + x.tell(shareAction{what: timePasses})
}

func noTry(x *shareStep) bool {
	for s := range x.ops {
		for i, once := range x.once[s] {
			if once && x.sessions[s].tier.users[i] == userWaits {
				return false
			}
		}
	}
	return true
}

// These are the ends of a world that is left to itself: all users come and leave, or they stay where they are and all tries
// end.
const (
	drains = iota
	triesEnd
	ends
)

// calms leaves a world to itself, and reports whether it is over within the given number of ticks, or breaks a rule before.
func (e *shareExplorer) calms(end int, x *shareStep, ticks tick, over func(*shareStep) bool) bool {
	var path []uint64
	for range ticks {
		x.leftTicks, x.leftFaults, x.leftFlushes, x.leftQuits, x.leftDeaths = 1, 0, 0, 0, 0
		for round := 0; round < 12 && x.bad == "" && x.allSay(end == drains); round++ {
		}
		h := maphash.Comparable(e.seed, x.shareState)
		if _, known := e.calm[end][h]; known || x.bad != "" || over(x) {
			for _, h := range path {
				e.calm[end][h] = struct{}{}
			}
			return true
		}
		path = append(path, h)
		x.pass()
	}
	return false
}

// over reports whether all users are done, and no session has or wants any units.
func (e *shareExplorer) over(x *shareStep) bool {
	for s := range x.ops {
		c := &x.sessions[s]
		if x.ops[s] != nil && !c.plan.Idle() {
			return false
		}
		for i := range x.ops[s] {
			if c.tier.users[i] != userDone {
				return false
			}
		}
	}
	for _, entry := range x.memory.shared.Entries {
		if entry.Place.Order > 0 && instantOf(x.now) <= entry.Place.Deadline || entry.Units > 0 && instantOf(x.now) <= entry.Until {
			return false
		}
	}
	return true
}

func (e *shareExplorer) story(n int32, bad string) string {
	var actions []shareAction
	for ; n != 0; n = e.nodes[n].from {
		actions = append(actions, e.nodes[n].action)
	}
	slices.Reverse(actions)
	x := shareStep{shareWorld: e.shareWorld, driver: e.driver, store: e.store, shareState: e.start()}
	var lines []string
	for _, a := range actions {
		x.happen(a)
		lines = append(lines, x.tell(a))
	}
	return strings.Join(append(lines, "✗ "+bad), "\n")
}

// sized returns how many states are explored, and whether the exploration of the world may be cut off there.
func (w *shareWorld) sized() (most int, mayBeCut bool) {
	switch {
	case hasty():
		return glance, true
	case deep > 0:
		return deep, true
	case w.most == 0:
		return ceiling, false
	}
	return w.most, true
}

// TestExploreShares explores the worlds of shared names, by the script and by package protocol, which must agree.
func TestExploreShares(t *testing.T) {
	for _, w := range shareWorlds {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			room <- struct{}{}
			defer func() { <-room }()
			most, mayBeCut := w.sized()
			e, until := newShareExplorer(t, w), lateFrom(t)
			story, complete := e.explore(most, until)
			t.Logf("%s: %d states, %d runs of the script", extent(complete), len(e.seen), len(e.store.known))
			if story != "" {
				t.Fatalf("\n%s", story)
			}
			if !complete && !mayBeCut && time.Now().Before(until) {
				t.Errorf("the world has more than %d states", most)
			}
		})
	}
}

// TestExploreSharesAtRandom takes random walks that are longer than the runs that can all be explored. Steps that
// matter more are more likely than those that would end the run early.
func TestExploreSharesAtRandom(t *testing.T) {
	seed := seed()
	t.Logf("RELOCK_SEED=%d", seed)
	walks, steps := 2000, 0
	switch {
	case hasty():
		walks = few / 5
	case deep > 0:
		walks *= 20
	}
	until := lateFrom(t)
	for n, w := range shareWorlds {
		random := rand.New(rand.NewPCG(seed, uint64(n)))
		w.ticks, w.faults, w.quits, w.deaths, w.calm = 2*w.ticks, 2*w.faults, 2, 1, false
		e := newShareExplorer(t, w)
		for i := range walks {
			if i >= few && time.Now().After(until) {
				t.Log("CUT")
				break
			}
			x := shareStep{shareWorld: e.shareWorld, driver: e.driver, store: e.store, shareState: e.start()}
			var lines []string
			for range 80 {
				all := x.actions()
				if len(all) == 0 || x.bad != "" {
					break
				}
				a := all[random.IntN(len(all))]
				if a.what >= doubles && random.IntN(3) > 0 {
					a = all[random.IntN(len(all))]
				}
				x.happen(a)
				lines = append(lines, x.tell(a))
				steps++
			}
			if x.bad == "" {
				x.bad = e.drain(x)
			}
			if x.bad != "" {
				t.Fatalf("%s\n%s\n✗ %s", w.name, strings.Join(lines, "\n"), x.bad)
			}
		}
	}
	t.Logf("%d steps", steps)
}
