// Package core has what every part of a session uses: the session's identity, clocks, counters, workers, log and observer, the
// owners, the errors, and the one loop that sends a command again.
//
// Package reentrant exports and documents the part of this package that users see.
package core

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/background"
	"github.com/relock-go/relock/reentrant/internal/deadline"
	"github.com/relock-go/relock/reentrant/internal/lease"
	"github.com/relock-go/relock/reentrant/internal/outage"
)

// A Session is what the parts of a session share.
type Session struct {
	ID     string // its name, a dot, and 16 random characters
	Config Config
	Conn   backend.Conn // written before any other goroutine has the session
	Opened time.Time

	Reporting bool // the observer or the log takes every event
	Warns     bool // there is an observer or a log
	verbose   bool // the log takes every event

	Epochs    atomic.Uint64 // the latest epoch used; one counter for all locks
	SeenToken atomic.Uint64 // the highest token that an owner of this session got
	Closing   chan struct{} // closed when Close begins
	Abandoned atomic.Bool   // the session has given up its holds: no owner becomes a holder any more

	Debts     lease.LostHolds[Debt]
	Cleaner   background.Workers
	Releases  background.Workers // sends releases that Redis has not confirmed
	Checks    background.Workers // asks Redis whether holds have moved, how long fixed leases last and who waits; writes notes
	Events    background.Feed    // to the observer
	LogWriter background.Log
	LeakLog   background.Log // of what the garbage collector finds; no call waits for it
	Deadlines deadline.Shared
	Outages   outage.Outages
	Counts    Counters
	longWaits longWaits

	slowObserver, brokenObserver sync.Once // the log has the warning that the observer is slow, or panicked
}

// Counters count what a session has done: see reentrant.Stats.
type Counters struct {
	Acquired, Reentries, Handoffs, Yields, Renewals, Lost, Commands atomic.Uint64
}

// A Debt identifies what an owner has lost and not given up since: holds of a lock or of one side of a read-write lock,
// or permits of a semaphore. Permits have no owner.
type Debt struct {
	mode  Mode
	name  string
	owner Owner
}

// DebtOf returns the debt of an owner that lost holds.
func DebtOf(mode Mode, name string, owner Owner) Debt { return Debt{mode, name, owner} }

// DebtOfPermits returns the debt of a session that lost permits.
func DebtOfPermits(name string) Debt { return DebtOf(ModePermits, name, Owner{}) }

// Cleaners is the size of each pool of workers of a session, not counting workers that wait for a server that does not
// reply.
const Cleaners = 4

// NewSession returns a session that has no connection yet.
func NewSession(cfg Config) *Session {
	workers := func() background.Workers { return background.Workers{Size: Cleaners, Stall: cfg.Stall()} }
	id := newSessionID(cfg.Name)
	newLog := func() background.Log { return background.NewLog(cfg.Logger, slog.String("session", id)) }
	s := &Session{
		ID: id, Config: cfg, Opened: time.Now(), Closing: make(chan struct{}),
		Cleaner: workers(), Releases: workers(), Checks: workers(), Events: background.NewFeed(maxEvents),
		LogWriter: newLog(), LeakLog: newLog(),
	}
	s.verbose = s.LogWriter.Enabled(slog.LevelDebug)
	s.Reporting = cfg.Observer != nil || s.verbose
	s.Warns = cfg.Observer != nil || cfg.Logger.Handler() != slog.DiscardHandler
	s.Outages.Log, s.Outages.Quiet = s.Log, max(2*cfg.Lease, 2*cfg.Heartbeat+2*cfg.CommandTimeout)
	return s
}

// Common reports whether a hold of the owner can belong to the session in Redis, as it does with a cohort, or while the session
// keeps the lock for itself. A hold with terms of its own (ownTerms), such as a fixed lease, a hold of a portable owner and the
// number of a slot cannot.
func (s *Session) Common(o Owner, ownTerms bool) bool {
	return (s.Config.Cohort || s.Config.Linger > 0) && !ownTerms && !o.portable && !o.slot
}

// TakesWarnings reports whether the observer or the log takes warnings. A log handler may be slow to say so.
func (s *Session) TakesWarnings() bool {
	return s.Config.Observer != nil || s.LogWriter.Enabled(slog.LevelWarn)
}

// newSessionID returns the id of a session, which no other has: its name, then 80 random bits. Other sessions see the name
// wherever they see the id, so the name costs no key and no command.
func newSessionID(name string) string {
	return name + "." + strings.ToLower(rand.Text()[:16])
}

// NewID returns a random UUID (version 4).
func NewID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Age returns how long ago the session was opened. It costs half as much as time.Now.
func (s *Session) Age() time.Duration { return time.Since(s.Opened) }

// Ahead returns how far the wall clock has got ahead of the monotonic one since the session was opened.
func (s *Session) Ahead() time.Duration { return s.Config.Ahead(s.Opened) }

// SawToken raises SeenToken to t, if that is higher.
func (s *Session) SawToken(t backend.Token) {
	for {
		old := s.SeenToken.Load()
		if uint64(t) <= old || s.SeenToken.CompareAndSwap(old, uint64(t)) {
			return
		}
	}
}

// EpochAbove returns a new epoch, higher than least.
func (s *Session) EpochAbove(least uint64) uint64 {
	for {
		e := s.Epochs.Add(1)
		if e > least {
			return e
		}
		s.Epochs.CompareAndSwap(e, least)
	}
}

// IsClosing reports whether Close has begun.
func (s *Session) IsClosing() bool {
	select {
	case <-s.Closing:
		return true
	default:
		return false
	}
}

// Now returns the time for durations in reports; zero if the session reports no events.
func (s *Session) Now() time.Time {
	if !s.Reporting {
		return time.Time{}
	}
	return time.Now()
}
