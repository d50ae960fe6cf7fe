// Package contender has the locks that are compared, each set up as its users would set it up.
package contender

import (
	"context"
	"slices"
)

// A Contender is a lock with its settings.
type Contender struct {
	Name      string
	About     string   // the settings, for the report
	Own       bool     // Relock, in one of its forms
	Reentrant bool     // its owner may lock again
	Fault     bool     // locks nothing: it shows that the safety column can see. Only runs when it is asked for.
	Plain     []string // commands that it sends outside of scripts, in lower case, but for those of the connection itself

	// Open connects one process whose goroutines will be so many.
	Open func(ctx context.Context, url string, goroutines int) (Process, error)
}

// A Process is a contender in one process.
type Process interface {
	// Mutex is the lock of that name for one goroutine, which alone will use it.
	Mutex(ctx context.Context, goroutine int, name string) (Mutex, error)
	Close()
}

// A Mutex is one goroutine's handle of a lock.
type Mutex interface {
	Lock(ctx context.Context) error
	Unlock(ctx context.Context) error
}

// All is every contender, in the order of the report.
func All() []Contender { return slices.Concat(peers, own, []Contender{none}) }

// Find gives the contender of a name.
func Find(name string) (Contender, bool) {
	all := All()
	i := slices.IndexFunc(all, func(c Contender) bool { return c.Name == name })
	if i < 0 {
		return Contender{}, false
	}
	return all[i], true
}

// none is the seeded fault.
var none = Contender{
	Name: "none", About: "no lock at all", Fault: true, Reentrant: true,
	Open: func(context.Context, string, int) (Process, error) { return open{}, nil },
}

type open struct{}

func (open) Mutex(context.Context, int, string) (Mutex, error) { return open{}, nil }
func (open) Lock(context.Context) error                        { return nil }
func (open) Unlock(context.Context) error                      { return nil }
func (open) Close()                                            {}
