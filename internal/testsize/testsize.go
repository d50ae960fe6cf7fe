// Package testsize sets the size of tests: small by default, so that running all of them is quick, and full with
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

// Of returns all at full size, and few otherwise.
func Of(all, few int) int {
	if Full() {
		return all
	}
	return few
}
