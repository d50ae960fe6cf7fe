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

// Clean reports whether nothing was found.
func (r *result) Clean() bool { return r.verdict.clean() }

// Print writes the table.
func (r *result) Print(out io.Writer) {
	screen.PrintTable(out, r.rows(), r.sentence())
}

// rows returns the rows of the table.
func (r *result) rows() []screen.Row {
	v, did := r.verdict, r.outcome.Total
	rows := []screen.Row{
		{Name: "parts given out", Value: fmt.Sprintf("%d of %d, from %s to %s", v.parts, r.opts.parts, money(v.smallest), money(v.largest))},
		{Name: "money given out", Value: fmt.Sprintf("%s of %s", money(v.cents), money(r.opts.cents))},
		{Name: "openids with a part", Value: fmt.Sprintf("%d of %d", v.served, r.opts.openids)},
		{Name: "openids with more", Value: strconv.Itoa(v.thieves)},
		{Name: "money stolen", Value: money(v.stolen)},
		{Name: "requests", Value: fmt.Sprintf("%d: %d got a part, %d had one, %d came too late", did.Done(), did.Granted, did.Already, did.Late)},
	}
	if did.Lost > 0 {
		rows = append(rows, screen.Row{Name: "holds lost", Value: strconv.FormatInt(did.Lost, 10)})
	}
	seconds := r.outcome.Took.Seconds()
	return append(rows,
		screen.Row{Name: "seconds", Value: fmt.Sprintf("%.2f", seconds)},
		screen.Row{Name: "requests/s", Value: fmt.Sprintf("%.0f", float64(did.Done())/seconds)},
		screen.Row{Name: "lock commands per request", Value: r.commandsPerRequest()})
}

// commandsPerRequest formats how many commands the lock cost.
func (r *result) commandsPerRequest() string {
	if r.opts.lock == lockNone {
		return "no lock, no commands"
	}
	return fmt.Sprintf("%.2f (%s)", float64(r.cost.Commands)/float64(max(r.outcome.Total.Done(), 1)), r.cost.Counted)
}

// sentence says in one sentence what the table shows.
func (r *result) sentence() string {
	if r.interrupted && r.Clean() {
		return fmt.Sprintf("Interrupted at %d of %d requests. Until then no person got two parts, and it adds up.",
			r.outcome.Total.Done(), r.opts.openids*r.opts.requests)
	}
	return r.verdict.sentence()
}

// sentence is the verdict in one sentence.
func (v verdict) sentence() string {
	switch {
	case v.clean() && v.left == 0:
		return "No person got two parts, everything was given out, and it adds up."
	case v.clean():
		return "Each person got one part, and what was given out and what is left add up."
	}
	return fmt.Sprintf("FAILED: %d openids got more than one part and so stole %s, %d got none that was due, %s is missing.",
		v.thieves, money(v.stolen), v.due-v.served, money(v.missing))
}

// money prints cents.
func money(cents int) string {
	if cents < 0 {
		return "-" + money(-cents)
	}
	return fmt.Sprintf("%d.%02d", cents/100, cents%100)
}
