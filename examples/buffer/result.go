package main

import (
	"fmt"
	"io"

	"github.com/relock-go/relock/examples/internal/crew"
	"github.com/relock-go/relock/examples/internal/deployment"
	"github.com/relock-go/relock/examples/internal/screen"
)

// A result is a finished job.
type result struct {
	opts        options
	verdict     verdict
	interrupted bool
	fullest     int64
	outcome     crew.Outcome[report]
	cost        deployment.Cost
}

// Clean reports whether nothing was found. After an interrupt, items may be left in the buffer.
func (r *result) Clean() bool {
	v := r.verdict
	if r.interrupted {
		v.left = 0
	}
	return v.clean()
}

// Print writes the table.
func (r *result) Print(out io.Writer) {
	screen.PrintTable(out, r.rows(), r.sentence())
}

// rows returns the rows of the table.
func (r *result) rows() []screen.Row {
	v, did := r.verdict, r.outcome.Total
	rows := []screen.Row{
		{Name: "items", Value: count(v.items)},
		{Name: "lost", Value: count(v.lost)},
		{Name: "doubled", Value: count(v.doubled)},
		{Name: "out of order", Value: count(v.disorder)},
		{Name: "left in the buffer", Value: count(v.left)},
		{Name: "places used at most", Value: fmt.Sprintf("%d of %d", r.fullest, r.opts.capacity)},
		{Name: "taken per process", Value: screen.Split(r.outcome.Names, v.shares)},
		{Name: "waits while full", Value: count(did.Full)},
		{Name: "waits while empty", Value: count(did.Empty)},
	}
	if r.opts.kills > 0 {
		rows = append(rows, screen.Row{Name: "processes killed", Value: fmt.Sprintf("%d of %d", r.outcome.Kills, r.opts.kills)})
	}
	if did.Lost > 0 {
		rows = append(rows, screen.Row{Name: "holds lost", Value: count(did.Lost)})
	}
	seconds := r.outcome.Took.Seconds()
	return append(rows,
		screen.Row{Name: "seconds", Value: fmt.Sprintf("%.2f", seconds)},
		screen.Row{Name: "items/s", Value: fmt.Sprintf("%.0f", float64(v.items)/seconds)},
		screen.Row{Name: "Redis commands per item", Value: fmt.Sprintf("%.2f (%s)", float64(r.cost.Commands)/float64(max(v.items, 1)), r.cost.Counted)})
}

// sentence says in one sentence what the table shows.
func (r *result) sentence() string {
	if r.interrupted && r.Clean() {
		return fmt.Sprintf("Interrupted at %d of %d. Until then every item came through exactly once.", r.verdict.items, r.opts.items)
	}
	return r.verdict.sentence()
}

// sentence is the verdict in one sentence.
func (v verdict) sentence() string {
	if v.clean() {
		return "Every item came through exactly once."
	}
	return fmt.Sprintf("FAILED: lost %d, doubled %d, out of order %d, left in the buffer %d, places too many %d.",
		v.lost, v.doubled, v.disorder, v.left, v.overfull)
}
