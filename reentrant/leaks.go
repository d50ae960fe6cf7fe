package reentrant

import (
	"log/slog"
	"slices"
)

// The log reports sessions and Locks that were dropped while they held something, when the garbage collector finds them.
// Nothing is released: the owner of the hold may still be at work.
//
// The garbage collector's cleanups run at any time, also outside the testing/synctest bubble in which a session may live. So
// these cleanups read under the mutexes, take no reference that Close would have to wait for, and have a log of their own, for
// which Close does not wait.

// reportLeak reports a session whose handle was dropped without being closed.
func (s *session) reportLeak() {
	held, closed := s.locks.HeldNames()
	held = append(held, s.shared.Held()...)
	if !closed {
		slices.Sort(held)
		s.core.LeakLog.Log(slog.LevelWarn, "a session was forgotten without being closed; it goes on renewing its locks", slog.Any("held", held))
	}
}
