//go:build !(mutant_relock_late || mutant_relock_alone || mutant_relock_leftover || mutant_relock_short)

package main

const fault = ""
