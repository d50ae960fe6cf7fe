package reentrant

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/background"
	"github.com/relock-go/relock/reentrant/internal/deadline"
	"github.com/relock-go/relock/reentrant/internal/deadlock"
	"github.com/relock-go/relock/reentrant/internal/lease"
	"github.com/relock-go/relock/reentrant/internal/outage"
	"github.com/relock-go/relock/reentrant/internal/share"
)

// connectTimeout bounds how long NewSession waits for the backend to answer.
const connectTimeout = 10 * time.Second

// A Session is one process's standing with a backend: its identity, its watchdog, its wake-up channel. Most
// programs have one. It is safe for concurrent use. Close it: one that is forgotten goes on renewing what it holds, and
// is reported in the log when it is found out.
type Session struct {
	*session // apart from the handle, which its goroutines do not hold, so that a forgotten one can be noticed
}

// String names the session by its id.
func (s *Session) String() string { return fmt.Sprintf("reentrant.Session(%s)", s.id) }

// A session is a Session without its handle.
//
// Lock order: deadlock.Detector.mu, session.mu, lockState.mu, then the mutex inside localqueue.Queue. Shared holds have locks of their own
// (share.Room), taken under session.mu, monitor.mu or none of these. The mutexes of lostHolds, lossNotifier,
// workers, waiterHeartbeat, outages, monitors and deadline.Shared are leaves. Nothing slow is done under any of them.
type session struct {
	id     string
	config config
	conn   backend.Conn
	opened time.Time

	reporting bool // somebody wants to know of everything that happens: the observer, or the log
	verbose   bool // the log does

	epochs    atomic.Uint64 // the last one used; one counter for all locks
	seenToken atomic.Uint64 // the highest token got
	closing   chan struct{} // closed when Close begins

	hurry          chan struct{} // s.mu: closed when the context of a Close has ended
	abandoned      atomic.Bool   // end has given up waiting for holders: nobody becomes one any more
	abandonedHolds atomic.Int64  // how many of their holds were given back
	leftHolds      atomic.Int64  // how many were left in Redis, to be resumed
	quiet          chan struct{} // closed by end when nothing is sent any more
	ended          chan struct{} // closed by end, at its end
	endErr         error         // the connection's; written by end before ended is closed

	mu      sync.Mutex
	states  map[string]*lockState // refs > 0
	spares  []*lockState          // some that were used before, with their nodes, timers and channels
	closed  bool                  // no new lock states
	drained chan struct{}         // closed when closed and states is empty

	lostHolds lease.LostHolds[Owner]
	cleaner   background.Workers
	releases  background.Workers // sends releases that Redis has not confirmed
	checks    background.Workers // asks Redis for holds that may have moved, and for what is left of fixed leases, and to report waiters
	events    background.Feed    // to the observer
	logWriter background.Log
	leakLog   background.Log // of what the collector finds; no call waits for it
	watchdog  *watchdog
	heartbeat *waiterHeartbeat
	detector  *deadlock.Detector[Owner] // nil unless deadlocks are to be found
	deadlines deadline.Shared
	outages   outage.Outages
	shared    *share.Room // read-write locks and semaphores
	monitors  monitors    // conditions of read-write locks
	stats     counters

	slowObserver, brokenObserver sync.Once // it was reported that the observer is slow, or panicked
}

// cleaners is how many goroutines of a session clean up after callers who have left, besides those that wait for a node
// which does not answer.
const cleaners = 4

// maxSpare bounds the lock states kept for reuse, so that locking a free lock again and again allocates nothing.
const maxSpare = 64

