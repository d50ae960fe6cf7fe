// Package background runs a session's work that no caller waits for, and calls the user's code (the log, the observer) in
// goroutines of its own.
package background

import (
	"sync"
	"time"
)

// Workers run jobs in the background. Goroutines start when there are jobs and end when there are none.
// A job that waits for a hanging node must not delay the jobs for other nodes. So a goroutine that has been at one job
// for longer than Stall makes room for two more, as Go's scheduler replaces a thread that is in a system call. The number of
// goroutines can therefore double with each Stall, and a job behind n stalled jobs begins after Stall × log2(n/Size).
type Workers struct {
	Size  int           // goroutines that run at the same time while no job takes longer than Stall
	Stall time.Duration // 0: never; with Size 1 the jobs then run in order

	mu      sync.Mutex // a leaf
	jobs    []func()
	running int           // goroutines
	stalled int           // goroutines whose job has taken longer than Stall
	idle    chan struct{} // closed when no goroutine runs any more; nil unless a caller waits for that
}

// Do queues job. It never blocks.
func (w *Workers) Do(job func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs = append(w.jobs, job)
	w.growLocked()
}

// growLocked starts a goroutine for each waiting job, up to the limit. w.mu is held.
func (w *Workers) growLocked() {
	for range min(len(w.jobs), w.Size+2*w.stalled-w.running) {
		w.running++
		go w.work()
	}
}

// Backlog returns the number of jobs that have not begun.
func (w *Workers) Backlog() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.jobs)
}

// work runs jobs until there are none. If a job ends its goroutine (runtime.Goexit), as a user's code can, another goroutine
// takes its place.
func (w *Workers) work() {
	done := false
	defer func() {
		if !done {
			go w.work()
		}
	}()
	for job := w.next(); job != nil; job = w.next() {
		w.run(job)
	}
	done = true
}

func (w *Workers) run(job func()) {
	defer w.begin()()
	job()
}

// begin starts the clock of a job. Once the job has taken longer than Stall, its goroutine counts as stalled until end
// is called.
func (w *Workers) begin() (end func()) {
	if w.Stall == 0 {
		return func() {}
	}
	late, over := false, false // w.mu
	timer := time.AfterFunc(w.Stall, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !over {
			late = true
			w.stalled++
			w.growLocked()
		}
	})
	return func() {
		timer.Stop()
		w.mu.Lock()
		defer w.mu.Unlock()
		if over = true; late {
			w.stalled--
		}
	}
}

func (w *Workers) next() func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.jobs) == 0 {
		w.jobs = nil
		if w.running--; w.running == 0 && w.idle != nil {
			close(w.idle)
			w.idle = nil
		}
		return nil
	}
	job := w.jobs[0]
	w.jobs = w.jobs[1:]
	return job
}

// Wait returns when all jobs are done.
func (w *Workers) Wait() {
	if idle := w.busy(); idle != nil {
		<-idle
	}
}

// busy returns a channel that is closed when no goroutine runs any more, nil if none runs now.
func (w *Workers) busy() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running == 0 {
		return nil
	}
	if w.idle == nil {
		w.idle = make(chan struct{})
	}
	return w.idle
}
