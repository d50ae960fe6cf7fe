// Package result has the results of a benchmark run, as JSON, as CSV, and as a table.
package result

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/relock-go/relock/bench/internal/workload"
)

// A Result is a whole run.
type Result struct {
	Date       time.Time
	Settings   Settings
	Machine    Machine
	Versions   []Version
	Contenders []Contender
	Workloads  []Workload
	Cells      []Cell
}

// Settings say for how long the run measured.
type Settings struct {
	Rounds   int
	Duration time.Duration // of each cell in each round
	Quick    bool
}

// A Machine is the computer on which the run measured.
type Machine struct {
	CPU   string
	Cores int
	OS    string
	Go    string
	Redis string
}

// A Version is the version of a module.
type Version struct{ Module, Version string }

// A Contender is a contender that was measured.
type Contender struct {
	Name, About string
	Own         bool
}

// A Workload is a workload that was measured.
type Workload struct {
	Name, About           string
	Kind                  workload.Kind
	Processes, Goroutines int
}

// A Cell is one contender under one workload.
type Cell struct {
	Workload, Contender string
	Samples             []Sample // one for each round
}

// A Sample is one round of a cell. All values are per section, or describe waits, except the counts at the end.
type Sample struct {
	Sections       int64   // also those that were entered after the time
	PerSecond      float64 // only sections that were entered within the time
	Commands       float64 // sent by clients
	Inner          float64 // called by scripts
	Pushes         float64 // messages published
	CPU            float64 // µs of Redis's processor time
	Bytes          float64 // over Redis's connections, both ways
	Keys           float64 // how many more Redis has right after the run than before
	Memory         float64 // bytes that Redis uses for these keys
	WaitP50        float64 // in ms
	WaitP99        float64
	WaitMax        float64
	ReadP99        float64 // of a read-write lock only
	WriteP99       float64
	JainGoroutines float64
	JainProcesses  float64
	Allocs         float64

	Errors   int64
	CutOff   int64  // goroutines that waited until they were cut off
	Overlaps int64  // times that a holder came in while another was inside
	Failed   string // why there are no numbers; "" if there are numbers
	First    string // the first error
}

// Cell returns the cell of a workload and a contender. It returns false if they were not measured.
func (r *Result) Cell(workload, contender string) (Cell, bool) {
	for _, c := range r.Cells {
		if c.Workload == workload && c.Contender == contender {
			return c, true
		}
	}
	return Cell{}, false
}

// Add puts a sample into its cell.
func (r *Result) Add(workload, contender string, s Sample) {
	for i, c := range r.Cells {
		if c.Workload == workload && c.Contender == contender {
			r.Cells[i].Samples = append(c.Samples, s)
			return
		}
	}
	r.Cells = append(r.Cells, Cell{workload, contender, []Sample{s}})
}

// Range returns the range of a metric over the rounds that have numbers.
func (c Cell) Range(metric Metric) Range {
	var values []float64
	for _, s := range c.Samples {
		if s.Failed == "" {
			values = append(values, metric.Of(s))
		}
	}
	return rangeOf(values)
}

// Measured reports whether any round has numbers.
func (c Cell) Measured() bool {
	for _, s := range c.Samples {
		if s.Failed == "" {
			return true
		}
	}
	return false
}

// Overlaps returns the number of overlaps of all rounds.
func (c Cell) Overlaps() (n int64) {
	for _, s := range c.Samples {
		n += s.Overlaps
	}
	return n
}

// Overlaps returns the number of overlaps of the whole run.
func (r *Result) Overlaps() (n int64) {
	for _, c := range r.Cells {
		n += c.Overlaps()
	}
	return n
}

// Save writes the result as JSON.
func (r *Result) Save(path string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// Load reads what Save wrote.
func Load(path string) (*Result, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the results: %w", err)
	}
	r := new(Result)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return r, nil
}
