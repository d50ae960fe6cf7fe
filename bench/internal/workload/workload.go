// Package workload has the situations in which the locks are compared.
package workload

import (
	"fmt"
	"slices"
	"time"
)

// A Kind is the kind of lock that the goroutines share.
type Kind string

// The kinds.
const (
	Exclusive Kind = ""
	ReadWrite Kind = "read-write"
	Permits   Kind = "permits"
)

// Names say which of several locks a section uses.
type Names string

// The names.
const (
	Zipf   Names = ""       // one of Locks, chosen anew for each section, Zipf-distributed
	Random Names = "random" // one of Locks, all of them equally likely
	Own    Names = "own"    // each goroutine has a lock of its own
	Once   Names = "once"   // each section has a lock that was never used, such as "order:4711"
)

// A Workload is what the goroutines do: they lock, stay inside, unlock, and begin again at once.
type Workload struct {
	Name       string
	Kind       Kind
	Processes  int
	Goroutines int           // in each process
	Names      Names         // which lock a section is of
	Locks      int           // how many there are; 0 means one; not used with Own and Once
	Reads      int           // of ReadWrite: how many of a hundred sections only read
	Permits    int           // of Permits
	Reentrant  bool          // the goroutine holds the lock all the time and takes it again
	Busy       time.Duration // inside: time of computing
	Idle       time.Duration // inside: time of waiting, as for a database
}

// The names of workloads to which the report refers.
const (
	Uncontended = "uncontended"
	Fresh       = "fresh"
	Main        = "5x20" // the workload that stands for the usual case
	Scarce      = "semaphore-3"
)

// All has every workload, in the order of the report.
var All = []Workload{
	{Name: Uncontended, Processes: 1, Goroutines: 1},
	{Name: Fresh, Names: Once, Processes: 1, Goroutines: 1},
	{Name: "fresh-2x20", Names: Once, Processes: 2, Goroutines: 20},
	{Name: "own", Names: Own, Processes: 2, Goroutines: 20},
	{Name: "many", Names: Random, Locks: 1000, Processes: 2, Goroutines: 20},
	{Name: "reentrant", Processes: 1, Goroutines: 1, Reentrant: true},
	{Name: "1x10", Processes: 1, Goroutines: 10},
	{Name: "1x20", Processes: 1, Goroutines: 20},
	{Name: "1x100", Processes: 1, Goroutines: 100},
	{Name: "1x1000", Processes: 1, Goroutines: 1000},
	{Name: "2x20", Processes: 2, Goroutines: 20},
	{Name: Main, Processes: 5, Goroutines: 20},
	{Name: "10x20", Processes: 10, Goroutines: 20},
	{Name: "5x200", Processes: 5, Goroutines: 200},
	{Name: "5x20-zipf", Processes: 5, Goroutines: 20, Locks: 20},
	{Name: "5x20-100us", Processes: 5, Goroutines: 20, Busy: 100 * time.Microsecond},
	{Name: "5x20-1ms", Processes: 5, Goroutines: 20, Idle: time.Millisecond},
	{Name: "rw-99", Kind: ReadWrite, Reads: 99, Processes: 5, Goroutines: 20},
	{Name: "rw-90", Kind: ReadWrite, Reads: 90, Processes: 5, Goroutines: 20},
	{Name: "rw-50", Kind: ReadWrite, Reads: 50, Processes: 5, Goroutines: 20},
	{Name: "rw-99-1ms", Kind: ReadWrite, Reads: 99, Processes: 5, Goroutines: 20, Idle: time.Millisecond},
	{Name: "rw-90-1ms", Kind: ReadWrite, Reads: 90, Processes: 5, Goroutines: 20, Idle: time.Millisecond},
	{Name: "rw-50-1ms", Kind: ReadWrite, Reads: 50, Processes: 5, Goroutines: 20, Idle: time.Millisecond},
	{Name: "semaphore-50", Kind: Permits, Permits: 50, Processes: 5, Goroutines: 20, Idle: time.Millisecond},
	{Name: Scarce, Kind: Permits, Permits: 3, Processes: 5, Goroutines: 20, Idle: time.Millisecond},
}

// Find returns the workload with a name.
func Find(name string) (Workload, bool) {
	i := slices.IndexFunc(All, func(w Workload) bool { return w.Name == name })
	if i < 0 {
		return Workload{}, false
	}
	return All[i], true
}

// Spots returns how many locks can be held at the same time. Locks that are used only once count as one for each goroutine.
func (w Workload) Spots() int {
	if w.Names == Own || w.Names == Once {
		return w.Processes * w.Goroutines
	}
	return max(w.Locks, 1)
}

// About describes the workload.
func (w Workload) About() string {
	callers := count(w.Processes, "process", "processes") + " × " + count(w.Goroutines, "goroutine", "goroutines")
	where := "one lock"
	switch {
	case w.Names == Once:
		where = "a new lock for each section"
	case w.Names == Own:
		where = "a lock for each"
	case w.Names == Random:
		where = fmt.Sprintf("%d locks at random", w.Locks)
	case w.Locks > 1:
		where = fmt.Sprintf("%d locks, Zipf-distributed", w.Locks)
	case w.Kind == ReadWrite:
		where = fmt.Sprintf("one read-write lock, %d %% reads", w.Reads)
	case w.Kind == Permits:
		where = fmt.Sprintf("one semaphore of %d permits", w.Permits)
	}
	return callers + ", " + where + ", " + w.section()
}

func (w Workload) section() string {
	switch {
	case w.Reentrant:
		return "which its holder takes again"
	case w.Busy > 0:
		return fmt.Sprintf("%v of computing inside", w.Busy)
	case w.Idle > 0:
		return fmt.Sprintf("%v of waiting inside", w.Idle)
	}
	return "nothing inside"
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
