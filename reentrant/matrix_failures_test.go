package reentrant_test

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// A failureKind says what happens to the session's node. It concerns only the locks on that node, and only the session
// under test: the other session reaches both nodes.
type failureKind struct {
	name     string
	begin    func(c *cell)
	end      func(c *cell) // nil: the node cannot be repaired
	observer string        // what the session's observer does: nothing, "panics" or "blocks"

	refuses     bool // the node reads commands and refuses them
	unreachable bool // the session gets no replies while it lasts
	unheard     bool // no command of the session reaches the node while it lasts
	unanswered  bool // each command is executed, and its reply is lost
	forgets     bool // the node forgets its locks
	lies        bool // replies are not what the contract of Remote allows
	mild        bool // a call that tries again succeeds during the failure
}

const (
	passingFor = 2500 * time.Millisecond // how long temporary errors last
	lateBy     = 1500 * time.Millisecond // less than the time limit of a command
	tooLateBy  = 3 * time.Second         // more than the time limit of a command
)

var failures = []failureKind{
	{name: "none", mild: true},
	{name: "hangs", unreachable: true, begin: func(c *cell) {
		c.far.Partition("A", true)
		c.every(func(op memory.Op) memory.Verdict {
			if op.Verb == memory.Connect {
				return memory.Delay(24 * time.Hour)
			}
			return memory.Pass
		})
	}, end: func(c *cell) {
		c.far.SetFault(nil)
		c.far.Partition("A", false)
	}},
	{name: "refuses", refuses: true, begin: always(memory.Refuse("NOPERM this user has no permissions")), end: mended},
	{name: "unreachable", unreachable: true, unheard: true, begin: always(memory.Lose), end: mended},
	{name: "unreachable-for-a-while", mild: true, unheard: true, begin: func(c *cell) {
		until := time.Now().Add(passingFor)
		c.every(func(memory.Op) memory.Verdict { return memory.Verdict{Lost: time.Now().Before(until)} })
	}, end: mended},
	{name: "answers-nothing", unreachable: true, unanswered: true, begin: always(memory.LoseReply), end: mended},
	{name: "forgets", forgets: true, begin: func(c *cell) { c.far.Flush() }},
	{name: "answers-late", mild: true, begin: always(memory.Verdict{Delay: lateBy / 3, Late: lateBy * 2 / 3}), end: mended},
	{name: "answers-too-late", unreachable: true, begin: always(memory.DelayReply(tooLateBy)), end: mended},
	{name: "answers-twice", mild: true, begin: always(memory.Verdict{Again: 700 * time.Millisecond}), end: mended},
	{name: "answers-garbage", lies: true, begin: func(c *cell) { c.garbage.Store(true); c.pushGarbage() },
		end: func(c *cell) { c.garbage.Store(false) }},
	{name: "observer-panics", mild: true, observer: "panics", begin: func(c *cell) { c.trap.set.Store(true) }, end: func(c *cell) { c.trap.set.Store(false) }},
	{name: "observer-blocks", mild: true, observer: "blocks", begin: func(c *cell) { c.trap.set.Store(true) }, end: func(c *cell) {
		c.trap.set.Store(false)
		close(c.trap.open)
	}},
}

// always applies the same verdict to all commands and messages of the session.
func always(v memory.Verdict) func(c *cell) {
	return func(c *cell) { c.every(func(memory.Op) memory.Verdict { return v }) }
}

func mended(c *cell) { c.far.SetFault(nil) }

// every makes f decide about everything under way between the failing node and any session but B.
func (c *cell) every(f memory.Fault) {
	c.far.SetFault(func(op memory.Op) memory.Verdict {
		if op.Session == "B" {
			return memory.Pass
		}
		return f(op)
	})
}

// pushGarbage sends the tested session messages about grants, signals and moves that never happened.
func (c *cell) pushGarbage() {
	for _, name := range []string{"far/x", backend.ConditionsOf("far/rw")} {
		for _, epoch := range []uint64{0, 1, 1 << 63} {
			c.sink.Signalled(name, epoch, true)
			c.sink.Wanted(name, epoch)
			c.sink.Granted(backend.Grant{Name: name, Epoch: epoch, First: 3, Last: 1, TTL: -1})
		}
	}
	if shared, ok := c.sink.(backend.SharedSink); ok {
		for _, name := range []string{"far/rw", "far/sem", ""} {
			shared.Shared(backend.ShareGrant{Name: name, Epoch: 1, Units: -1, First: 3, Last: 1, TTL: -1})
			shared.SharedWanted(name, -1, 0)
		}
	}
	c.sink.Granted(backend.Grant{})
	c.sink.Taken("", 1)
	c.sink.Reconnected()
}

// A trap is an observer that fails: it panics, or blocks until it is opened.
type trap struct {
	panics bool
	set    atomic.Bool
	open   chan struct{}
}

func (t *trap) Observe(context.Context, reentrant.Event) {
	switch {
	case !t.set.Load():
	case t.panics:
		panic("the observer is broken")
	default:
		<-t.open
	}
}
