// Package testsize sets the size of tests: small by default, so that running all of them is quick, and full with
// RELOCK_FULL=1, as in the stages full-size, explore and mutants of .ci/run. RELOCK_TOPOLOGIES=1 adds the suites on more
// kinds of deployments.
package testsize

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// Full reports whether tests run at their full size.
func Full() bool {
	full, _ := strconv.ParseBool(os.Getenv("RELOCK_FULL"))
	return full
}

// Of returns all at full size, and few otherwise.
func Of(all, few int) int {
	if Full() {
		return all
	}
	return few
}

// FullOnly skips a test that no smaller size makes quick, unless tests run at their full size.
func FullOnly(t testing.TB) {
	t.Helper()
	if !Full() {
		t.Skip("it takes long: RELOCK_FULL=1 runs it")
	}
}

// Patience returns how long a test waits for what must come. It only bounds the time of a failure, and is long because
// the machine may be slow. With a seeded fault (see mutants), which is expected to fail, it is 15 s at most.
func Patience(long time.Duration) time.Duration {
	if os.Getenv("RELOCK_MUTANT") != "" {
		return min(long, 15*time.Second)
	}
	return long
}

// OfATopology skips a suite that also runs on a single server, unless RELOCK_TOPOLOGIES=1 asks for it on every topology.
func OfATopology(t testing.TB) {
	t.Helper()
	if every, _ := strconv.ParseBool(os.Getenv("RELOCK_TOPOLOGIES")); !every {
		t.Skip("the suite runs on another topology: RELOCK_TOPOLOGIES=1 runs it on this one too")
	}
}
