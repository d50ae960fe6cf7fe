package screen

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// A Row is a line of a table.
type Row struct{ Name, Value string }

// PrintTable writes a result: the table, and its meaning in one sentence.
func PrintTable(out io.Writer, rows []Row, sentence string) {
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintf(table, "%s\t%s\n", row.Name, row.Value)
	}
	_ = table.Flush()
	fmt.Fprintf(out, "\n%s\n", sentence)
}

// Split formats the share of each process: "p1 20, p2 7+12" if p2 was killed once. names are those of a crew's
// outcome.
func Split(names [][]string, shares map[string]int64) string {
	seats := make([]string, len(names))
	for i, lives := range names {
		parts := make([]string, len(lives))
		for j, name := range lives {
			parts[j] = fmt.Sprint(shares[name])
		}
		seats[i] = lives[0] + " " + strings.Join(parts, "+")
	}
	return strings.Join(seats, ", ")
}