// NewSession opens a session with a backend. The backend is asked at once whether it can be reached and allows
// what is needed: its error, such as a wrong password or missing right, is returned in its own words ([Refused]), and is
// [ErrUnavailable] if the backend could not be reached. It
// fails too if an option is out of bounds or contradicts another, and if goroutine ids cannot be trusted with this
// Go release (unless [WithExplicitOwners]).
func NewSession(b backend.Backend, opts ...Option) (*Session, error) {
	if b == nil {
		return nil, errors.New("reentrant: NewSession: nil backend")
	}
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	if !cfg.explicit {
		if err := checkGoroutineIDs(); err != nil {
			return nil, err
		}
	}
	s := &session{
		id: newID(), config: cfg, opened: time.Now(), states: make(map[string]*lockState),
		closing: make(chan struct{}), drained: make(chan struct{}),
		hurry: make(chan struct{}), quiet: make(chan struct{}), ended: make(chan struct{}),
		cleaner: background.Workers{Size: cleaners, Stall: cfg.stall()}, releases: background.Workers{Size: cleaners, Stall: cfg.stall()},
		checks: background.Workers{Size: cleaners, Stall: cfg.stall()}, events: background.NewFeed(maxEvents),
		logWriter: background.NewLog(cfg.logger), leakLog: background.NewLog(cfg.logger),
	}
	s.verbose = cfg.logger.Enabled(context.Background(), slog.LevelDebug)
	s.reporting = cfg.observer != nil || s.verbose
	s.outages.Log, s.outages.Quiet = s.log, max(2*cfg.lease, 2*cfg.heartbeat+2*cfg.commandTimeout())
	s.watchdog, s.heartbeat = newWatchdog(s), newWaiterHeartbeat(s)
	s.shared = s.newSharedRoom()
	ctx, cancel := context.WithTimeoutCause(context.Background(), connectTimeout,
		fmt.Errorf("no answer within %v", connectTimeout))
	defer cancel()
	if s.conn, err = b.Connect(ctx, s.id, sink{s}); err != nil {
		return nil, fmt.Errorf("reentrant: opening a session: %w", wrapUnavailable(context.Background(), err))
	}
	s.watchdog.start()
	s.heartbeat.start()
	if cfg.deadlocks {
		s.detector = newDetector(s)
	}
	handle := &Session{s}
	runtime.AddCleanup(handle, (*session).reportLeak, s)
	return handle, nil
}

// newID is a random UUID (version 4).
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// clock is time.Now without the wall clock, in half the time.
func (s *session) clock() time.Time { return s.opened.Add(time.Since(s.opened)) }

// ahead is how far the session's wall clock is ahead.
func (s *session) ahead() time.Duration { return s.config.ahead(s.opened) }

// ID is the session's random UUID: what stands before the owner in Redis.
func (s *session) ID() string { return s.id }

// getState takes a reference to the lock state of a lock, making one if there is none.
func (s *session) getState(l *Lock) (*lockState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	e := s.states[l.name]
	if e == nil {
		e = s.newStateLocked(l)
		s.states[l.name] = e
	}
	e.refs++
	return e, nil
}

// findState takes a reference to the lock state of a lock if there is one.
func (s *session) findState(name string) *lockState {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.states[name]
	if e != nil {
		e.refs++
	}
	return e
}

// newStateLocked takes a spare lock state or makes one. s.mu is held.
func (s *session) newStateLocked(l *Lock) *lockState {
	var e *lockState
	if i := s.spareLocked(l.name); i >= 0 {
		e = s.spares[i]
		s.spares = slices.Delete(s.spares, i, i+1)
	} else {
		e = &lockState{s: s, wake: make(chan struct{}, 1)}
	}
	if e.name != l.name {
		e.name, e.prior = l.name, backend.Prior{}
	}
	e.remote = l.remote
	return e
}

// spareLocked is the index of the spare state that was used last for a lock, and knows how that was left. If there is none,
// it is that of the one that has been spare for longest, and -1 while there is room for more. s.mu is held.
func (s *session) spareLocked(name string) int {
	for i := len(s.spares) - 1; i >= 0; i-- {
		if s.spares[i].name == name {
			return i
		}
	}
	if len(s.spares) < maxSpare {
		return -1
	}
	return 0
}

// putState drops n references. A lock state that is not needed leaves nothing behind.
func (s *session) putState(e *lockState, n int) {
	s.mu.Lock()
	s.putStateLocked(e, n)
	s.mu.Unlock()
}

