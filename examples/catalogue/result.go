package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/relock-go/relock/examples/internal/crew"
	"github.com/relock-go/relock/examples/internal/deployment"
	"github.com/relock-go/relock/examples/internal/screen"
)

// A result is a finished job.
type result struct {
	opts        options
	interrupted bool
	outcome     crew.Outcome[report]
	sample      crew.Outcome[report] // of a part of the job without a cache
	cost        deployment.Cost
}

// Clean reports whether no price was stale.
func (r *result) Clean() bool { return r.outcome.Total.Stale == 0 }

// Print writes the table.
func (r *result) Print(out io.Writer) { screen.PrintTable(out, r.rows(), r.sentence()) }

// rows returns the rows of the table.
func (r *result) rows() []screen.Row {
	t := r.outcome.Total
	rows := []screen.Row{
		{Name: "prices served", Value: count(t.Reads)},
		{Name: "prices changed", Value: count(t.Writes)},
		{Name: "prices compared with their row", Value: count(t.Checks)},
		{Name: "stale", Value: count(t.Stale)},
		{Name: "SQL queries saved", Value: fmt.Sprintf("%.2f %%", 100*(1-float64(t.Queries)/float64(max(t.Reads, 1))))},
	}
	if r.opts.kills > 0 {
		rows = append(rows, screen.Row{Name: "processes killed", Value: fmt.Sprintf("%d of %d", r.outcome.Kills, r.opts.kills)})
	}
	if t.Lost > 0 {
		rows = append(rows, screen.Row{Name: "holds lost", Value: count(t.Lost)})
	}
	rows = append(rows,
		screen.Row{Name: "seconds", Value: fmt.Sprintf("%.2f", r.outcome.Took.Seconds())},
		screen.Row{Name: "prices/s", Value: rate(r.outcome)})
	if r.opts.lock == lockRelock {
		rows = append(rows,
			screen.Row{Name: "prices/s, each from SQL", Value: rate(r.sample)},
			screen.Row{Name: "Redis commands per price", Value: fmt.Sprintf("%.4f (%s)", float64(r.cost.Commands)/float64(max(t.Reads, 1)), r.cost.Counted)})
	}
	return rows
}

// sentence says in one sentence what the table shows.
func (r *result) sentence() string {
	switch t := r.outcome.Total; {
	case !r.Clean():
		return fmt.Sprintf("FAILED: %d of %d prices that were compared with their row were stale.", t.Stale, t.Checks)
	case r.interrupted:
		return fmt.Sprintf("Interrupted at %d of %d. Until then no price was stale.", t.Reads, r.opts.reads)
	}
	return "No price was stale."
}

// rate returns the number of prices that were served in a second.
func rate(o crew.Outcome[report]) string {
	return fmt.Sprintf("%.0f", float64(o.Total.Reads)/o.Took.Seconds())
}

// count prints a number of things.
func count(n int64) string { return strconv.FormatInt(n, 10) }
