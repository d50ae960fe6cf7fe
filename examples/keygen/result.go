package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// A result is a finished job.
type result struct {
	opts    options
	verdict verdict
	names   [][]string    // of the processes; those that replaced each other together
	did     report        // what they said they did, added up
	kills   int           //
	took    time.Duration // from the moment when all processes were ready to the end of the last one
	cost    cost          //
}

// clean tells whether every number was handed out once, in the order of the tokens.
func (r *result) clean() bool {
	v := r.verdict
	return v.duplicates == 0 && v.gaps == 0 && (v.reversals == 0 || r.opts.lock == lockNone)
}

// print writes the table.
func (r *result) print(out io.Writer) {
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, row := range r.rows() {
		fmt.Fprintf(table, "%s\t%s\n", row.name, row.value)
	}
	_ = table.Flush()
	fmt.Fprintf(out, "\n%s\n", r.sentence())
}

// A row is a line of the table.
type row struct{ name, value string }

// rows is the table.
func (r *result) rows() []row {
	v := r.verdict
	reversals := count(v.reversals)
	if r.opts.lock == lockNone {
		reversals = "no lock, no tokens"
	}
	rows := []row{
		{"keys", count(v.numbers)},
		{"duplicates", count(v.duplicates)},
		{"gaps", count(v.gaps)},
		{"out-of-order tokens", reversals},
		{"keys per process", r.split()},
	}
	if r.opts.kills > 0 {
		rows = append(rows,
			row{"processes killed", fmt.Sprintf("%d of %d", r.kills, r.opts.kills)},
			row{"keys taken over", count(r.did.Adopted) + " (raised by a process that was killed before it recorded them)"})
	}
	if r.did.Lost > 0 {
		rows = append(rows, row{"holds lost", count(r.did.Lost)})
	}
	seconds := r.took.Seconds()
	return append(rows,
		row{"seconds", fmt.Sprintf("%.2f", seconds)},
		row{"keys/s", fmt.Sprintf("%.0f", float64(v.numbers)/seconds)},
		row{"Redis commands per key", r.commandsPerKey()})
}

// split tells how many numbers each process was given: "p1 20, p2 7+12" if p2 was killed once.
func (r *result) split() string {
	seats := make([]string, len(r.names))
	for i, lives := range r.names {
		shares := make([]string, len(lives))
		for j, name := range lives {
			shares[j] = count(r.verdict.shares[name])
		}
		seats[i] = lives[0] + " " + strings.Join(shares, "+")
	}
	return strings.Join(seats, ", ")
}

// commandsPerKey tells what a number cost Redis.
func (r *result) commandsPerKey() string {
	if r.opts.lock == lockNone {
		return "no lock, no commands"
	}
	return fmt.Sprintf("%.2f (%s)", float64(r.cost.commands)/float64(max(r.verdict.numbers, 1)), r.cost.counted)
}

// sentence is the table in one sentence.
func (r *result) sentence() string {
	if r.clean() {
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
