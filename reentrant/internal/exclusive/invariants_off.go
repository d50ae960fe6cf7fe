//go:build !invariants && !race

package exclusive

// invariants says that a lock state without references is checked for being idle.
const invariants = false
