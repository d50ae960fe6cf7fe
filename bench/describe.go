package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/relock-go/relock/bench/internal/result"
)

// describe returns a result without cells: the contenders, their versions, the workloads and the machine.
func describe(opts options, redis string) *result.Result {
	r := &result.Result{
		Date:     time.Now().UTC().Truncate(time.Minute),
		Settings: result.Settings{Rounds: opts.rounds, Duration: opts.duration, Quick: opts.quick},
		Machine: result.Machine{
			CPU: cpu(), Cores: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Redis: redis,
		},
		Versions: versions(),
	}
	for _, c := range opts.contenders {
		r.Contenders = append(r.Contenders, result.Contender{Name: c.Name, About: c.About, Own: c.Own})
	}
	for _, w := range opts.workloads {
		r.Workloads = append(r.Workloads, result.Workload{
			Name: w.Name, About: w.About(), Kind: w.Kind, Processes: w.Processes, Goroutines: w.Goroutines,
		})
	}
	return r
}

// cpu returns the processor's name, if the system has it.
func cpu() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(text)) {
		if field, value, _ := strings.Cut(line, ":"); strings.TrimSpace(field) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// compared are the modules whose versions matter. rueidislock is a part of rueidis.
var compared = []string{
	"github.com/redis/rueidis", "github.com/go-redsync/redsync/v4", "github.com/bsm/redislock", "github.com/redis/go-redis/v9",
}

// versions returns the versions that this program was built with.
func versions() []result.Version {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	var found []result.Version
	for _, module := range compared {
		for _, dep := range info.Deps {
			if dep.Path == module {
				found = append(found, result.Version{Module: module, Version: dep.Version})
			}
		}
	}
	return found
}
