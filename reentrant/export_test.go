package reentrant

import "time"

// WithJitter makes a session's heartbeats come early by d, always, so that a scenario is the same every time.
func WithJitter(d time.Duration) Option {
	return func(c *config) { c.jitter = func(most time.Duration) time.Duration { return min(d, most) } }
}
