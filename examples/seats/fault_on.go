//go:build mutants

package main

import "github.com/relock-go/relock/internal/mutant"

var fault = mutant.Of("seats")
