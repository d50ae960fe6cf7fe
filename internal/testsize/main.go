package testsize

import (
	"flag"
	"os"
	"runtime/debug"
	"strconv"
)

// Parallel lets n tests of a package run in parallel; -parallel on the command line takes precedence. It is for the
// TestMain of tests that mostly wait: for servers to start, leases to end or messages. By default only as many tests
// run as there are processors, which then stay idle. Under the race detector Parallel does nothing.
func Parallel(n int) {
	if underRace {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil { // m.Run parses the command line later
		panic(err)
	}
}

// CollectLess makes the garbage collector run less often, unless the environment sets GOGC. It is for a TestMain of
// tests that make much garbage in a small heap, as many short-lived servers and clients do.
func CollectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
