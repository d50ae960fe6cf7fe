package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/relock-go/relock/bench/internal/contender"
)

const childEnv = "RELOCK_BENCH_CHILD"

// IsChild reports whether this process was started by [Start]. Its main function then only calls [Main].
func IsChild() bool {
	_, ok := os.LookupEnv(childEnv)
	return ok
}

// Main does the child's work and returns the exit status.
func Main() int {
	// Ctrl-C in a terminal goes to all processes. The parent handles it, and then ends the input of its children.
	signal.Ignore(os.Interrupt)
	if err := serve(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench worker:", err)
		return 1
	}
	return 0
}

// serve handles lines until there are no more. It reads ahead, so that the end of the input also ends a run.
func serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	lines, answers := json.NewDecoder(in), json.NewEncoder(out)
	var job Job
	if err := lines.Decode(&job); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	orders := make(chan Order)
	go func() {
		defer stop()
		defer close(orders)
		for {
			var o Order
			if lines.Decode(&o) != nil { // in general this is the end of the input
				return
			}
			orders <- o
		}
	}()
	return job.serve(ctx, orders, answers)
}

func (j Job) serve(ctx context.Context, orders <-chan Order, answers *json.Encoder) error {
	crew, err := j.open(ctx)
	if err != nil {
		return answers.Encode(Outcome{Err: err.Error()})
	}
	defer crew.close()
	if err := answers.Encode(Outcome{}); err != nil {
		return err
	}
	for order := range orders {
		if err := answers.Encode(crew.run(ctx, order)); err != nil {
			return err
		}
	}
	return nil
}

// A crew is the goroutines of one process.
type crew struct {
	process    contender.Process
	site       *Site
	goroutines []*goroutine
}

func (j Job) open(ctx context.Context) (*crew, error) {
	c, ok := contender.Find(j.Contender)
	if !ok {
		return nil, fmt.Errorf("no contender is named %q", j.Contender)
	}
	site, err := OpenSite(j.Site)
	if err != nil {
		return nil, err
	}
	process, err := c.Open(ctx, j.URL, j.Workload)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", c.Name, err)
	}
	all := &crew{process: process, site: site}
	for number := range j.Workload.Goroutines {
		places := map[bool][]place{}
		for warmUp, kind := range map[bool]string{false: "lock:", true: "warm-up:"} {
			if places[warmUp], err = j.places(ctx, all, number, kind); err != nil {
				return nil, err
			}
		}
		all.goroutines = append(all.goroutines, newGoroutine(j, number, places, j.names(ctx, process, number)))
	}
	return all, nil
}

func (j Job) places(ctx context.Context, c *crew, number int, kind string) ([]place, error) {
	first, n := 0, max(j.Workload.Locks, 1)
	if j.Workload.Spots() != n { // a lock for each goroutine
		first = j.Process*j.Workload.Goroutines + number
	}
	places := make([]place, n)
	for i := range places {
		mutex, err := c.process.Mutex(ctx, number, j.Prefix+kind+strconv.Itoa(first+i))
		if err != nil {
			return nil, fmt.Errorf("lock %d of goroutine %d: %w", first+i, number, err)
		}
		places[i] = place{mutex, c.site.Spot(first + i)}
	}
	return places, nil
}

// names returns a function that makes locks. No other call of the function returns a lock of the same name.
func (j Job) names(ctx context.Context, process contender.Process, number int) func() (contender.Mutex, error) {
	of, used := fmt.Sprintf("%sorder:%d:%d:", j.Prefix, j.Process, number), 0
	return func() (contender.Mutex, error) {
		used++
		return process.Mutex(ctx, number, of+strconv.Itoa(used))
	}
}

func (c *crew) close() {
	c.process.Close()
	c.site.Close()
}

// run makes the goroutines wait for the beginning and work until the end, and adds up their results.
func (c *crew) run(ctx context.Context, order Order) Outcome {
	ctx, cutOff := context.WithCancel(ctx)
	defer cutOff()
	end := order.Begin.Add(order.For)
	// The context has no deadline: some clients are slower with a deadline, and one peer takes the deadline for the longest
	// wait.
	defer time.AfterFunc(time.Until(end.Add(order.Cut)), cutOff).Stop()

	begin := make(chan struct{})
	var ready, working sync.WaitGroup
	for _, g := range c.goroutines {
		g.reset(order.WarmUp)
		ready.Add(1)
		working.Go(func() {
			ready.Done()
			<-begin
			g.run(ctx, end)
		})
	}
	ready.Wait()
	var before, after runtime.MemStats
	runtime.GC() // so that this run does not collect the garbage of an earlier one
	runtime.ReadMemStats(&before)
	time.Sleep(time.Until(order.Begin))
	close(begin)
	working.Wait()
	runtime.ReadMemStats(&after)
	return c.outcome(after.Mallocs - before.Mallocs)
}

func (c *crew) outcome(mallocs uint64) Outcome {
	o := Outcome{Mallocs: mallocs}
	waits, reads, writes := newHistogram(), newHistogram(), newHistogram()
	for _, g := range c.goroutines {
		o.InTime = append(o.InTime, g.inTime)
		o.Sections += g.sections
		o.Errors += g.errors
		if g.cutOff {
			o.CutOff++
		}
		if o.First == "" && g.first != nil {
			o.First = g.first.Error()
		}
		waits.Merge(g.waits)
		reads.Merge(g.reads)
		writes.Merge(g.writes)
	}
	o.Waits = waits.Export()
	if reads.TotalCount()+writes.TotalCount() > 0 {
		o.Reads, o.Writes = reads.Export(), writes.Export()
	}
	return o
}
