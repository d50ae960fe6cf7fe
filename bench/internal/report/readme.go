package report

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/relock-go/relock/bench/internal/result"
)

// The marks around the part of the README that [Publish] writes.
const (
	begin = "<!-- bench:begin -->"
	end   = "<!-- bench:end -->"
)

// shown is the figure in the README.
const shown = "commands"

// compared are the contenders in the README's table: the fastest setting of each peer, and the modes of Relock. The report has
// all contenders.
var compared = []string{"rueidislock-1", "redsync", "redislock-exponential", "relock", "cohort", "cohort-linger"}

// columns are the metrics in the README's table.
var columns = []result.Metric{
	result.PerSecond, result.Commands, result.CPU, result.WaitP50, result.WaitP99, result.JainGoroutines,
}

// Publish takes the data of the report in one folder, makes a new report in another folder, to which the README refers, and
// writes the README's part.
func Publish(from, to, readme string) error {
	r, err := result.Load(filepath.Join(from, Data))
	if err != nil {
		return err
	}
	if err := Write(r, to); err != nil {
		return err
	}
	text, err := os.ReadFile(readme)
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	part, err := Part(r, filepath.ToSlash(to))
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	changed, err := Replace(string(text), part)
	if err != nil {
		return fmt.Errorf("publish: %s: %w", readme, err)
	}
	return os.WriteFile(readme, []byte(changed), 0o644)
}

// Replace replaces the text between the marks.
func Replace(readme, part string) (string, error) {
	before, rest, found := strings.Cut(readme, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return "", errors.New("there are no lines " + begin + " and " + end)
	}
	return before + begin + "\n" + part + end + after, nil
}

// Part returns the text between the marks. folder is the path of the report, relative to the README.
func Part(r *result.Result, folder string) (string, error) {
	w, err := mainWorkload(r)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	text.WriteString(pictures(shown, folder))
	fmt.Fprintf(&text, "%s:\n\n| |", upper(w.About))
	for _, m := range columns {
		fmt.Fprintf(&text, " %s |", m.Head)
	}
	text.WriteString(" overlaps |\n|---" + strings.Repeat("|--:", len(columns)+1) + "|\n")
	for _, c := range r.Of(w.Name) {
		if slices.Contains(compared, c.Contender) {
			text.WriteString(line(r, c))
		}
	}
	fmt.Fprintf(&text, "\n%s.\nCommands and Redis µs (processor time of the server) are per section. A wait lasts from the call of Lock to its return.\nJain's index is 1 when every goroutine got the same. %s\n[The whole report](%s) has all workloads and settings; `go run ./bench` measures them on your machine, with `-quick` in two minutes.\n",
		legend(r), origin(r), path.Join(folder, Page))
	return text.String(), nil
}

func line(r *result.Result, c result.Cell) string {
	cells := []string{label(r, c.Contender)}
	for _, m := range columns {
		cells = append(cells, c.Show(m))
	}
	cells = append(cells, fmt.Sprint(c.Overlaps()))
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// legend explains the names in the table.
func legend(r *result.Result) string {
	var entries []string
	for _, c := range r.Contenders {
		if slices.Contains(compared, c.Name) {
			entries = append(entries, fmt.Sprintf("`%s`: %s", c.Name, c.About))
		}
	}
	return strings.Join(entries, " · ")
}

// label formats a name: those of Relock's modes are bold.
func label(r *result.Result, name string) string {
	for _, c := range r.Contenders {
		if c.Name == name && c.Own {
			return "**" + name + "**"
		}
	}
	return name
}

// pictures shows one figure. If the reader's page is dark, it shows the figure's dark version.
func pictures(name, folder string) string {
	for _, f := range figures {
		if f.Name == name {
			light, dark := path.Join(folder, file(f, themes[0])), path.Join(folder, file(f, themes[1]))
			return fmt.Sprintf("<picture><source media=\"(prefers-color-scheme: dark)\" srcset=\"%s\"><img alt=\"%s\" src=\"%s\"></picture>\n\n%s\n\n",
				dark, f.Title, light, f.Sentence)
		}
	}
	panic("bug: there is no figure " + name)
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