func (s *session) putStateLocked(e *lockState, n int) {
	if e.refs -= n; e.refs > 0 {
		return
	}
	if e.refs < 0 || invariants && !e.queue.Idle() {
		panic("reentrant: bug: an entry was left that is still in use")
	}
	e.checkVacant()
	delete(s.states, e.name)
	if s.closed && len(s.states) == 0 {
		close(s.drained)
	}
	if len(s.spares) < maxSpare {
		e.remote, e.mayOwe, e.unknownUntil, e.lastUsed = nil, false, 0, 0
		s.spares = append(s.spares, e)
	}
}

// checkVacant makes sure that the next lock which is given the lock state does not find a hold of the last one in it. The
// last reference is gone, and without one only who has session.mu writes the phase, so e.mu is not needed.
func (e *lockState) checkVacant() {
	if e.hold.phase != phaseVacant {
		panic("reentrant: bug: an entry was left with a hold")
	}
}

// nextEpoch numbers an attempt.
func (s *session) nextEpoch() uint64 { return s.epochs.Add(1) }

// noteToken remembers the highest token.
func (s *session) noteToken(t Token) {
	for {
		old := s.seenToken.Load()
		if uint64(t) <= old || s.seenToken.CompareAndSwap(old, uint64(t)) {
			return
		}
	}
}

// sink is the session as its backend sees it.
type sink struct{ s *session }

// Granted wakes the attempt that the grant is for. A grant that nobody waits for is given back: its head was
// cancelled, and what should have withdrawn it did not arrive.
func (k sink) Granted(g backend.Grant) {
	s := k.s
	e := s.findState(g.Name)
	if e != nil {
		wanted := e.granted(g)
		s.putState(e, 1)
		if wanted {
			return
		}
	}
	if m := s.monitors.find(g.Name); m != nil && m.granted(g.Epoch) {
		return
	}
	remote, err := s.conn.Bind(g.Name)
	if err != nil {
		return
	}
	s.cleaner.Do(func() { s.releaseOrphan(remote, g.Name, g.Epoch) })
}

// Signalled wakes the owner of a ticket.
func (k sink) Signalled(name string, ticket uint64, placed bool) {
	if e := k.s.findState(name); e != nil {
		e.signalled(ticket, placed)
		k.s.putState(e, 1)
	} else if m := k.s.monitors.find(name); m != nil {
		m.signalled(ticket, placed)
	}
}

// Taken ends a hold that another session has taken up.
func (k sink) Taken(name string, epoch uint64) {
	if e := k.s.findState(name); e != nil {
		e.markTaken(epoch)
		k.s.putState(e, 1)
	}
}

// Wanted tells the holder, if it wants to know, and gives up a hold that lingers, or keeps it from doing so.
func (k sink) Wanted(name string, epoch uint64) {
	e := k.s.findState(name)
	switch {
	case e == nil:
	case e.noteWanted(epoch):
		k.s.cleaner.Do(e.stopLingering)
	default:
		k.s.putState(e, 1)
	}
}

// Reconnected sends every waiting head back to ask, and has Redis asked for signals and for holds that may have moved: what
// was pushed meanwhile is lost. There may be another server now, with another clock, so all leases are renewed, and fixed
// ones asked for.
func (k sink) Reconnected() {
	k.s.shared.Reconnected()
	k.s.heartbeat.beatNow()
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	k.s.watchdog.refreshLocked()
	for _, e := range k.s.states {
		e.nudge()
		e.recheck()
		e.rewatch()
		e.rewriteNote()
	}
}

// closeGrace is how long a Close whose context has ended goes on waiting for commands that are under way.
const closeGrace = time.Second

