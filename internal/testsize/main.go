package testsize

import (
	"flag"
	"os"
	"runtime/debug"
	"strconv"
)

// Parallel lets n tests of a package run in parallel; -parallel on the command line comes first. It is for a TestMain of
// tests that mostly wait: for servers to start, for leases to end, for messages. By default only as many run as there are
// processors, and leave them idle. Under the race detector it does nothing.
func Parallel(n int) {
	if underRace {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil { // m.Run parses the command line later
		panic(err)
	}
}

// CollectLess has garbage collected less often, unless the environment has GOGC. It is for a TestMain of tests that make
// much garbage in a small heap, as many short-lived servers and clients do.
func CollectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
