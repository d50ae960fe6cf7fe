package result

// A Metric is a column: how a sample has it, and how people are shown it.
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
	CPU            = Metric{"redis_cpu_us_per_section", "Redis µs", func(s Sample) float64 { return s.CPU }}
	Bytes          = Metric{"bytes_per_section", "bytes", func(s Sample) float64 { return s.Bytes }}
	WaitP50        = Metric{"wait_p50_ms", "p50 ms", func(s Sample) float64 { return s.WaitP50 }}
	WaitP99        = Metric{"wait_p99_ms", "p99 ms", func(s Sample) float64 { return s.WaitP99 }}
	WaitMax        = Metric{"wait_max_ms", "max ms", func(s Sample) float64 { return s.WaitMax }}
	JainGoroutines = Metric{"jain_goroutines", "Jain gor.", func(s Sample) float64 { return s.JainGoroutines }}
	JainProcesses  = Metric{"jain_processes", "Jain proc.", func(s Sample) float64 { return s.JainProcesses }}
	Allocs         = Metric{"allocations_per_section", "allocs", func(s Sample) float64 { return s.Allocs }}

	Metrics = []Metric{PerSecond, Commands, Inner, CPU, Bytes, WaitP50, WaitP99, WaitMax, JainGoroutines, JainProcesses, Allocs}
)
