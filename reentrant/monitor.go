package reentrant

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/condition"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/share"
	"github.com/relock-go/relock/sharedqueue"
)

// A monitor is a session's part in the conditions of one read-write lock. A backend has conditions for the holder of a
// lock, but a writer has units of a shared name instead. So a writer that takes a ticket or signals also takes a lock
// that goes with the name ([backend.ConditionsOf]), for that one command. That lock has no State: the writer takes
// it while it has the write side, the session does not renew it, and no event reports it.
//
// When the server signals a session, it queues the session for that lock. The session does not need the place, and
// gives it back.
type monitor struct {
	s          *session
	remote     backend.Remote
	conditions backend.Conditions // remote, as a backend.Conditions
	turn       chan struct{}      // 1-buffered: a goroutine that has put a value in may use the lock
	grant      chan struct{}      // 1-buffered: the lock was granted to the epoch that asks
	refs       int                // monitors.mu

	mu     sync.Mutex // taken before the locks of shared names
	asking uint64     // the epoch that asks for the lock, 0 if none does
	waits  []*writerWait
}

// A writerWait is a writer that waits for a condition.
type writerWait struct {
	*condition.Ticket
	lock *RWLock
	call *sharedCall

	// What the writer gave up. Written under monitor.mu with left.
	reads, writes int
	token         Token
	notifier      *core.LossNotifier

	left       bool       // monitor.mu: the holds are given up
	signalSeen bool       // monitor.mu: the message of the signal has come
	place      *writerTry // monitor.mu: in the local queue, since the signal or the end of the wait
}

// A writerTry is a writer's place in the local queue, or the outcome if it did not have to wait.
type writerTry struct {
	name    *share.Name // with a reference
	outcome sharedqueue.Outcome
	waiter  *sharedqueue.Waiter[Owner] // if the outcome is Waiting
	begun   time.Time
	err     error // if there is no name
}

// monitors are those of a session that are in use, by the names of their locks.
type monitors struct {
	mu      sync.Mutex
	used    map[string]*monitor
	drained chan struct{} // closed when none is in use any more; nil before drain is called
}

// monitor returns the monitor of a read-write lock with a reference. The caller calls leave.
func (s *session) monitor(name string) (*monitor, error) {
	name = backend.ConditionsOf(name)
	s.monitors.mu.Lock()
	defer s.monitors.mu.Unlock()
	m := s.monitors.used[name]
	if m == nil {
		remote, err := s.core.Conn.Bind(name)
		if err != nil {
			return nil, err
		}
		m = &monitor{s: s, remote: remote, conditions: remote.(backend.Conditions), turn: make(chan struct{}, 1), grant: make(chan struct{}, 1)}
		if s.monitors.used == nil {
			s.monitors.used = make(map[string]*monitor)
		}
		s.monitors.used[name] = m
	}
	m.refs++
	return m, nil
}

// leave drops a reference.
func (m *monitor) leave() {
	v := &m.s.monitors
	v.mu.Lock()
	defer v.mu.Unlock()
	if m.refs--; m.refs > 0 {
		return
	}
	delete(v.used, m.remote.Name())
	if v.drained != nil && len(v.used) == 0 {
		close(v.drained)
		v.drained = nil
	}
}

// find returns the monitor whose lock has a name, nil if none is in use.
func (v *monitors) find(name string) *monitor {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.used[name]
}

// drain returns a channel that is closed when no monitor is in use. It is called by one goroutine.
func (v *monitors) drain() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	drained := make(chan struct{})
	if len(v.used) == 0 {
		close(drained)
	} else {
		v.drained = drained
	}
	return drained
}

// errForgotten is returned when the server no longer has the lock of the conditions, after a signal that it may have
// given.
var errForgotten = fmt.Errorf("the server has forgotten who signals: %w", ErrUnavailable)

// errUnanswered is the cause of the end of a call to which the server has not replied within a lease.
var errUnanswered error = unansweredError{}

type unansweredError struct{}

func (unansweredError) Error() string { return "the server has not replied within a lease" }

// Is reports true for ErrOverdue, since this limit is the session's own and not the end of the caller's context, and
// for ErrUnavailable.
func (unansweredError) Is(target error) bool {
	return target == core.ErrOverdue || target == ErrUnavailable
}

// A use says whether the session still has the lock of the conditions after it has used it.
type use int8

const (
	kept use = iota // the session still has it, as far as it knows
	left            // the command gave it up
	gone            // the server no longer had it, and did nothing
)

// hold takes the lock of the conditions, calls f with its epoch, and gives the lock back in the background. If the lock
// was gone, hold does it all again. pendingUntil is the time after which no copy of the request is under way.
func (m *monitor) hold(ctx context.Context, owner Owner, f func(epoch uint64, pendingUntil time.Time) (use, error)) error {
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return core.InterruptedBy(ctx, "in this process's queue", nil)
	}
	defer func() { <-m.turn }()
	for try := 0; ; try++ {
		epoch, pendingUntil, err := m.acquire(ctx, owner)
		became := kept
		if err == nil {
			became, err = f(epoch, pendingUntil)
		}
		switch became {
		case kept:
			m.release(epoch, pendingUntil)
			return err
		case left:
			return err
		}
		core.Pause(ctx, core.RetryPause(try, m.s.core.Config.Heartbeat), nil)
	}
}

