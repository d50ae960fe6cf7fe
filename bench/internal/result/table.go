package result

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Head returns the heads of Row's columns.
func (w Workload) Head() []string {
	head := []string{""}
	for _, m := range w.Metrics() {
		head = append(head, m.Head)
	}
	return append(head, "±", "overlaps", "remarks")
}

// Row returns the text of a cell for people: medians, half the distance between the best and the worst round in percent of the
// median sections/s, and what went wrong.
func (w Workload) Row(c Cell) []string {
	row := []string{c.Contender}
	for _, m := range w.Metrics() {
		row = append(row, c.Show(m))
	}
	return append(row, c.spread(), whole(c.Overlaps()), c.Remarks())
}

// Show formats the median of a metric.
func (c Cell) Show(m Metric) string {
	if !c.Measured() {
		return "–"
	}
	return Number(c.Range(m).Median)
}

func (c Cell) spread() string {
	r := c.Range(PerSecond)
	if r.Median == 0 || len(c.Samples) < 2 {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", 50*(r.Most-r.Least)/r.Median)
}

// Remarks describe the errors of all rounds.
func (c Cell) Remarks() string {
	var cutOff, errors int64
	var first string
	var remarks []string
	for _, s := range c.Samples {
		cutOff += s.CutOff
		errors += s.Errors
		if first == "" {
			first = s.First
		}
		if s.Failed != "" {
			remarks = append(remarks, s.Failed)
		}
	}
	if cutOff > 0 {
		remarks = append(remarks, fmt.Sprintf("%d still waited at the end", cutOff))
	}
	if errors > 0 {
		remarks = append(remarks, fmt.Sprintf("%d errors, the first: %s", errors, first))
	}
	return strings.Join(remarks, "; ")
}

// Number formats a number with as few characters as three digits allow. Large numbers have k or M.
func Number(v float64) string {
	switch abs := math.Abs(v); {
	case abs >= 999_500:
		return digits(v/1e6) + "M"
	case abs >= 9_995:
		return digits(v/1e3) + "k"
	case abs >= 1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	default:
		return digits(v)
	}
}

// digits formats a number with three digits, or with as many decimals as are meaningful.
func digits(v float64) string {
	switch abs := math.Abs(v); {
	case abs >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case abs >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case abs >= 0.0995 || abs == 0:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case abs >= 0.00005:
		return strconv.FormatFloat(v, 'f', 4, 64)
	}
	return "<0.0001"
}

// WriteTable writes a table for each workload.
func (r *Result) WriteTable(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, workload := range r.Workloads {
		fmt.Fprintf(w, "\n%s: %s\n", workload.Name, workload.About)
		fmt.Fprintln(w, columns(workload.Head()))
		for _, c := range r.Of(workload.Name) {
			fmt.Fprintln(w, columns(workload.Row(c)))
		}
		if err := w.Flush(); err != nil {
			return err
		}
		for _, line := range r.Asked(workload) {
			fmt.Fprintln(to, line)
		}
	}
	return nil
}

// Asked returns a line for each contender with the load of a workload of readers or of permits on Redis. Other
// workloads have no such lines.
func (r *Result) Asked(w Workload) []string {
	var lines []string
	if w.Kind == "" {
		return lines
	}
	for _, c := range r.Of(w.Name) {
		if c.Measured() {
			lines = append(lines, fmt.Sprintf("%s by %s: %s operations/s asked Redis for %s commands, %s pushes and %s µs of CPU per operation; %d overlaps",
				w.Name, c.Contender, c.Show(PerSecond), c.Show(Commands), c.Show(Pushes), c.Show(CPU), c.Overlaps()))
		}
	}
	return lines
}

// columns joins cells into a line for the tabwriter, which aligns all but the last to the right.
func columns(row []string) string {
	last := len(row) - 1
	return strings.Join(row[:last], "\t") + "\t  " + row[last]
}

// Of returns the cells of a workload, in the order of the contenders.
func (r *Result) Of(workload string) []Cell {
	var cells []Cell
	for _, contender := range r.Contenders {
		if c, ok := r.Cell(workload, contender.Name); ok {
			cells = append(cells, c)
		}
	}
	return cells
}
