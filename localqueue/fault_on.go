//go:build mutants

package localqueue

import "github.com/relock-go/relock/internal/mutant"

var fault = mutant.Of("localqueue")
