//go:build mutants

package reentrant

import "github.com/relock-go/relock/internal/mutant"

var fault = mutant.Of("reentrant")