// Close ends the session. New calls and those that wait for a lock fail with ErrClosed at once; holders go on,
// and take what they hold once more if they like, until they have all unlocked or ctx ends, whichever is first. In the second case what is still held is given up
// (its owners are told by Lost, and their Unlock returns ErrLost), and ctx's error is returned. What [WithPortableHoldsLeft]
// leaves to be resumed ends here in the same way, and is no error.
//
// Close returns a second after the end of ctx at the latest. If the backend has not answered by then, the error is
// ErrUnavailable too: what the session still has is given back in the background, or expires.
//
// Any number of Closes may wait, and the first context to end gives up what is held for all of them. Every Close
// but the first returns ErrClosed when the session has ended, and so does one whose holds another Close gave up.
func (s *session) Close(ctx context.Context) error {
	if ctx == nil {
		return errors.New("reentrant: close: nil context")
	}
	var errs []error
	if first, idle := s.startClosing(); first {
		idle = s.shared.Close() && idle
		go s.end(ctx.Err() != nil && !idle)
	} else {
		errs = append(errs, ErrClosed)
	}
	select {
	case <-s.ended:
	case <-ctx.Done():
		s.giveUp()
		errs = append(errs, s.awaitEnd(ctx))
	}
	if s.abandoned.Load() && (s.abandonedHolds.Load() > 0 || s.leftHolds.Load() == 0) {
		errs = append(errs, s.givenUp(ctx))
	}
	select {
	case <-s.ended:
		errs = append(errs, s.endErr)
	default:
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("reentrant: close: %w", err)
	}
	return nil
}

// giveUp has end take from the holders what they still have.
func (s *session) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.hurry:
	default:
		close(s.hurry)
	}
}

// awaitEnd waits for the end of the session after the end of ctx.
func (s *session) awaitEnd(ctx context.Context) error {
	grace := closeGrace
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-s.ended:
		return nil
	case <-timer.C:
	}
	select {
	case <-s.quiet: // it waits for the log, or for the channel
		return fmt.Errorf("the session ends in the background: %w", ctx.Err())
	default:
		return fmt.Errorf("commands under way have no answer: %w: %w", ErrUnavailable, ctx.Err())
	}
}

// givenUp is the error of a Close after which some owners had no hold any more.
func (s *session) givenUp(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		err = fmt.Errorf("the context of another Close ended: %w", ErrClosed)
	}
	return fmt.Errorf("%s given up: %w", counted(int(s.abandonedHolds.Load()), "hold"), err)
}

// end waits for the holders, unless it is hurried, and ends the session. Close runs it once, in the background.
func (s *session) end(hurried bool) {
	defer close(s.ended)
	if hurried || !s.awaitHolders() {
		s.watchdog.abandonAll()
		s.abandonedHolds.Add(int64(s.shared.Abandon()))
		s.awaitDrained()
	}
	s.shared.Stop()
	s.watchdog.stop()
	s.heartbeat.stop()
	if s.detector != nil {
		s.detector.Stop()
	}
	s.cleaner.Wait()
	s.releases.Wait()
	s.checks.Wait()
	close(s.quiet)
	s.outages.Close()
	s.events.Finish()
	s.logWriter.Finish()
	s.deadlines.Close()
	s.endErr = wrapUnavailable(context.Background(), s.conn.Close())
}

// awaitHolders reports whether all have left of their own accord.
func (s *session) awaitHolders() bool { return s.awaitAll(s.hurry) }

// awaitDrained waits until everybody has left, which takes no longer than the commands under way: what they have in
// Redis is then given back while there is still a connection.
func (s *session) awaitDrained() {
	limit := make(chan struct{})
	timer := time.AfterFunc(s.config.releaseTime(), func() { close(limit) })
	defer timer.Stop()
	s.awaitAll(limit)
}

// awaitAll waits until nothing of any lock is left, and reports whether that was so before limit was closed.
func (s *session) awaitAll(limit <-chan struct{}) bool {
	for _, drain := range []func() <-chan struct{}{func() <-chan struct{} { return s.drained }, s.shared.Drained, s.monitors.drain} {
		drained := drain() // the monitors last: a writer may still use one
		select {
		case <-drained:
			continue
		default:
		}
		select {
		case <-drained:
		case <-limit:
			return false
		}
	}
	return true
}

// startClosing turns away all but holders. It reports whether it is the first to do so, and whether no lock was in use then.
func (s *session) startClosing() (first, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, false
	}
	s.closed = true
	close(s.closing)
	if len(s.states) == 0 {
		close(s.drained)
	}
	for _, e := range s.states {
		e.queue.Shut()
		if e.startDismissal() {
			e.refs++
			s.cleaner.Do(e.stopLingering)
		}
	}
	return true, len(s.states) == 0
}
