//go:build !invariants && !race

package exclusive

// invariants says that each change of a hold's phase is checked.
const invariants = false
