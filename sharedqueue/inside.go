package sharedqueue

// Inside calls f for the owners that are inside, with the side that each is on. The parameter most limits the number of calls.
// If there is a writer, f is called for the writer alone. The queue's mutex is held during the calls: f must not block, nor
// call the queue. token is the writer's token, 0 for a reader.
func (rw *RW[O]) Inside(most int, f func(owner O, mode Mode, token uint64)) {
	rw.mu.Lock()
	defer rw.unlock(0)
	if rw.writes > 0 && most > 0 {
		f(rw.writer, Write, rw.token)
		return // while a writer is inside, no other owner is
	}
	for i := range rw.shards {
		s := &rw.shards[i]
		s.lock()
		s.each(func(owner O, _ int) {
			if most > 0 {
				f(owner, Read, 0)
				most--
			}
		})
		s.unlock()
	}
}

// Inside calls f with the number of permits in use, with the queue's mutex held: f must not block, nor call the queue.
func (p *Permits) Inside(f func(permits int)) {
	p.mu.Lock()
	defer p.unlock(0)
	f(p.inUse)
}
