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
// under the mutexes, take no reference that somebody would have to wait for, and have a scribe of their own, for which
// Close does not wait.

// forgotten reports a session whose handle was dropped without being closed.
func (s *core) forgotten() {
	s.mu.Lock()
	closed := s.closed
	var held []string
	for name, e := range s.entries {
		if _, ok := e.queue.Holder(); ok {
			held = append(held, name)
		}
	}
	s.mu.Unlock()
	if !closed {
		slices.Sort(held)
		s.finder.log(slog.LevelWarn, "a session was forgotten without being closed; it goes on renewing its locks", slog.String("session", s.id), slog.Any("held", held))
	}
}

// serials number the Locks that ever got a hold.
var serials atomic.Uint32

// number is a Lock's own, by which a hold tells that it was got with it. A Lock is watched from its first hold on.
func (l *Lock) number() uint32 {
	if n := l.serial.Load(); n != 0 {
		return n
	}
	if n := serials.Add(1); l.serial.CompareAndSwap(0, n) {
		runtime.AddCleanup(l, keepsake.forgotten, keepsake{l.session.core, l.name, n})
	}
	return l.serial.Load()
}

// A keepsake is what is left of a Lock that was collected.
type keepsake struct {
	s      *core
	name   string
	number uint32
}

// forgotten reports a hold whose Lock is gone. Its owner can still unlock it, by another Lock of that name.
func (k keepsake) forgotten() {
	if h := k.s.glance(k.name); h.live && h.by == k.number {
		k.s.finder.log(slog.LevelWarn, "a lock was forgotten while it is held", slog.String("lock", k.name), slog.String("owner", h.owner.String()))
	}
}

// glance is the hold on a lock, without a reference to its entry.
func (s *core) glance(name string) hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[name]
	if e == nil {
		return hold{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hold
}
