// Package contender has the locks that are compared, each set up as its users would set it up.
package contender

import (
	"context"
	"slices"

	"github.com/relock-go/relock/bench/internal/workload"
)

// A Contender is a lock with its settings.
type Contender struct {
	Name      string
	About     string // the settings, for the report
	Kind      workload.Kind
	Own       bool     // a form of Relock
	Reentrant bool     // an owner may lock again
	Fault     bool     // locks nothing, and so shows that the column overlaps works; runs only when it is named
	Plain     []string // commands that it sends outside of scripts, in lower case, without those of the connection

	// Open connects one process of the workload.
	Open func(ctx context.Context, url string, w workload.Workload) (Process, error)

	// Missing returns why the contender cannot run on this machine, or "" if it can. If Missing is nil, the contender always
	// can.
	Missing func() string
}

// Fits reports whether the contender can do a workload at all.
func (c Contender) Fits(w workload.Workload) bool {
	switch {
	case c.Fault:
		return w.Kind == workload.Exclusive || w.Kind == workload.ReadWrite
	case c.Name == split.Name:
		return w.Kind == c.Kind && w.Permits%w.Processes == 0
	}
	return c.Kind == w.Kind && (c.Reentrant || !w.Reentrant)
}

// A Process is a contender in one process.
type Process interface {
	// Mutex returns the lock with the given name for one goroutine. No other goroutine may use the returned Mutex.
	Mutex(ctx context.Context, goroutine int, name string) (Mutex, error)
	Close()
}

// A Mutex is one goroutine's handle of a lock.
type Mutex interface {
	Lock(ctx context.Context) error
	Unlock(ctx context.Context) error
}

// An RWMutex is a Mutex that also has a read side.
type RWMutex interface {
	Mutex
	RLock(ctx context.Context) error
	RUnlock(ctx context.Context) error
}

// All returns every contender, in the order of the report.
func All() []Contender {
	return slices.Concat(peers, own, polling, redisson, shared, []Contender{split, none})
}

// Find returns the contender with a name.
func Find(name string) (Contender, bool) {
	all := All()
	i := slices.IndexFunc(all, func(c Contender) bool { return c.Name == name })
	if i < 0 {
		return Contender{}, false
	}
	return all[i], true
}

// none is the contender that locks nothing.
var none = Contender{
	Name: "none", About: "no lock at all", Fault: true, Reentrant: true,
	Open: func(context.Context, string, workload.Workload) (Process, error) { return open{}, nil },
}

type open struct{}

func (open) Mutex(context.Context, int, string) (Mutex, error) { return open{}, nil }
func (open) Lock(context.Context) error                        { return nil }
func (open) Unlock(context.Context) error                      { return nil }
func (open) RLock(context.Context) error                       { return nil }
func (open) RUnlock(context.Context) error                     { return nil }
func (open) Close()                                            {}
