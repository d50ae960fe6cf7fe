package testsize

import (
	"flag"
	"os"
	"runtime/debug"
	"strconv"
)

// Parallel lets n tests of a package run in parallel, unless the command line has -parallel. It is for the TestMain of tests
// that mostly wait: for servers to start, for leases to end or for messages. By default only as many tests run as there are
// processors, and the processors are then idle. Under the race detector Parallel does nothing.
func Parallel(n int) {
	if underRace {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil { // m.Run parses the command line later
		panic(err)
	}
}

// CollectLess makes the garbage collector run less often, unless the environment sets GOGC. It is for the TestMain of tests
// that make much garbage in a small heap. Many short-lived servers and clients do that.
func CollectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
