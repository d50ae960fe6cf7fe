package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/relock-go/relock/bench/internal/contender"
	"github.com/relock-go/relock/bench/internal/worker"
	"github.com/relock-go/relock/bench/internal/workload"
)

// A crew has the processes of one cell.
type crew struct {
	children []*worker.Child
	site     *worker.Site
	release  func() bool // stops watching the context
}

// A failure is the error of a contender in one cell.
type failure struct{ error }

const (
	// openWithin is how long processes may take to start and connect, even a thousand sessions or five JVMs.
	openWithin = 45 * time.Second
	// beginIn is long enough for every process to receive its order and start its goroutines.
	beginIn = 50 * time.Millisecond
	// cutAfter is for how much longer than a run a goroutine may wait for the lock. It is more than a queue of a thousand
	// takes, and many times the pause of polling clients. A goroutine that has not got the lock by then is cut off, and
	// counted.
	cutAfter = 2 * time.Second
	// killAfter is how long processes may take to reply after cutAfter.
	killAfter = 3 * time.Second
)

// startCrew starts the processes. When ctx ends, they are stopped, and calls that wait for them return an error.
func startCrew(ctx context.Context, c contender.Contender, w workload.Workload, url, site string, stderr io.Writer) (*crew, error) {
	var err error
	all := &crew{release: func() bool { return true }}
	if all.site, err = worker.CreateSite(site, w.Spots()); err != nil {
		return nil, err
	}
	job := worker.Job{
		Contender: c.Name, Workload: w, URL: url, Site: site,
		Prefix: "bench:" + rand.Text() + ":", // no run finds keys of another run
	}
	for job.Process = range w.Processes {
		child, err := worker.Start(job, stderr)
		if err != nil {
			all.stop()
			return nil, err
		}
		all.children = append(all.children, child)
	}
	children := all.children
	all.release = context.AfterFunc(ctx, func() { stopAll(children) })
	return all, nil
}

// stop ends the processes. The site can still be read.
func (c *crew) stop() {
	c.release()
	stopAll(c.children)
	c.site.Close()
}

func stopAll(children []*worker.Child) {
	var stopping sync.WaitGroup
	for _, child := range children {
		stopping.Go(child.Stop)
	}
	stopping.Wait()
}

func (c *crew) ready() error {
	_, err := c.answers(time.Now().Add(openWithin))
	return err
}

// warmUp is how long the processes run before the measurement: connections are made, scripts loaded, and pools filled.
const warmUp = 100 * time.Millisecond

func (c *crew) warmUp() error {
	_, err := c.run(worker.Order{WarmUp: true, For: warmUp, Cut: warmUp})
	return err
}

func (c *crew) measure(d time.Duration) ([]worker.Outcome, error) {
	return c.run(worker.Order{For: d, Cut: cutAfter})
}

// run gives the same order to all processes.
func (c *crew) run(order worker.Order) ([]worker.Outcome, error) {
	order.Begin = time.Now().Add(beginIn)
	for _, child := range c.children {
		if err := child.Run(order); err != nil {
			return nil, failure{worker.ErrEnded}
		}
	}
	return c.answers(order.Begin.Add(order.For + order.Cut + killAfter))
}

// answers waits for the replies of all processes. If one fails, the cell fails.
func (c *crew) answers(deadline time.Time) ([]worker.Outcome, error) {
	var all []worker.Outcome
	for i, child := range c.children {
		outcome, err := child.Answer(deadline)
		if err != nil {
			return nil, failure{fmt.Errorf("process %d: %w", i+1, err)}
		}
		all = append(all, outcome)
	}
	return all, nil
}
