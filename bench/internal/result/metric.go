package result

import (
	"slices"

	"github.com/relock-go/relock/bench/internal/workload"
)

// A Metric is a column: its value in a sample, and its format.
type Metric struct {
	Name string // in CSV
	Head string // in tables
	Of   func(Sample) float64
}

// The metrics, in the order of the columns.
var (
	PerSecond      = Metric{"sections_per_second", "sections/s", func(s Sample) float64 { return s.PerSecond }}
	Commands       = Metric{"commands_per_section", "commands", func(s Sample) float64 { return s.Commands }}
	Inner          = Metric{"inner_commands_per_section", "inner", func(s Sample) float64 { return s.Inner }}
	Pushes         = Metric{"pushes_per_section", "pushes", func(s Sample) float64 { return s.Pushes }}
	CPU            = Metric{"redis_cpu_us_per_section", "Redis µs", func(s Sample) float64 { return s.CPU }}
	Bytes          = Metric{"bytes_per_section", "bytes", func(s Sample) float64 { return s.Bytes }}
	Keys           = Metric{"keys_left_per_section", "keys left", func(s Sample) float64 { return s.Keys }}
	Memory         = Metric{"bytes_left_per_section", "bytes left", func(s Sample) float64 { return s.Memory }}
	WaitP50        = Metric{"wait_p50_ms", "p50 ms", func(s Sample) float64 { return s.WaitP50 }}
	WaitP99        = Metric{"wait_p99_ms", "p99 ms", func(s Sample) float64 { return s.WaitP99 }}
	WaitMax        = Metric{"wait_max_ms", "max ms", func(s Sample) float64 { return s.WaitMax }}
	ReadP99        = Metric{"read_wait_p99_ms", "read p99", func(s Sample) float64 { return s.ReadP99 }}
	WriteP99       = Metric{"write_wait_p99_ms", "write p99", func(s Sample) float64 { return s.WriteP99 }}
	JainGoroutines = Metric{"jain_goroutines", "Jain gor.", func(s Sample) float64 { return s.JainGoroutines }}
	JainProcesses  = Metric{"jain_processes", "Jain proc.", func(s Sample) float64 { return s.JainProcesses }}
	Allocs         = Metric{"allocations_per_section", "allocs", func(s Sample) float64 { return s.Allocs }}

	// Metrics are the metrics of every workload.
	Metrics = []Metric{PerSecond, Commands, Pushes, Inner, CPU, Bytes, Keys, Memory, WaitP50, WaitP99, WaitMax, JainGoroutines, JainProcesses, Allocs}

	// sides are the metrics that only read-write locks have.
	sides = []Metric{ReadP99, WriteP99}
)

// Metrics are the columns of a workload's table.
func (w Workload) Metrics() []Metric {
	if w.Kind != workload.ReadWrite {
		return Metrics
	}
	return slices.Concat(Metrics, sides)
}
