package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/relock-go/relock/bench/internal/contender"
	"github.com/relock-go/relock/bench/internal/workload"
)

// A goroutine acquires a lock, stays inside, releases the lock, and begins again at once. During a run no other goroutine uses
// its fields.
type goroutine struct {
	id       uint64 // its number among all processes, not 0
	workload workload.Workload
	all      map[bool][]place                // false: measured; true: warming up
	places   []place                         // of this run
	choose   func() int                      // the place of the next section
	next     func() (contender.Mutex, error) // makes a lock that was never used
	dice     *rand.Rand                      // for reads and writes

	sections, inTime, errors int64
	cutOff                   bool
	first                    error
	waits                    *hdrhistogram.Histogram
	reads, writes            *hdrhistogram.Histogram // the waits of readers and of writers among them, for a read-write lock
}

// A place is a lock as this goroutine uses it, and the spot that the lock protects.
type place struct {
	mutex contender.Mutex
	spot  *Spot
}

// zipf is the skew of the distribution: the first of 20 locks gets about a third of the sections.
const zipf = 1.2

func newGoroutine(job Job, number int, places map[bool][]place, next func() (contender.Mutex, error)) *goroutine {
	return &goroutine{
		next:     next,
		id:       uint64(job.Process*job.Workload.Goroutines+number) + 1,
		workload: job.Workload, all: places, waits: newHistogram(), reads: newHistogram(), writes: newHistogram(),
	}
}

// reset clears the results of the last run. Random numbers are seeded, so that every contender gets the same sequence.
func (g *goroutine) reset(warmUp bool) {
	g.places = g.all[warmUp]
	g.choose = chooser(g.workload.Names, len(g.places), rand.New(rand.NewPCG(g.id, 0)))
	g.dice = rand.New(rand.NewPCG(g.id, 1))
	g.sections, g.inTime, g.errors, g.cutOff, g.first = 0, 0, 0, false, nil
	g.waits.Reset()
	g.reads.Reset()
	g.writes.Reset()
}

// chooser returns the function that chooses among n places.
func chooser(names workload.Names, n int, dice *rand.Rand) func() int {
	switch {
	case n == 1:
		return func() int { return 0 }
	case names == workload.Random:
		return func() int { return dice.IntN(n) }
	}
	skewed := rand.NewZipf(dice, zipf, 1, uint64(n-1))
	return func() int { return int(skewed.Uint64()) }
}

// fail counts an error, unless the error comes from being cut off.
func (g *goroutine) fail(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	g.errors++
	if g.first == nil {
		g.first = fmt.Errorf("goroutine %d: %w", g.id, err)
	}
}

// run does sections until the end.
func (g *goroutine) run(ctx context.Context, end time.Time) {
	if g.workload.Reentrant {
		outer := g.places[0]
		if err := outer.mutex.Lock(ctx); err != nil {
			g.fail(ctx, err)
			return
		}
		outer.spot.Enter(whole, whole)
		defer func() {
			outer.spot.Leave(whole)
			g.fail(ctx, outer.mutex.Unlock(ctx))
		}()
	}
	for began := time.Now(); began.Before(end) && ctx.Err() == nil; {
		began = g.section(ctx, began, end)
	}
}

// section does one section, and returns the time after it. Apart from the lock's own work it only reads the clock twice.
func (g *goroutine) section(ctx context.Context, began, end time.Time) time.Time {
	p, err := g.place()
	a := g.access()
	if err == nil {
		err = p.lock(ctx, a.read)
	}
	entered := time.Now()
	g.wait(a, entered.Sub(began))
	if err != nil {
		g.fail(ctx, err)
		if g.cutOff = ctx.Err() != nil; !g.cutOff {
			time.Sleep(time.Millisecond) // a storm of errors would distort the measurement
		}
		return time.Now()
	}
	if !g.workload.Reentrant { // a re-entrant goroutine is inside all the time
		p.spot.Enter(a.units, a.limit)
		g.work(entered)
		p.spot.Leave(a.units)
	}
	g.fail(ctx, p.unlock(ctx, a.read))
	g.sections++
	if entered.Before(end) {
		g.inTime++
	}
	return time.Now()
}

// An access is one way to take a lock: the whole lock, or one side of it.
type access struct {
	read         bool
	units, limit int64                   // see Spot
	waits        *hdrhistogram.Histogram // also counted here, besides the waits of all; nil if it is not
}

func (g *goroutine) access() access {
	switch g.workload.Kind {
	case workload.Permits:
		return access{units: 1, limit: int64(g.workload.Permits)}
	case workload.ReadWrite:
		if g.dice.IntN(100) < g.workload.Reads {
			return access{read: true, units: 1, limit: whole, waits: g.reads}
		}
		return access{units: whole, limit: whole, waits: g.writes}
	}
	return access{units: whole, limit: whole}
}

func (p place) lock(ctx context.Context, read bool) error {
	if read {
		return p.mutex.(contender.RWMutex).RLock(ctx)
	}
	return p.mutex.Lock(ctx)
}

func (p place) unlock(ctx context.Context, read bool) error {
	if read {
		return p.mutex.(contender.RWMutex).RUnlock(ctx)
	}
	return p.mutex.Unlock(ctx)
}

// place returns the lock of the next section. If a lock is used only once, place makes it, as a program makes the lock of an
// order, because this is part of what such a section costs.
func (g *goroutine) place() (place, error) {
	if g.workload.Names == workload.Once {
		mutex, err := g.next()
		return place{mutex, g.places[0].spot}, err
	}
	return g.places[g.choose()], nil
}

// work is what a goroutine does inside.
func (g *goroutine) work(entered time.Time) {
	for g.workload.Busy > 0 && time.Since(entered) < g.workload.Busy {
	}
	if g.workload.Idle > 0 {
		time.Sleep(g.workload.Idle)
	}
}

func (g *goroutine) wait(a access, d time.Duration) {
	ns := int64(min(max(d, 1), maxWait)) // within the bounds of a histogram, which has no other error
	_ = g.waits.RecordValue(ns)
	if a.waits != nil {
		_ = a.waits.RecordValue(ns)
	}
}
