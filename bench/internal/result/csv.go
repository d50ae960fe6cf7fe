package result

import (
	"encoding/csv"
	"io"
	"slices"
	"strconv"
)

// WriteCSV writes one line for each round of each cell.
func (r *Result) WriteCSV(to io.Writer) error {
	w := csv.NewWriter(to)
	header := []string{"workload", "contender", "round", "sections"}
	for _, m := range slices.Concat(Metrics, sides) {
		header = append(header, m.Name)
	}
	header = append(header, "errors", "cut_off", "overlaps", "failed")
	if err := w.Write(header); err != nil {
		return err
	}
	for _, c := range r.Cells {
		for round, s := range c.Samples {
			if err := w.Write(record(c, round+1, s)); err != nil {
				return err
			}
		}
	}
	w.Flush()
	return w.Error()
}

func record(c Cell, round int, s Sample) []string {
	line := []string{c.Workload, c.Contender, strconv.Itoa(round), whole(s.Sections)}
	for _, m := range slices.Concat(Metrics, sides) {
		line = append(line, strconv.FormatFloat(m.Of(s), 'g', 6, 64))
	}
	return append(line, whole(s.Errors), whole(s.CutOff), whole(s.Overlaps), s.Failed)
}

func whole(n int64) string { return strconv.FormatInt(n, 10) }
