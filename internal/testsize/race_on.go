//go:build race

package testsize

// underRace is true: under the race detector everything takes ten times as much processor time, so tests no longer mostly wait.
const underRace = true
