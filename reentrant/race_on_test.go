//go:build race

package reentrant_test

// raceEnabled: memory is not what it would be, and everything takes ten times as long.
const raceEnabled = true
