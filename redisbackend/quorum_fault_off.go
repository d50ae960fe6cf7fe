//go:build !mutants

package redisbackend

const quorumFault = ""
