package reentrant

import (
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
)

// What is dropped without being given up is reported in the log, when the collector finds it. Nothing is taken away:
// whoever holds a lock may be at work all the same.
//
// Cleanups run beside everything, also outside the bubble of testing/synctest in which a session may live: they look
// under the mutexes, take no reference that somebody would have to wait for, and have an asyncLog of their own, for which
// Close does not wait.

// reportLeak reports a session whose handle was dropped without being closed.
func (s *session) reportLeak() {
	s.mu.Lock()
	closed := s.closed
	var held []string
	for name, e := range s.states {
		if _, ok := e.queue.Holder(); ok {
			held = append(held, name)
		}
	}
	s.mu.Unlock()
	if !closed {
		slices.Sort(held)
		s.leakLog.Log(slog.LevelWarn, "a session was forgotten without being closed; it goes on renewing its locks", slog.String("session", s.id), slog.Any("held", held))
	}
}

// lockIDs counts the Locks that ever got a hold.
var lockIDs atomic.Uint32

// id identifies the Lock: a hold records with which Lock it was got. A Lock is watched from its first hold on.
func (l *Lock) id() uint32 {
	if n := l.lazyID.Load(); n != 0 {
		return n
	}
	if n := lockIDs.Add(1); l.lazyID.CompareAndSwap(0, n) {
		runtime.AddCleanup(l, leakRecord.report, leakRecord{l.session.session, l.name, n})
	}
	return l.lazyID.Load()
}

// A leakRecord is what is left of a Lock that was collected.
type leakRecord struct {
	s      *session
	name   string
	lockID uint32
}

// report reports a hold whose Lock is gone. Its owner can still unlock it, by another Lock of that name.
func (k leakRecord) report() {
	if h := k.s.holdOf(k.name); h.owned() && h.lockID == k.lockID {
		k.s.leakLog.Log(slog.LevelWarn, "a lock was forgotten while it is held", slog.String("lock", k.name), slog.String("owner", h.owner.String()))
	}
}

// holdOf is the hold on a lock, without a reference to its lock state.
func (s *session) holdOf(name string) hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.states[name]
	if e == nil {
		return hold{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hold
}
