package reentrant

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/tier"
)

// SemaphoreState is the state of a semaphore in the whole deployment at one moment.
type SemaphoreState = SharedState

// A Semaphore has a number of permits for the whole deployment. It behaves like java.util.concurrent.Semaphore in its
// fair mode, with two differences: permits belong to the session, so that the permits of a process that died become
// free when its lease ends, and it is an error to Release more permits than the session has.
//
// A session has the permits that its callers need. It passes them from one caller to the next without a command, and
// gives them back, after a turn, when another session waits. The order is fair. The head of a session is its first caller in
// line. Sessions get permits in the order in which their heads came, each what its head needs, and the callers of a session
// are served first in, first out, even if a later caller wants fewer permits. So sessions with equal demand get nearly equal
// service. In a session that has its share of the permits, the head first waits for a Release of its own session, for up to
// a tenth of a second. A caller that must wait for a Release of its own session, because that session has too many of the
// permits in use, holds up no other session, and takes its place when that Release has come.
//
// Release returns before the backend has the permits back: the session gives them back in the background. Callers of
// the same session can have them at once, callers of another session about a round trip later: a TryAcquire there asks
// for permits that no caller uses, and gets them. A process that is about to exit calls [Session.Close], which waits
// until the backend has them; without that they stay taken until their lease ends.
//
// Permits have no owner: any goroutine of the session may release them. Each process sets the limit itself. If the
// limits of two sessions differ, each session gets permits up to its own limit, and gives way to sessions that wait, so
// that a deploy can change the limit. A lower limit takes no permit away: no permit is given out under it until few enough
// are in use.
//
// The name must not be that of a Lock or an RWLock: a call that the server refuses for that reason returns
// [ErrWrongKind], and changes nothing.
//
// A Semaphore is a handle. The Semaphores of one session that have equal names share one queue. The session's limit is
// that of the handle that was used last. It is safe for concurrent use and must not be copied.
type Semaphore struct {
	sharedName
	permits int
}

// NewSemaphore returns the semaphore with the given name and number of permits, at least 1 and at most
// [backend.AllUnits]. It sends nothing. If the name, the number or an option is invalid (nil, for instance), or the
// backend has no shared holds ([errors.ErrUnsupported]), every call on the Semaphore returns the error.
func (s *Session) NewSemaphore(name string, permits int, opts ...LockOption) *Semaphore {
	m := &Semaphore{s.newSharedName(name, backend.Permits), permits}
	if permits < 1 || permits > backend.AllUnits {
		m.invalid = fmt.Errorf("a semaphore of %d permits: at least 1, at most %d", permits, backend.AllUnits)
	}
	m.bind(opts)
	return m
}

// Name returns the semaphore's name.
func (s *Semaphore) Name() string { return s.handle.Name }

// tier returns the handle of the session's part in the semaphore.
func (s *Semaphore) tier() tier.Semaphore { return tier.Semaphore{Handle: &s.handle} }

// Permits returns the number of permits that NewSemaphore was given.
func (s *Semaphore) Permits() int { return s.permits }

// Acquire takes n permits together. It waits for its turn until ctx ends, and keeps trying while the backend cannot be
// reached. It returns nil when the caller has the permits. When ctx ends, errors.Is(err, ctx.Err()) is true. If n is
// not between 1 and the limit, Acquire returns an error at once. Other errors include [ErrClosed], [ErrWrongKind], and
// the server's error if it refused ([Refused]).
func (s *Semaphore) Acquire(ctx context.Context, n int) error {
	_, _, err := s.acquire(ctx, n, tier.Try{Op: "acquire", Waits: true})
	return err
}

// TryAcquire takes n permits if they are not in use and no other caller waits. It gets permits that are free at the server
// with one command. Otherwise the server asks the other sessions for what they do not use: TryAcquire returns when they have
// replied, two round trips in all, three if such a session has a command under way. If one does not reply, the server is
// asked once more, after a heartbeat. TryAcquire returns false and a nil error if it got none, and an error if the server
// could not be asked.
func (s *Semaphore) TryAcquire(ctx context.Context, n int) (bool, error) {
	_, ok, err := s.acquire(ctx, n, tier.Try{Op: "try acquire"})
	return ok, err
}

// TryAcquireFor takes n permits if the caller's turn comes within wait. When the time is up it returns false, with a
// nil error if the permits were not free, and with an error if the server has not replied. With a wait of zero or less
// it is TryAcquire. However short the wait, TryAcquireFor asks the server once, if it must, and waits for the reply for
// at least an eighth of a command's time limit. A caller that stands in line when the time is up asks once more in the same
// way, since the message with its grant may be lost.
func (s *Semaphore) TryAcquireFor(ctx context.Context, n int, wait time.Duration) (bool, error) {
	_, ok, err := s.acquire(ctx, n, tier.TryFor("try acquire", wait))
	return ok, err
}

// Release gives back n permits of the session. It works under a ctx that has ended, and sends nothing: the session
// gives back in the background what its callers do not need. If callers of the session have fewer than n permits,
// Release returns [ErrNotHeld] and changes nothing. If the session has lost permits, Release returns [ErrLost]: lost
// permits are released first, whichever caller had them. So a caller that lost its permits must release them all the same:
// otherwise the next Release of another caller would count for it.
func (s *Semaphore) Release(ctx context.Context, n int) error {
	return s.error("release", s.release(ctx, n, nil))
}

