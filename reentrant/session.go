package reentrant

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/condition"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/deadlock"
	"github.com/relock-go/relock/reentrant/internal/exclusive"
	"github.com/relock-go/relock/reentrant/internal/goroutine"
	"github.com/relock-go/relock/reentrant/internal/keeper"
	"github.com/relock-go/relock/reentrant/internal/share"
	"github.com/relock-go/relock/reentrant/internal/tier"
)

// connectTimeout bounds how long NewSession waits for the backend's reply.
const connectTimeout = 10 * time.Second

// A Session connects a process to a backend. It has an identity, renews the leases of its locks, and receives the
// messages that wake its waiters. Most programs have one. It is safe for concurrent use. It must be closed: a session
// that is dropped without Close goes on renewing what it holds, and the log reports it when its handle is
// garbage-collected.
type Session struct {
	*session // its goroutines refer to this and not to the handle, so that a dropped handle is collected
}

// String returns the session's id, as reentrant.Session(id).
func (s *Session) String() string { return fmt.Sprintf("reentrant.Session(%s)", s.core.ID) }

// A session is a Session without its handle.
//
// Lock order: deadlock.Detector.mu, then the mutexes of exclusive.Room. Shared holds have their own mutexes (share.Room),
// which are taken under condition.Monitor.mu or under no other mutex. The mutexes of lost holds, loss notifiers, workers,
// condition.Room and its heartbeat, outages, long waits and unreadable names are leaves. Nothing slow is done under any of
// them.
type session struct {
	core *core.Session // what the other parts of the session use too

	giveUpOnce     sync.Once
	hurry          chan struct{} // closed when the context of a Close has ended
	abandonedNames atomic.Int64  // how many shared names had units in use that end gave up
	quiet          chan struct{} // closed by end when nothing is sent any more
	ended          chan struct{} // closed by end, at its end
	endErr         error         // the error of closing the connection; written by end before ended is closed

	detector   *deadlock.Detector[Owner] // nil unless deadlocks are to be found
	conditions *condition.Room           // the waiters of all conditions, and the conditions of read-write locks
	locks      *exclusive.Room           // Locks
	shared     *share.Room               // read-write locks and semaphores
	keeper     *keeper.Keeper            // of the leases of locks and shared

	unreadable unreadableNames
}

// NewSession opens a session with a backend. It checks at once that the backend can be reached, and permits the
// commands that the session needs. If the backend refuses, NewSession returns its error, such as a wrong password or a
// missing right ([Refused]). If the backend could not be reached within ten seconds, the error is [ErrUnavailable].
// NewSession also returns an error if an option is nil, out of bounds or contradicts another, or if goroutine ids cannot be
// trusted with this Go release (unless [WithExplicitOwners] is given).
func NewSession(b backend.Backend, opts ...Option) (*Session, error) {
	if b == nil {
		return nil, errors.New("reentrant: NewSession: nil backend")
	}
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	if !cfg.Explicit {
		if err := goroutine.CheckIDs(); err != nil {
			return nil, err
		}
	}
	s := &session{
		core: core.NewSession(cfg), hurry: make(chan struct{}), quiet: make(chan struct{}), ended: make(chan struct{}),
	}
	s.conditions = condition.NewRoom(s.core)
	s.keeper = keeper.New(s.core)
	s.locks = exclusive.NewRoom(s.core, s.keeper, s.conditions)
	s.shared = share.NewRoom(s.core, s.keeper, min(core.GenerationTime, cfg.Lease/4))
	ctx, cancel := context.WithTimeoutCause(context.Background(), connectTimeout,
		fmt.Errorf("no reply within %v", connectTimeout))
	defer cancel()
	if s.core.Conn, err = b.Connect(ctx, s.core.ID, sink{s}); err != nil {
		return nil, fmt.Errorf("reentrant: opening a session: %w", core.WrapUnavailable(context.Background(), err))
	}
	s.keeper.Start(s.locks, s.shared)
	s.conditions.Start()
	if adviser, ok := s.core.Conn.(backend.Adviser); ok && s.core.LogWriter.Enabled(slog.LevelWarn) {
		s.core.Cleaner.Do(func() { s.logAdvice(adviser) })
	}
	if cfg.Deadlocks {
		s.detector = newDetector(s)
	}
	handle := &Session{s}
	runtime.AddCleanup(handle, (*session).reportLeak, s)
	return handle, nil
}

