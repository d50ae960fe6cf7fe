package reentrant

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// An Observer is told what happens to the locks of a session: for metrics, traces and tests.
type Observer interface {
	// Observe takes one event. Those of a call (EventAcquired, EventReentered, EventFailed and EventReleased) come on its
	// goroutine, with its context, before it returns; all others on any goroutine, with context.Background. No mutex is
	// held, but others may wait: Observe must be quick, and must not use the lock that the event is about.
	Observe(ctx context.Context, e Event)
}

// EventKind says what happened.
type EventKind int8

const (
	// EventAcquired: an owner got a lock that it did not hold. Wait is how long that took. A return from
	// [Condition.Await] is one too.
	EventAcquired EventKind = iota + 1
	// EventReentered: an owner got a lock once more.
	EventReentered
	// EventFailed: a call that asked for a lock did not get it, after Wait. Err is why; nil if another had it for as
	// long as the call was ready to wait.
	EventFailed
	// EventReleased: an owner gave up its last hold after Held, by Unlock or by Await. HandedOff says that the next owner
	// is of the same session.
	EventReleased
	// EventYielded: the turn of the session was over, and another session was given the lock.
	EventYielded
	// EventLost: the hold ended otherwise, after Held; Err says what was noticed, and wraps ErrLost.
	EventLost
	// EventWaitingLong: an owner has waited in Redis for longer than the session's lease. It is said once per wait; Err
	// is the backend's last error, nil if another holds the lock.
	EventWaitingLong
	// EventRenewalFailing: the lease of a hold could not be renewed, for the reason in Err. It is tried again.
	EventRenewalFailing
	// EventRenewalRecovered: it could, after all.
	EventRenewalRecovered
)

var eventNames = [...]string{
	EventAcquired: "lock acquired", EventReentered: "lock re-entered", EventFailed: "lock not acquired",
	EventReleased: "lock released", EventYielded: "lock yielded", EventLost: "lock lost",
	EventWaitingLong: "waiting long for a lock", EventRenewalFailing: "renewal failing", EventRenewalRecovered: "renewal recovered",
}

// String says it in words.
func (k EventKind) String() string {
	if k < EventAcquired || int(k) >= len(eventNames) {
		return fmt.Sprintf("EventKind(%d)", int8(k))
	}
	return eventNames[k]
}

// level is how much an operator should care.
func (k EventKind) level() slog.Level {
	switch k {
	case EventLost:
		return slog.LevelError
	case EventRenewalFailing, EventWaitingLong:
		return slog.LevelWarn
	case EventRenewalRecovered:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// An Event is something that happened to a lock. What does not belong to its kind is zero.
type Event struct {
	Kind      EventKind
	Lock      string
	Owner     Owner
	Token     Token
	Wait      time.Duration
	Held      time.Duration
	HandedOff bool
	Err       error
	_         struct{}
}

// report tells the observer and the log. No mutex is held.
func (s *core) report(ctx context.Context, e Event) {
	if s.config.observer != nil {
		s.config.observer.Observe(ctx, e)
	}
	if level := e.Kind.level(); s.scribe.handler.Enabled(ctx, level) {
		s.scribe.write(level, e.Kind.String(), e.attributes())
	}
}

// attributes are the parts of the event that say something.
func (e Event) attributes() []slog.Attr {
	attrs := []slog.Attr{slog.String("lock", e.Lock)}
	if e.Owner != (Owner{}) {
		attrs = append(attrs, slog.String("owner", e.Owner.String()))
	}
	if e.Token > 0 {
		attrs = append(attrs, slog.Uint64("token", uint64(e.Token)))
	}
	if e.Wait > 0 {
		attrs = append(attrs, slog.Duration("wait", e.Wait))
	}
	if e.Held > 0 {
		attrs = append(attrs, slog.Duration("held", e.Held))
	}
	if e.HandedOff {
		attrs = append(attrs, slog.Bool("handed_off", true))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	return attrs
}

// now is the time for those who report how long something took; zero if nobody wants to know.
func (s *core) now() time.Time {
	if !s.watched {
		return time.Time{}
	}
	return time.Now()
}

// reportAcquire reports how a call that asked for a lock has ended.
func (l *Lock) reportAcquire(ctx context.Context, kind EventKind, begun time.Time, err error) {
	if ctx == nil {
		ctx = context.Background()
	}
	e := Event{Kind: kind, Lock: l.name, Owner: CurrentOwner(ctx), Wait: time.Since(begun), Err: err}
	if kind != EventFailed {
		l.look(func(en *entry) {
			if h, held := en.heldBy(e.Owner); held {
				e.Token = h.token
			}
		})
	}
	l.session.report(ctx, e)
}

// reportRelease reports that an owner has given up its last hold.
func (e *entry) reportRelease(ctx context.Context, h *hold, handedOff bool, err error) {
	if e.s.watched {
		e.s.report(ctx, Event{Kind: EventReleased, Lock: e.name, Owner: h.owner, Token: h.token,
			Held: time.Since(h.since), HandedOff: handedOff, Err: err})
	}
}
