package reentrant

// Stats are counters of one session since it was opened, except Held and Waiting, which are current numbers. Held,
// Waiting, Renewals, Lost and Commands count read-write locks and semaphores too. Acquired, Reentries, Handoffs and
// Yields are of Locks alone: a reader that sends nothing does not pay for a counter either.
type Stats struct {
	Held      int    // locks held; an RWLock or a Semaphore counts once, however many owners or permits are inside
	Waiting   int    // owners that wait for a lock, in this process's queues or as a head in Redis
	Acquired  uint64 // outermost acquires
	Reentries uint64 // acquires by an owner that had the lock already
	Handoffs  uint64 // Unlocks that kept the lock for the next owner of this process
	Yields    uint64 // hand-overs to another session because the turn was over
	Renewals  uint64 // leases prolonged
	Lost      uint64 // holds lost
	Commands  uint64 // commands sent for locks of every kind; a batch of renewals counts as one
	Dropped   uint64 // events that were not observed, because the observer was too slow
}

// Stats reads the session's counters one after the other. So the counters may disagree about what happens while Stats reads
// them.
func (s *session) Stats() Stats {
	st := Stats{
		Acquired: s.core.Counts.Acquired.Load(), Reentries: s.core.Counts.Reentries.Load(), Handoffs: s.core.Counts.Handoffs.Load(),
		Yields: s.core.Counts.Yields.Load(), Renewals: s.core.Counts.Renewals.Load(), Lost: s.core.Counts.Lost.Load(),
		Commands: s.core.Counts.Commands.Load(), Dropped: uint64(s.core.Events.Dropped.Load()),
	}
	st.Held, st.Waiting = s.shared.Usage()
	held, waiting := s.locks.Usage()
	st.Held, st.Waiting = st.Held+held, st.Waiting+waiting
	return st
}
