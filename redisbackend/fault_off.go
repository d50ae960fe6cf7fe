//go:build !mutants

package redisbackend

const fault = ""
