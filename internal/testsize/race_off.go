//go:build !race

package testsize

const underRace = false
