//go:build !mutants

package reentrant

const fault = ""
