//go:build mutants

package redisbackend

import "github.com/relock-go/relock/internal/mutant"

var quorumFault = mutant.Of("quorum")
