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
	verdict     verdict
	interrupted bool
	outcome     crew.Outcome[report]
	cost        deployment.Cost
}

// Clean reports whether every number was handed out once, in the order of the tokens.
func (r *result) Clean() bool {
	v := r.verdict
	return v.duplicates == 0 && v.gaps == 0 && (v.reversals == 0 || r.opts.lock == lockNone)
}

// Print writes the table.
func (r *result) Print(out io.Writer) {
	screen.PrintTable(out, r.rows(), r.sentence())
}

// rows returns the rows of the table.
func (r *result) rows() []screen.Row {
	v := r.verdict
	reversals := count(v.reversals)
	if r.opts.lock == lockNone {
		reversals = "no lock, no tokens"
	}
	rows := []screen.Row{
		{Name: "keys", Value: count(v.numbers)},
		{Name: "duplicates", Value: count(v.duplicates)},
	}
	snowflake := r.opts.ids == idsSnowflake
	if snowflake {
		rows = append(rows, screen.Row{Name: "node numbers", Value: fmt.Sprintf("%d, passed on %d times", v.nodes, v.successions)})
	} else {
		rows = append(rows, screen.Row{Name: "gaps", Value: count(v.gaps)})
	}
	rows = append(rows,
		screen.Row{Name: "out-of-order tokens", Value: reversals},
		screen.Row{Name: "keys per process", Value: screen.Split(r.outcome.Names, v.shares)})
	if r.opts.kills > 0 {
		rows = append(rows, screen.Row{Name: "processes killed", Value: fmt.Sprintf("%d of %d", r.outcome.Kills, r.opts.kills)})
		if !snowflake {
			rows = append(rows,
				screen.Row{Name: "keys taken over", Value: count(r.outcome.Total.Adopted) + " (raised by a process that was killed before it recorded them)"})
		}
	}
	if lost := r.outcome.Total.Lost; lost > 0 {
		rows = append(rows, screen.Row{Name: "holds lost", Value: count(lost)})
	}
	seconds := r.outcome.Took.Seconds()
	return append(rows,
		screen.Row{Name: "seconds", Value: fmt.Sprintf("%.2f", seconds)},
		screen.Row{Name: "keys/s", Value: fmt.Sprintf("%.0f", float64(v.numbers)/seconds)},
		screen.Row{Name: "Redis commands per key", Value: r.commandsPerKey()})
}

// commandsPerKey formats how many commands a number cost.
func (r *result) commandsPerKey() string {
	if r.opts.lock == lockNone {
		return "no lock, no commands"
	}
	return fmt.Sprintf("%.2f (%s)", float64(r.cost.Commands)/float64(max(r.verdict.numbers, 1)), r.cost.Counted)
}

// sentence says in one sentence what the table shows.
func (r *result) sentence() string {
	switch {
	case r.Clean() && r.interrupted:
		return fmt.Sprintf("Interrupted at %d of %d. Until then every number was handed out exactly once.", r.verdict.numbers, r.opts.keys)
	case r.Clean():
		return "Every number was handed out exactly once."
	}
	v := r.verdict
	findings := fmt.Sprintf("FAILED: duplicates %d, gaps %d", v.duplicates, v.gaps)
	if r.opts.lock != lockNone {
		findings += fmt.Sprintf(", out-of-order tokens %d", v.reversals)
	}
	return findings + "."
}

// count prints a number of things.
func count(n int64) string { return strconv.FormatInt(n, 10) }
