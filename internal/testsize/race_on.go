//go:build race

package testsize

// underRace is true: everything takes ten times the processor, so that tests no longer mostly wait.
const underRace = true
