package explore

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"
)

// An explorer visits all states of a world, in the order of their distance.
type explorer struct {
	*world
	store   *store
	seed    maphash.Seed
	seen    map[uint64]struct{} // states that were reached
	drained map[uint64]struct{} // states from which everything has been shown to end well
	until   time.Time           // from then on the first few states of a world are enough
	nodes   []node
	steps   int
	depth   int
}

// A node is a state, with the steps that reached it.
type node struct {
	from   int32
	action action
}

func newExplorer(w *world, st *store, until time.Time) *explorer {
	return &explorer{world: w, store: st, until: until, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}, drained: map[uint64]struct{}{}}
}

// start returns the first state of a world.
func (w *world) start(st *store) *step {
	x := &step{world: w, store: st, state: state{now: 1, left: w.left, memory: st.intern([keyCount]value{})}}
	for i := range x.sessions {
		x.sessions[i] = st.fresh(w)
	}
	for _, a := range w.begin {
		x.happen(a)
	}
	return x
}

// explore returns the shortest run that breaks a rule, as text, or "" if there is none. It also reports whether it has
// seen all states.
func (e *explorer) explore() (story string, all bool) {
	type reached struct {
		state
		node int32
	}
	e.nodes = []node{{}}
	layer := []reached{{e.start(e.store).state, 0}}
	for ; len(layer) > 0; e.depth++ {
		var next []reached
		for _, at := range layer {
			if e.most > 0 && len(e.seen) >= e.most || len(e.seen) >= look && e.late() {
				return "", false
			}
			for _, a := range e.actions(&at.state) {
				e.steps++
				x := step{world: e.world, store: e.store, state: at.state}
				x.happen(a)
				fresh := x.bad == "" && e.fresh(e.seen, &x.state)
				if x.bad == "" && !fresh {
					continue
				}
				e.nodes = append(e.nodes, node{at.node, a})
				n := int32(len(e.nodes) - 1)
				if x.bad != "" || !e.drains(&x.state) {
					return e.story(n), false
				}
				next = append(next, reached{x.state, n})
			}
		}
		layer = next
	}
	return "", true
}

func (e *explorer) late() bool { return time.Now().After(e.until) }

// fresh reports whether a state is reached for the first time. States are compared by a hash of 64 bits with a new seed
// in each run: two states with the same hash are less likely than a defective machine.
func (e *explorer) fresh(seen map[uint64]struct{}, s *state) bool {
	h := maphash.Comparable(e.seed, *s)
	if _, ok := seen[h]; ok {
		return false
	}
	seen[h] = struct{}{}
	return true
}

// story describes the run that reached a node.
func (e *explorer) story(n int32) string {
	var actions []action
	for ; n != 0; n = e.nodes[n].from {
		actions = append(actions, e.nodes[n].action)
	}
	slices.Reverse(actions)
	return e.tell(actions)
}

// tell describes a run, and what happens when it is left to run down.
func (e *explorer) tell(actions []action) string {
	x := *e.start(e.store)
	x.told = []string{fmt.Sprintf("the run begins with %d steps without faults", len(e.begin))}
	for _, a := range actions {
		x.happen(a)
	}
	if x.bad == "" {
		for _, dead := range e.casualties(&x.state) {
			y := x
			if y.drain(dead, func(*state) bool { return true }); y.bad != "" {
				x = y
				break
			}
		}
	}
	return strings.Join(append(x.told, "✗ "+x.bad), "\n")
}
