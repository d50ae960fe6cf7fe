//go:build !mutants

package localqueue

const fault = ""