// logAdvice logs what endangers locks at the server.
func (s *session) logAdvice(adviser backend.Adviser) {
	ctx, cancel := context.WithTimeout(context.Background(), s.core.Config.CommandTimeout)
	defer cancel()
	for _, text := range adviser.Advice(ctx) {
		s.core.Log(slog.LevelWarn, text)
	}
}

// ID returns the session's id: its name ([WithName]), a dot, and 16 random characters. In Redis it precedes the owner.
func (s *session) ID() string { return s.core.ID }

// A sink receives what the backend pushes to a session.
type sink struct{ s *session }

// Any client that may publish to the session's channel can forge a message. So a message ends no hold and lengthens none.
// What a message about an epoch makes a session do must be right for every epoch that the session has used. A message about
// an epoch that the session has not used is forged, and is ignored, since it could concern a later hold.

// used reports whether the session has used an epoch.
func (s sink) used(epoch uint64) bool { return epoch <= s.s.core.Epochs.Load() }

// Granted wakes the attempt that the grant is for. A grant that no attempt waits for is released: its attempt was cancelled,
// and the release of its place did not reach the server.
func (s sink) Granted(g backend.Grant) {
	session := s.s
	if !s.used(g.Epoch) {
		return
	}
	if session.locks.LeavesHolds() { // the grant may be of a hold that is left to be resumed
		return
	}
	if session.locks.Granted(g) {
		return
	}
	if session.conditions.Granted(g) {
		return
	}
	remote, err := session.core.Conn.Bind(g.Name)
	if err != nil {
		return
	}
	session.core.Cleaner.Do(func() { session.locks.ReleaseOrphan(remote, g.Name, g.Epoch, time.Time{}) })
}

// Signalled wakes the owner of a ticket.
func (s sink) Signalled(name string, ticket uint64, placed bool) {
	if !s.used(ticket) {
		return
	}
	if s.s.locks.Signalled(name, ticket, placed) {
		return
	}
	s.s.conditions.Signalled(name, ticket, placed)
}

// Taken asks Redis about a hold that another session is said to have resumed.
func (s sink) Taken(name string, epoch uint64) {
	if !s.used(epoch) {
		return
	}
	s.s.locks.Taken(name, epoch)
}

// Wanted notifies the holder that another session waits, if the holder has called Lock.Wanted. The session gives up a hold
// that lingers, and does not let a hold in use linger later.
func (s sink) Wanted(name string, epoch uint64) {
	if !s.used(epoch) {
		return
	}
	s.s.locks.Wanted(name, epoch)
}

// Reconnected makes up for the messages that were lost while the channel was closed. Every waiting head asks Redis
// again, and the session asks for signals, and about holds that may have moved. There may be another server now, with
// another clock, so the session renews all leases, and asks how much is left of fixed ones.
func (s sink) Reconnected() {
	s.s.shared.Reconnected()
	s.s.conditions.Reconnected()
	s.s.locks.Reconnected()
	s.s.keeper.Refresh()
}

// closeGrace is how long a Close whose context has ended goes on waiting for commands that are under way.
const closeGrace = time.Second

