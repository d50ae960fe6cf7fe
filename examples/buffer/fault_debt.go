//go:build mutant_buffer_debt

package main

const fault = faultDebt
