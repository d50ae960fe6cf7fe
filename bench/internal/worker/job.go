// Package worker is one process of a workload, and its parent's end of the line.
//
//	parent → child   the job; then an order for each run, all children's with the same moment to begin; the end of
//	                 the input means stop
//	child → parent   an answer to each: ready, or what happened
//
// All are lines of JSON. A child whose parent is gone finds the end of its input, and ends too.
package worker

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/relock-go/relock/bench/internal/workload"
)

// A Job is what a process is to do.
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
	WarmUp bool          // on other locks: what it leaves behind must not be in the way
	Begin  time.Time     // by this machine's clock
	For    time.Duration // then nobody begins another section; who waits for one still gets it
	Cut    time.Duration // after that, who still waits is cut off
}

// An Outcome is what happened in a run.
type Outcome struct {
	Err string // the run could not take place

	InTime   []int64                // by goroutine: sections that began before the end
	Sections int64                  // all of them, the last ones after the end included
	Waits    *hdrhistogram.Snapshot // in ns, of all sections and of those who were cut off
	Reads    *hdrhistogram.Snapshot // of them, those of read-write locks' readers; nil for other locks
	Writes   *hdrhistogram.Snapshot // and of their writers
	Mallocs  uint64
	CutOff   int64 // goroutines that waited until they were cut off
	Errors   int64 // of Lock and Unlock
	First    string
}

// Waits have two significant digits, and everything longer than maxWait counts as that.
const maxWait = time.Minute

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(maxWait), 2) }
