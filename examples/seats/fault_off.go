//go:build !mutants

package main

const fault = ""
