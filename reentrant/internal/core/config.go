package core

import (
	"log/slog"
	"time"

	"github.com/relock-go/relock/backend"
)

// A Config has the options of a session, with their defaults filled in, and values that follow from the options.
type Config struct {
	Name           string // the name of the session, as backend.PlainName returns it
	Lease          time.Duration
	Heartbeat      time.Duration
	Patience       time.Duration // how long a waiting session may be silent before it loses its place
	GrantTTL       time.Duration // the lease of a lock that was pushed to a waiter, until the first renewal
	HandoffTime    time.Duration
	Handoffs       int           // how many hand-overs a turn has
	CommandTimeout time.Duration // how long one command may take before it is given up and sent again
	ReleaseTime    time.Duration // how long a caller waits for Redis to confirm a release: a failover or a moving slot is often over by then
	Spin           int
	Explicit       bool
	Cohort         bool
	AsyncUnlock    bool
	Deadlocks      bool
	LeavesPortable bool
	Profiled       bool
	Linger         time.Duration
	Logger         *slog.Logger
	Observer       Observer
	AfterClose     []func()                               // called in order when the session has ended
	Jitter         func(most time.Duration) time.Duration // rand.N; fixed in scenario tests
	Ahead          func(since time.Time) time.Duration    // lease.Ahead; tests replace it, to simulate a suspended machine
}

// aloneBlock is how many tokens a session takes for a lock that it keeps for itself: as many as cohorts do by default.
const aloneBlock = 513

// Block returns how many tokens a session takes together for a hold that belongs to the session in Redis. A cohort takes one
// for the first owner, and one for each hand-over.
func (c *Config) Block() int {
	if !c.Cohort {
		return aloneBlock
	}
	return c.Handoffs + 1
}

// Stall returns how long a background job may take before its goroutine counts as stalled ([background.Workers]). It is so
// short that a job behind ten thousand jobs that hang starts within a heartbeat.
func (c Config) Stall() time.Duration { return c.Heartbeat / 16 }

// CohortOwner returns the owner of the session's holds as Redis has it.
func (c *Config) CohortOwner() string {
	if c.Linger > 0 {
		return backend.LingeringOwner
	}
	return backend.CohortOwner
}

// GenerationTime is for how long a turn also serves owners that came after its beginning.
const GenerationTime = 5 * time.Millisecond

// ReleaseTries bounds how often an unimportant command is sent.
const ReleaseTries = 3
