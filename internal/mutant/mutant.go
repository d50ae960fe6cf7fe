// Package mutant has the seeded faults by which tests show that they can fail.
//
// A package has a constant fault = "" in its normal build, so that the faults cost nothing there, and are not in it. With
// the build tag mutants it is a variable that this package sets; the environment says which fault a process has:
//
//	RELOCK_MUTANT=reentrant/credulous go test -tags mutants ./reentrant -run TestLoss
//
// Files named MUTANTS list the faults, and the tests that must notice; .ci/mutants tries them all.
package mutant

import (
	"os"
	"strings"
)

// Of is the fault that this process has in a package, "" for none.
func Of(pkg string) string {
	name, ok := strings.CutPrefix(os.Getenv("RELOCK_MUTANT"), pkg+"/")
	if !ok {
		return ""
	}
	return name
}