// Do runs fn while holding n permits: Acquire, fn, Release. The context that fn gets ends when ctx does, and with cause
// [ErrLost] when the session's permits are lost. If fn panics, Do releases the permits and goes on panicking. If Acquire fails,
// Do returns Acquire's error without calling fn. Otherwise it returns fn's error joined with Release's. Unlike Release, Do knows
// which permits it took, so it does not return ErrLost because another caller lost permits.
func (s *Semaphore) Do(ctx context.Context, n int, fn func(ctx context.Context) error) error {
	c, _, err := s.acquire(ctx, n, tier.Try{Op: "acquire", Waits: true})
	if err != nil {
		return err
	}
	return s.run(ctx, n, c, fn)
}

// run calls fn with the permits that a call got, and then releases them.
func (s *Semaphore) run(ctx context.Context, n int, c *tier.PermitCall, fn func(ctx context.Context) error) (err error) {
	carried, end := core.Carry(ctx, core.BoundTo(s.session.core, s.handle.Name))
	within, stop := core.UntilLost(carried, c.LossNotifier())
	defer func() {
		stop()
		end()
		err = afterDo(ctx, within, err, s.error("release", s.release(ctx, n, c)))
	}()
	return s.session.call(within, s.handle.Name, fn)
}

// Lost returns a channel that is closed when the permits that callers of this session have now are lost: all of them
// together, at the moment this process can no longer trust their lease. If they have none, the channel is closed
// already. Lost cannot distinguish the permits of one caller from those of another: if a caller's permits were lost
// before the call, and other callers have got new ones, the channel is about the new ones. The context of
// [Semaphore.Do] is always about its own permits.
func (s *Semaphore) Lost() <-chan struct{} {
	if s.invalid == nil {
		if notifier := s.tier().LossNotifier(); notifier != nil {
			return notifier.Lost
		}
	}
	return core.AlreadyLost
}

// Inspect asks the server which sessions have permits, and which wait. A session may have a few more permits than its
// callers use. If the name is in use as a Lock or an RWLock, it returns [ErrWrongKind]. In a session that is closed or
// closing it returns [ErrClosed]. ctx bounds the call.
func (s *Semaphore) Inspect(ctx context.Context) (SemaphoreState, error) {
	return s.inspect(ctx, "inspect")
}

// ForceRelease takes all permits from all sessions that have some, and gives them to the sessions that wait. It works
// as [Lock.ForceUnlock] does: callers learn of their loss at the next command or renewal of their sessions at the
// latest, and until then there may be more users than permits. A [Slot] keeps its number until it is released, since the
// number is a lock of its own, but the Slot's Lost closes. ForceRelease reports whether a session had permits. In a session
// that is closed or closing it returns [ErrClosed], and does nothing. After an error with an unknown outcome, inspect the
// semaphore before you try again.
func (s *Semaphore) ForceRelease(ctx context.Context) (bool, error) {
	return s.force(ctx, "force release")
}

// QueueLength returns how many callers of this session wait for permits. It is a snapshot.
func (s *Semaphore) QueueLength() int {
	x := s.handle.Find()
	if x == nil {
		return 0
	}
	_, waiting := x.Tier().Usage()
	return waiting
}

// HasQueuedOwners reports whether any caller of this session waits for permits.
func (s *Semaphore) HasQueuedOwners() bool { return s.QueueLength() > 0 }

// String returns the semaphore's name and its number of permits.
func (s *Semaphore) String() string {
	return fmt.Sprintf("reentrant.Semaphore(%q)[Permits = %d]", s.handle.Name, s.permits)
}

// acquire takes permits. It is the common part of the exported methods that do so.
func (s *Semaphore) acquire(ctx context.Context, n int, t tier.Try) (c *tier.PermitCall, ok bool, err error) {
	t.Begun = s.session.core.Now()
	c, ok, err = s.take(ctx, n, t)
	err = s.explainWait(ctx, t.Op, err)
	if !ok {
		s.reportFailed(ctx, ModePermits, n, t, err)
	}
	return c, ok, err
}

func (s *Semaphore) take(ctx context.Context, n int, t tier.Try) (c *tier.PermitCall, ok bool, err error) {
	err = s.admit(ctx, n)
	switch {
	case err != nil:
		return nil, false, err
	case n > s.permits:
		return nil, false, fmt.Errorf("%d permits asked of a semaphore of %d", n, s.permits)
	case ctx.Err() != nil:
		return nil, false, core.InterruptedBy(ctx, "before the call", nil)
	}
	return s.tier().Take(ctx, n, s.permits, t)
}

// admit checks a call that takes or gives back n permits.
func (s *Semaphore) admit(ctx context.Context, n int) error {
	switch {
	case s.invalid != nil:
		return s.invalid
	case ctx == nil:
		return errors.New("nil context")
	case n < 1:
		return fmt.Errorf("%d permits: at least 1", n)
	}
	return nil
}

// release gives back n permits: those of c, if c is not nil.
func (s *Semaphore) release(ctx context.Context, n int, c *tier.PermitCall) error {
	if err := s.admit(ctx, n); err != nil {
		return err
	}
	return s.tier().Release(ctx, n, c)
}