// acquire asks for the lock until the session has it. Its lease is as long as two commands may take: if the lock cannot
// be given back, others wait no longer than that.
func (m *monitor) acquire(ctx context.Context, owner Owner) (epoch uint64, pendingUntil time.Time, err error) {
	cfg := &m.s.core.Config
	req := backend.AcquireRequest{
		Epoch: m.ask(), Owner: owner.String(), Holds: 1, Lease: 2 * cfg.CommandTimeout, Queue: true, Barge: true, Tokens: 1,
		Seen: Token(m.s.core.SeenToken.Load()), Patience: cfg.Patience, GrantTTL: cfg.GrantTTL,
	}
	defer m.stopAsking()
	for {
		var reply backend.AcquireReply
		err = m.s.core.Repeat(ctx, core.Policy{}, func(call context.Context, c core.Copy) (err error) {
			req.NotAfter, pendingUntil = c.Limit, c.Limit
			reply, err = m.remote.Acquire(call, req)
			if err == nil {
				err = check.Acquire(&reply)
			}
			return core.WrapUnavailable(ctx, err)
		})
		switch {
		case err != nil:
			return req.Epoch, pendingUntil, err
		case reply.Status == backend.Granted:
			return req.Epoch, pendingUntil, nil
		case reply.Status == backend.Stale:
			req.Epoch = m.ask()
		case !m.park(ctx, reply.TTL):
			return req.Epoch, pendingUntil, core.InterruptedBy(ctx, "waiting for the conditions", nil)
		}
	}
}

// ask returns a new epoch, which asks for the lock from here on.
func (m *monitor) ask() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asking = m.s.core.Epochs.Add(1)
	select {
	case <-m.grant: // of an earlier epoch
	default:
	}
	return m.asking
}

func (m *monitor) stopAsking() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asking = 0
}

// granted handles a grant of the lock to an epoch. It reports whether the monitor knows the epoch: as the one that
// asks, or as a ticket. A grant to a ticket means that the ticket was signalled.
func (m *monitor) granted(epoch uint64) bool {
	m.mu.Lock()
	asks, w := epoch == m.asking, m.waitLocked(epoch)
	signalSeen := w == nil || w.signalSeen
	m.mu.Unlock()
	if asks {
		select {
		case m.grant <- struct{}{}:
		default:
		}
	}
	if !signalSeen {
		m.signalled(epoch, true)
	}
	return asks || w != nil
}

// waitLocked returns the wait with a ticket, nil if there is none. m.mu is held.
func (m *monitor) waitLocked(epoch uint64) *writerWait {
	for _, w := range m.waits {
		if w.Epoch == epoch {
			return w
		}
	}
	return nil
}

// park waits until the lock is granted, or it is time to ask again. It returns false if ctx ended first. ttl is the
// rest of the holder's lease, negative if that is not known.
func (m *monitor) park(ctx context.Context, ttl time.Duration) bool {
	cfg := &m.s.core.Config
	wait := cfg.Heartbeat - cfg.Jitter(cfg.Heartbeat/8)
	if ttl >= 0 {
		wait = min(wait, ttl+time.Millisecond)
	}
	return core.Pause(ctx, wait, m.grant)
}

// release gives the lock, or a place in its queue, back in the background.
func (m *monitor) release(epoch uint64, pendingUntil time.Time) {
	m.s.core.Cleaner.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), m.s.core.Config.ReleaseTime)
		defer cancel()
		err := m.s.core.Repeat(ctx, core.Policy{}, func(call context.Context, _ core.Copy) error {
			_, err := m.remote.Release(call, backend.ReleaseRequest{Epoch: epoch, Until: pendingUntil})
			return core.WrapUnavailable(ctx, err)
		})
		if err != nil {
			m.s.core.Log(slog.LevelWarn, "could not give back the lock of conditions; it expires", slog.String("lock", m.remote.Name()), slog.Any("error", err))
		}
	})
}

// signalled handles the signal of a ticket. It puts the owner in the queue for the write side, so that owners come back
// in the order of their signals, whichever goroutine runs first. placed says that the server has queued the session for
// the lock.
func (m *monitor) signalled(epoch uint64, placed bool) {
	if placed {
		m.release(epoch, time.Time{})
	}
	m.mu.Lock()
	w := m.waitLocked(epoch)
	if w != nil {
		w.signalSeen = true
		w.End()
		if w.left {
			m.lineUpLocked(w)
		}
	}
	m.mu.Unlock()
	if w != nil {
		w.Wake(placed)
	}
}

// lineUpLocked puts the owner of a wait in the queue for the write side, once. m.mu is held.
func (m *monitor) lineUpLocked(w *writerWait) {
	if w.place == nil {
		w.place = w.lock.lineUp(w.call, w.Owner)
	}
}

// add makes a wait known, before the server knows its ticket.
func (m *monitor) add(w *writerWait) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w.Epoch = m.s.core.Epochs.Add(1)
	m.waits = append(m.waits, w)
}

// remove removes a wait.
func (m *monitor) remove(w *writerWait) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits = slices.DeleteFunc(m.waits, func(x *writerWait) bool { return x == w })
}

// end ends a wait, and puts its owner in the queue for the write side. If the wait was signalled and the signal's
// message has not come, end gives back the place in which the server queued the session.
func (m *monitor) end(w *writerWait, signalled bool) *writerTry {
	m.mu.Lock()
	w.End()
	m.lineUpLocked(w)
	signalSeen := w.signalSeen
	m.mu.Unlock()
	if signalled && !signalSeen {
		m.release(w.Epoch, time.Time{})
	}
	m.remove(w)
	return w.place
}

// waiting returns the owners that wait for a condition, longest first.
func (m *monitor) waiting(condition string) (owners []Owner) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.waits {
		if w.Name == condition && w.left && !w.Over() {
			owners = append(owners, w.Owner)
		}
	}
	return owners
}
