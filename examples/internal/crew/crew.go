// Package crew does a job with several processes. It starts the program again for each of these children, kills some of the
// children if that is asked for, replaces them, and adds up what they report.
//
//	parent → child   one line, once all children are ready; the end of the input means stop
//	child → parent   reports in JSON: ready, then working every 50 ms, then done
//
// If the parent ends, the child's input ends, and so the child ends, too.
package crew

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/relock-go/relock/examples/internal/screen"
)

// graceful is how long children may take to stop.
const graceful = 10 * time.Second

// A Tally is what a process has done so far. Tallies add up.
type Tally[T any] interface {
	Plus(T) T
	Done() int64 // how much of the goal this is
}

// A Plan is a job as its crew sees it.
type Plan[T Tally[T]] struct {
	Processes int
	Kills     int                             // processes to kill with SIGKILL, evenly spread over the way to the goal
	Goal      int64                           // the job is done when the total tally reaches this number
	Unit      string                          // what the goal counts: "keys"
	Role      func(name string, seat int) any // a process's role, sent as JSON (see Play); a replacement gets the seat of the process that it replaces
	Enough    func(total T) bool              // when to stop before the children are done; nil: never
	Stderr    io.Writer                       // for progress, and for the children's stderr
}

// An Outcome is the result of a job.
type Outcome[T any] struct {
	Total T             // the sum of the processes' last reports; a killed process may have done more
	Names [][]string    // of the processes; those that replaced each other together, in the order of their lives
	Kills int           // how many were killed
	Took  time.Duration // from the moment when all were ready to the end of the last one
}

// Run does the job and returns when all processes have ended. The error says why they could not finish. If ctx ends, the error
// is [screen.ErrInterrupted], and the outcome is what was done until all processes had stopped.
func Run[T Tally[T]](ctx context.Context, plan Plan[T]) (Outcome[T], error) {
	c := &crew[T]{plan: plan, progress: screen.NewProgress(plan.Stderr, plan.Goal, plan.Unit), events: make(chan event[T])}
	err := c.run(ctx)
	return Outcome[T]{Total: c.total(), Names: c.names(), Kills: c.kills, Took: c.ended.Sub(c.began)}, err
}

// A crew has the children at work. Only the goroutine in run may use its fields.
type crew[T Tally[T]] struct {
	plan     Plan[T]
	progress *screen.Progress
	events   chan event[T]

	members []*process[T] // in the order they were started, the dead included
	running int
	kills   int

	began   time.Time // when all were ready; zero until then
	ended   time.Time
	stopped bool
	failure error
}

// run starts the children and returns when all have ended.
func (c *crew[T]) run(ctx context.Context) error {
	defer c.progress.End()
	for seat := range c.plan.Processes {
		c.start(seat+1, 1)
	}
	interrupt := ctx.Done()
	var patience <-chan time.Time
	for c.running > 0 {
		select {
		case e := <-c.events:
			c.handle(e)
		case <-interrupt:
			interrupt = nil
			c.fail(fmt.Errorf("%w before all %d %s were done", screen.ErrInterrupted, c.plan.Goal, c.plan.Unit))
		case <-patience:
			c.killAll()
		}
		if c.stopped && patience == nil {
			patience = time.After(graceful)
		}
	}
	c.ended = time.Now()
	return c.failure
}

// start adds a child.
func (c *crew[T]) start(seat, life int) {
	if c.stopped {
		return
	}
	name := "p" + strconv.Itoa(seat)
	if life > 1 {
		name += "." + strconv.Itoa(life)
	}
	p, err := startProcess(name, c.plan.Role(name, seat), c.plan.Stderr, c.events)
	if err != nil {
		c.fail(err)
		return
	}
	p.seat, p.life = seat, life
	c.members = append(c.members, p)
	c.running++
}

// handle handles a child's report.
func (c *crew[T]) handle(e event[T]) {
	p := e.from
	if e.exited {
		c.bury(p, e.err)
		return
	}
	p.last = e.report
	if p.last.Phase == phaseReady {
		c.begin(p)
		return
	}
	total := c.total()
	c.progress.Show(total.Done(), c.kills)
	if c.plan.Enough != nil && c.plan.Enough(total) {
		c.stop()
	}
	c.strike(total.Done())
}

// begin starts the work of a child that is ready. The first children start together, and a replacement starts at once.
func (c *crew[T]) begin(p *process[T]) {
	if !c.began.IsZero() {
		p.begin()
		return
	}
	for _, m := range c.members {
		if m.last.Phase != phaseReady {
			return
		}
	}
	if len(c.members) < c.plan.Processes {
		return
	}
	c.began = time.Now()
	for _, m := range c.members {
		m.begin()
	}
}

// strike kills a child at random when the next kill is due. The kills are spread evenly over the job.
func (c *crew[T]) strike(done int64) {
	due := c.plan.Goal * int64(c.kills+1) / int64(c.plan.Kills+1)
	if c.stopped || c.kills == c.plan.Kills || done < due {
		return
	}
	var busy []*process[T]
	for _, m := range c.members {
		if m.busy() {
			busy = append(busy, m)
		}
	}
	if len(busy) == 0 {
		return
	}
	victim := busy[rand.IntN(len(busy))]
	if err := victim.kill(); err != nil {
		c.fail(fmt.Errorf("kill %s: %w", victim.name, err))
		return
	}
	victim.killed = true
	c.kills++
}

// bury removes a child that has ended, and replaces it if the crew killed it.
func (c *crew[T]) bury(p *process[T], err error) {
	p.exited = true
	c.running--
	switch {
	case p.killed && err == nil: // the child was done before the signal came
		c.kills--
	case p.killed:
		c.start(p.seat, p.life+1)
	case err != nil:
		c.fail(fmt.Errorf("process %s: %w", p.name, err))
	case p.last.Phase != phaseDone:
		c.fail(fmt.Errorf("process %s ended before its work was done", p.name))
	}
}

// fail remembers the first failure, and stops the children.
func (c *crew[T]) fail(err error) {
	if c.stopped {
		return
	}
	c.failure = err
	c.stop()
}

// stop makes the children end, and starts no more of them.
func (c *crew[T]) stop() {
	c.stopped = true
	for _, m := range c.members {
		m.stop()
	}
}

// killAll ends the children that did not stop in time.
func (c *crew[T]) killAll() {
	for _, m := range c.members {
		if !m.exited {
			_ = m.kill()
		}
	}
}

// total adds up what the children reported.
func (c *crew[T]) total() T {
	var sum T
	for _, m := range c.members {
		sum = sum.Plus(m.last.Tally)
	}
	return sum
}

// names returns the children's names, for each seat in the order of its processes.
func (c *crew[T]) names() [][]string {
	seats := make([][]string, c.plan.Processes)
	for _, m := range c.members {
		seats[m.seat-1] = append(seats[m.seat-1], m.name)
	}
	return seats
}
