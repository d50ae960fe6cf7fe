//go:build !invariants && !race

package reentrant

// invariants says that each change of a hold's phase is checked.
const invariants = false
