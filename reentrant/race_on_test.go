//go:build race

package reentrant_test

// raceEnabled: memory use differs from that of plain builds, and everything takes ten times as long.
const raceEnabled = true
