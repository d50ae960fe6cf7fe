//go:build invariants || race

package exclusive

// invariants says whether putState checks that a lock state without references is idle.
const invariants = true
