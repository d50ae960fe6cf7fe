//go:build mutant_buffer_fence

package main

const fault = faultFence