// Close ends the session. New calls, and calls that wait for a lock, return ErrClosed at once. Owners that hold a lock
// keep it, can take it again and can ask about it. Close waits until they have all unlocked, or ctx ends. If ctx ends
// first, Close gives up what is still held, and returns ctx's error: the owners' Lost channels are closed, and their
// Unlocks return ErrLost. The holds that [WithPortableHoldsLeft] leaves to be resumed end in this session in the same
// way, but are no error.
//
// After a second the log says for which holders Close waits.
//
// Close returns a second after the end of ctx at the latest. If the backend has not replied by then, the error is also
// ErrUnavailable; if the backend refuses the command that gives back a read-write lock or permits, the error is also that
// refusal. What the session still has is released in the background, or expires.
//
// Several calls of Close may wait at the same time. The first of their contexts to end gives up what is held, for all of
// them. Every call but the first returns ErrClosed when the session has ended. The first call returns it, too, if another
// call gave up holds.
func (s *session) Close(ctx context.Context) error {
	if ctx == nil {
		return errors.New("reentrant: close: nil context")
	}
	var errs []error
	if first, idle := s.locks.StartClosing(); first {
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
	if abandoned, left := s.abandonedHolds(); s.core.Abandoned.Load() && (abandoned > 0 || left == 0) {
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

// giveUp makes end give up what is still held.
func (s *session) giveUp() {
	s.giveUpOnce.Do(func() { close(s.hurry) })
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
	case <-s.quiet: // end waits only for the log, the observer or the connection
		return fmt.Errorf("the session ends in the background: %w", ctx.Err())
	default:
	}
	if err := s.shared.Refusal(); err != nil {
		return fmt.Errorf("the session ends in the background: %w: %w", err, ctx.Err())
	}
	return fmt.Errorf("%w: commands under way have no reply: %w", ErrUnavailable, ctx.Err())
}

// givenUp returns the error of a Close that did not wait to the end, with the number of holds that it gave up, if any.
func (s *session) givenUp(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		err = fmt.Errorf("the context of another Close ended: %w", ErrClosed)
	}
	abandoned, _ := s.abandonedHolds()
	if abandoned == 0 { // Close waited for commands only
		return err
	}
	return fmt.Errorf("%s given up: %w", counted(abandoned, "hold"), err)
}

// abandonedHolds returns how many holds were given up, and how many were left to be resumed.
func (s *session) abandonedHolds() (abandoned, left int) {
	abandoned, left = s.locks.GivenUp()
	return abandoned + int(s.abandonedNames.Load()), left
}

// end waits for the holders, unless hurried is true, and ends the session. Close runs it once, in the background.
func (s *session) end(hurried bool) {
	defer close(s.ended)
	if hurried || !s.awaitHolders() {
		s.locks.AbandonAll()
		s.abandonedNames.Add(int64(s.shared.Abandon()))
		s.awaitDrained()
	}
	s.shared.Stop()
	s.keeper.Stop()
	s.conditions.Stop()
	if s.detector != nil {
		s.detector.Stop()
	}
	s.core.Cleaner.Wait()
	s.core.Releases.Wait()
	s.core.Checks.Wait()
	close(s.quiet)
	s.core.Outages.Close()
	s.core.Events.Finish()
	s.core.LogWriter.Finish()
	s.core.Deadlines.Close()
	s.endErr = core.WrapUnavailable(context.Background(), s.core.Conn.Close())
	for _, f := range s.core.Config.AfterClose {
		f()
	}
}

// awaitHolders waits until all holders have unlocked. It returns false if the context of a Close ended first.
func (s *session) awaitHolders() bool {
	report := time.AfterFunc(closeNotice, s.reportClosing)
	defer report.Stop()
	return s.awaitAll(s.hurry)
}

// closeNotice is how long a Close waits before the log says what it waits for.
const closeNotice = time.Second

// mostNamed is how many holders the log line of a waiting Close names.
const mostNamed = 16

// reportClosing logs what a Close waits for.
func (s *session) reportClosing() {
	held := s.holders()
	if len(held) == 0 {
		s.core.Log(slog.LevelWarn, "Close waits for replies of the server")
		return
	}
	s.core.Log(slog.LevelWarn, "Close waits until all holders have unlocked, or its context ends",
		slog.Int("holders", len(held)), slog.Any("locks", held[:min(len(held), mostNamed)]))
}

// holders describes who has which lock in this session, in the order of the locks.
func (s *session) holders() (held []string) {
	names, _ := s.locks.HeldNames()
	for _, name := range names {
		if h := s.locks.HoldOf(name); h.Owned() {
			held = append(held, fmt.Sprintf("%s: owner %s", core.Shown(name), core.Shown(h.Owner.String())))
		}
	}
	for _, name := range s.shared.Held() {
		for _, h := range tier.HoldersOf(s.shared, name) {
			held = append(held, core.Shown(name)+": "+h.Inside())
		}
	}
	slices.Sort(held)
	return held
}

// awaitDrained waits, for ReleaseTime at most, until no lock is in use. So commands under way end, and what the session
// has in Redis is released, while there is still a connection.
func (s *session) awaitDrained() {
	limit := make(chan struct{})
	timer := time.AfterFunc(s.core.Config.ReleaseTime, func() { close(limit) })
	defer timer.Stop()
	s.awaitAll(limit)
}

// awaitAll waits until no lock, read-write lock, semaphore or monitor is in use. It returns false if limit was closed
// first.
func (s *session) awaitAll(limit <-chan struct{}) bool {
	for _, drain := range []func() <-chan struct{}{s.locks.Drained, s.shared.Drained, s.conditions.Drained} {
		drained := drain() // the monitors of conditions last: a writer may still use one
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
