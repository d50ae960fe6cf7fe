package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// settled is how long a hold has lasted before it counts as part of a cycle: on a busy server sessions wait for each other
// all the time, for a moment.
const settled = 2 * time.Second

// findCycles notes in each of the locks the cycle that it is part of, if there is one: the session that holds a lock waits for
// the next lock, and so on, back to the first. Redis knows which sessions wait, and not which of their owners. So a cycle may
// be a deadlock, or only seem to be one, because in some session the owner that holds and the owner that waits are different.
func findCycles(locks []status) {
	g := newWaits(locks)
	for i := range locks {
		for _, j := range g.cycle(i) {
			locks[i].Cycle = append(locks[i].Cycle, locks[j].Name)
		}
	}
}

// waits has, for each lock, the indexes of the locks that its holders wait for.
type waits [][]int

func newWaits(locks []status) waits {
	waiting := make(map[string][]int) // by session
	for i, s := range locks {
		for _, session := range s.Waiting {
			waiting[session] = append(waiting[session], i)
		}
	}
	g := make(waits, len(locks))
	for i, s := range locks {
		for _, session := range s.settledHolders() {
			g[i] = append(g[i], waiting[session]...)
		}
	}
	return g
}

// settledHolders returns the sessions that hold the lock, unless they are known to have taken it less than settled ago: other
// sessions that ask for the lock wait for each of them. It returns none for a semaphore, since a session has only some of the
// permits.
func (s status) settledHolders() (sessions []string) {
	held, known := age(s.Since)
	switch {
	case !s.Locked || s.Unlocked || known && held < settled:
	case s.shared == nil:
		return []string{s.Session}
	case s.Kind == kindRWLock:
		for _, h := range s.Holders {
			sessions = append(sessions, h.Session)
		}
	}
	return sessions
}

// cycle returns the shortest way from a lock back to the same lock, with which the way begins; nil if there is none.
func (g waits) cycle(start int) []int {
	before := make(map[int]int)
	for queue := []int{start}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, next := range g[at] {
			if next == start && at != start {
				return path(before, start, at)
			}
			if _, seen := before[next]; !seen && next != start {
				before[next] = at
				queue = append(queue, next)
			}
		}
	}
	return nil
}

// path returns the way from start to end. before has, for each lock on the way, the lock that comes before it.
func path(before map[int]int, start, end int) (way []int) {
	for ; end != start; end = before[end] {
		way = append(way, end)
	}
	way = append(way, start)
	slices.Reverse(way)
	return way
}

// sayCycles prints each cycle once.
func sayCycles(locks []status, w io.Writer) {
	byName, said := make(map[string]status), make(map[string]bool)
	for _, s := range locks {
		byName[s.Name] = s
	}
	for _, s := range locks {
		which := fmt.Sprintf("%q", slices.Sorted(slices.Values(s.Cycle)))
		if len(s.Cycle) == 0 || said[which] {
			continue
		}
		said[which] = true
		var parts []string
		for i, name := range s.Cycle {
			parts = append(parts, byName[name].leadsTo(byName[s.Cycle[(i+1)%len(s.Cycle)]]))
		}
		fmt.Fprintf(w, "relock: perhaps a deadlock: %s\n", strings.Join(parts, "; "))
	}
}

// leadsTo says which of a lock's holders waits for the next lock of a cycle.
func (s status) leadsTo(next status) string {
	for _, session := range s.settledHolders() {
		if slices.Contains(next.Waiting, session) {
			return fmt.Sprintf("session %s holds %s and waits for %s", shown(session), shown(s.Name), shown(next.Name))
		}
	}
	return ""
}
