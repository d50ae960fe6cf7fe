package reentrant

import (
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
)

// The log reports sessions and Locks that were dropped while they held something, when the collector finds them.
// Nothing is released: the owner of the hold may still be at work.
//
// Cleanups run at any time, also outside the testing/synctest bubble in which a session may live: they read under the
// mutexes, take no reference that Close would have to wait for, and have a log of their own, for which Close does not
// wait.

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
	held = append(held, s.shared.Held()...)
	if !closed {
		slices.Sort(held)
		s.core.LeakLog.Log(slog.LevelWarn, "a session was forgotten without being closed; it goes on renewing its locks", slog.String("session", s.core.ID), slog.Any("held", held))
	}
}

// lockIDs counts the Locks that ever got a hold.
var lockIDs atomic.Uint32

// id identifies the Lock: a hold records the Lock with which it was acquired. A Lock is watched from its first hold on.
func (l *Lock) id() uint32 {
	if n := l.lazyID.Load(); n != 0 {
		return n
	}
	if n := lockIDs.Add(1); l.lazyID.CompareAndSwap(0, n) {
		runtime.AddCleanup(l, leakRecord.report, leakRecord{l.session.session, l.name, n})
	}
	return l.lazyID.Load()
}

// A leakRecord outlives a Lock that was collected.
type leakRecord struct {
	s      *session
	name   string
	lockID uint32
}

// report reports a hold whose Lock is gone. Its owner can still unlock it, by another Lock of that name.
func (k leakRecord) report() {
	if h := k.s.holdOf(k.name); h.owned() && h.lockID == k.lockID {
		k.s.core.LeakLog.Log(slog.LevelWarn, "a lock was forgotten while it is held", slog.String("lock", k.name), slog.String("owner", h.owner.String()))
	}
}

// holdOf returns the hold on a lock, without a reference to its lock state.
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
