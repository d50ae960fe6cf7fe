// Package clock keeps what is known of how far the clock of a Redis is ahead of the local one. It is arithmetic over answered
// commands; no wall clock takes part.
package clock
