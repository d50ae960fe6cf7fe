// Package testsize sets the size of tests. By default tests are small, so that it is quick to run all of them. With
// RELOCK_FULL=1 they have their full size, as in the stages full-size, explore and mutants of .ci/run. With RELOCK_TOPOLOGIES=1
// the suites also run on more kinds of deployments.
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

// Of returns all if tests run at their full size, and few otherwise.
func Of(all, few int) int {
	if Full() {
		return all
	}
	return few
}

// FullOnly skips a test that is slow at any size, unless tests run at their full size.
func FullOnly(t testing.TB) {
	t.Helper()
	if !Full() {
		t.Skip("it takes long: RELOCK_FULL=1 runs it")
	}
}

// Patience returns how long a test waits for what must come. This time passes only when the test fails, and is long because the
// machine may be slow. With a seeded fault (see mutants), with which the test is expected to fail, it is at most 15 s.
func Patience(long time.Duration) time.Duration {
	if os.Getenv("RELOCK_MUTANT") != "" {
		return min(long, 15*time.Second)
	}
	return long
}

// OfATopology skips a suite that also runs on a single server, unless RELOCK_TOPOLOGIES=1 asks for the suite on every topology.
func OfATopology(t testing.TB) {
	t.Helper()
	if every, _ := strconv.ParseBool(os.Getenv("RELOCK_TOPOLOGIES")); !every {
		t.Skip("the suite runs on another topology: RELOCK_TOPOLOGIES=1 runs it on this one too")
	}
}
