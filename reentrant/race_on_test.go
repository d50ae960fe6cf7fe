//go:build race

package reentrant_test

// raceEnabled is true in a build with the race detector, which uses more memory than a plain build and is ten times as slow.
const raceEnabled = true
