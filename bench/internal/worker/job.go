// Package worker is one process of a workload, and the parent's connection to it.
//
//	parent → child   the job; then an order for each run, all children's with the same moment to begin; the end of
//	                 the input means stop
//
// child → parent   a reply to each: ready, or the outcome
//
// All are lines of JSON. If the parent ends, the child's input ends, and so the child ends, too.
package worker

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/relock-go/relock/bench/internal/workload"
)

// A Job is the work of a process.
type Job struct {
	Contender string
	Workload  workload.Workload
	URL       string // of Redis
	Prefix    string // of the locks' names
	Site      string // the file
	Process   int    // from 0 on
}

// An Order is one run.
type Order struct {
	WarmUp bool          // true if the run uses other locks, so that what it leaves behind does not disturb the measurement
	Begin  time.Time     // by this machine's clock
	For    time.Duration // after this time no goroutine begins another section; goroutines that wait still get theirs
	Cut    time.Duration // after this time, goroutines that still wait are cut off
}

// An Outcome is the result of a run.
type Outcome struct {
	Err string // the run could not take place

	InTime   []int64                // by goroutine: sections that were entered before the end
	Sections int64                  // the number of all sections, also of those after the end
	Waits    *hdrhistogram.Snapshot // in ns, of all sections, also of those that were cut off
	Reads    *hdrhistogram.Snapshot // of them, those of read-write locks' readers; nil for other locks
	Writes   *hdrhistogram.Snapshot // and of their writers
	Mallocs  uint64
	CutOff   int64 // goroutines that waited until they were cut off
	Errors   int64 // of Lock and Unlock
	First    string
}

// Waits have two significant digits. Every wait that is longer than maxWait counts as maxWait.
const maxWait = time.Minute

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(maxWait), 2) }
