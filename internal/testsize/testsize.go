// Package testsize makes tests as large as there is time for: small for a developer who runs all of them, and full with
// RELOCK_FULL=1, which .ci/run sets.
package testsize

import (
	"os"
	"strconv"
)

// Full reports whether tests run at their full size.
func Full() bool {
	full, _ := strconv.ParseBool(os.Getenv("RELOCK_FULL"))
	return full
}

// Of returns how many a test has: all of them at full size, and few otherwise.
func Of(all, few int) int {
	if Full() {
		return all
	}
	return few
}
