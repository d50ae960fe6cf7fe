// Package clock estimates how far the clock of a Redis is ahead of the local monotonic one. It is arithmetic over the
// times of commands and their replies; no wall clock of this machine takes part.
package clock
