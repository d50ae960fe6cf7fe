package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"
)

// graceful is how long children that were told to stop may take.
const graceful = 10 * time.Second

// A crew is the children at work. Everything in it belongs to the goroutine in run.
type crew struct {
	opts     options
	role     role // of each child, but for its name
	stderr   io.Writer
	progress *progress
	events   chan event

	members []*process // in the order they were started, the dead included
	running int
	kills   int

	began   time.Time // when all were ready; zero before
	ended   time.Time
	stopped bool
	failure error
}

// newCrew makes a crew that has not started.
func newCrew(opts options, r role, stderr io.Writer) *crew {
	return &crew{
		opts: opts, role: r, stderr: stderr, progress: newProgress(stderr, opts.keys), events: make(chan event),
	}
}

// run starts the children and returns when all have ended. The error says why they could not finish.
func (c *crew) run(ctx context.Context) error {
	defer c.progress.end()
	for seat := range c.opts.processes {
		c.start(seat+1, 1)
	}
	interrupt := ctx.Done()
	var patience <-chan time.Time
	for c.running > 0 {
		select {
		case e := <-c.events:
			c.hear(e)
		case <-interrupt:
			interrupt = nil
			c.fail(errors.New("interrupted before the last number was handed out"))
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
func (c *crew) start(seat, life int) {
	if c.stopped {
		return
	}
	r := c.role
	r.Server = "p" + strconv.Itoa(seat)
	if life > 1 {
		r.Server += "." + strconv.Itoa(life)
	}
	p, err := startProcess(r, c.stderr, c.events)
	if err != nil {
		c.fail(err)
		return
	}
	p.seat, p.life = seat, life
	c.members = append(c.members, p)
	c.running++
}

// hear takes in what a child said.
func (c *crew) hear(e event) {
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
	done := c.total().Keys
	c.progress.show(done, c.kills)
	if c.opts.lock == lockNone && done >= int64(c.opts.keys) {
		// Without a lock the number goes back again and again, and might take very long to arrive. As many records
		// as there should be numbers show enough.
		c.stop()
	}
	c.strike(done)
}

// begin lets a child start that is ready: the first ones together, a replacement at once.
func (c *crew) begin(p *process) {
	if !c.began.IsZero() {
		p.begin()
		return
	}
	for _, m := range c.members {
		if m.last.Phase != phaseReady {
			return
		}
	}
	if len(c.members) < c.opts.processes {
		return
	}
	c.began = time.Now()
	for _, m := range c.members {
		m.begin()
	}
}

// strike kills a child at random when the next kill is due. The kills are spread evenly over the job.
func (c *crew) strike(done int64) {
	due := int64(c.opts.keys) * int64(c.kills+1) / int64(c.opts.kills+1)
	if c.stopped || c.kills == c.opts.kills || done < due {
		return
	}
	var busy []*process
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

// bury takes a child off that has ended, and replaces it if we killed it.
func (c *crew) bury(p *process, err error) {
	p.exited = true
	c.running--
	switch {
	case p.killed && err == nil: // it was done before the signal came
		c.kills--
	case p.killed:
		c.start(p.seat, p.life+1)
	case err != nil:
		c.fail(fmt.Errorf("process %s: %w", p.name, err))
	case p.last.Phase != phaseDone:
		c.fail(fmt.Errorf("process %s ended before its work was done", p.name))
	}
}

// fail remembers the first failure and stops the others.
func (c *crew) fail(err error) {
	if c.stopped {
		return
	}
	c.failure = err
	c.stop()
}

// stop tells the children to end, and starts no more.
func (c *crew) stop() {
	c.stopped = true
	for _, m := range c.members {
		m.stop()
	}
}

// killAll ends the children that did not stop in time.
func (c *crew) killAll() {
	for _, m := range c.members {
		if !m.exited {
			_ = m.kill()
		}
	}
}

// total adds up what the children reported, the dead ones as far as they came to say.
func (c *crew) total() report {
	var sum report
	for _, m := range c.members {
		sum.Keys += m.last.Keys
		sum.Adopted += m.last.Adopted
		sum.Lost += m.last.Lost
		sum.Commands += m.last.Commands
	}
	return sum
}

// names gives the children's names, for each seat in the order of its lives.
func (c *crew) names() [][]string {
	seats := make([][]string, c.opts.processes)
	for _, m := range c.members {
		seats[m.seat-1] = append(seats[m.seat-1], m.name)
	}
	return seats
}
