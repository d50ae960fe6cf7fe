// Package outage keeps the log of an incident short.
package outage

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Outages are the outages of one session's locks. When the server stops serving a lock, the log gets one line at the
// beginning and one at the end, with counts, however many callers wait for the lock meanwhile.
type Outages struct {
	Log   func(level slog.Level, text string, attrs ...slog.Attr)
	Quiet time.Duration // an outage also ends when no command has failed for this long: no caller waits then

	Open  atomic.Int32 // how many outages there are; written with mu held
	mu    sync.Mutex   // a leaf
	locks map[string]*outage
}

// An outage is the outage of one lock.
type outage struct {
	began    time.Time
	lasted   time.Duration // up to the latest failure
	waiters  int           // calls that waited for the lock during it and sent a command
	failures int           // commands that failed
	timer    *time.Timer
}

// Begin counts a command that failed. newWaiter says that it is the first failure of its call. Begin starts an outage
// of the lock unless there is one.
func (o *Outages) Begin(name string, err error, newWaiter bool) {
	o.mu.Lock()
	one, ok := o.locks[name]
	if !ok {
		one = &outage{began: time.Now()}
		one.timer = time.AfterFunc(o.Quiet, func() { o.end(name, one, "no call waits any more for a lock that the server did not serve") })
		if o.locks == nil {
			o.locks = make(map[string]*outage)
		}
		o.locks[name] = one
		o.Open.Add(1)
	}
	o.addLocked(one, newWaiter)
	o.mu.Unlock()
	if !ok {
		o.Log(slog.LevelWarn, "the server does not serve a lock; trying again", slog.String("lock", name), slog.String("error", err.Error()))
	}
}

// Add counts a command that failed if there is an outage of the lock, and reports whether there is one.
func (o *Outages) Add(name string) bool {
	if o.Open.Load() == 0 {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	one, ok := o.locks[name]
	if ok {
		o.addLocked(one, false)
	}
	return ok
}

func (o *Outages) addLocked(one *outage, newWaiter bool) {
	one.failures++
	if newWaiter {
		one.waiters++
	}
	one.lasted = time.Since(one.began)
	one.timer.Reset(o.Quiet)
}

// Answered ends the outage of a lock, if there is one, because the server has replied to a command. It need not be called while
// Open is 0.
func (o *Outages) Answered(name string) {
	o.mu.Lock()
	one := o.locks[name]
	if one != nil {
		one.lasted = time.Since(one.began)
	}
	o.mu.Unlock()
	if one != nil {
		o.end(name, one, "the server serves a lock again")
	}
}

// end ends an outage and logs its end, once.
func (o *Outages) end(name string, one *outage, text string) {
	o.mu.Lock()
	current := o.locks[name] == one
	if current {
		delete(o.locks, name)
		o.Open.Add(-1)
		one.timer.Stop()
	}
	o.mu.Unlock()
	if current { // one no longer changes
		o.Log(slog.LevelInfo, text, slog.String("lock", name), slog.Duration("lasted", one.lasted),
			slog.Int("waiters", one.waiters), slog.Int("failures", one.failures))
	}
}

// Close forgets all outages without logging their end.
func (o *Outages) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, one := range o.locks {
		one.timer.Stop()
		delete(o.locks, name)
		o.Open.Add(-1)
	}
}
