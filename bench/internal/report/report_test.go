package report

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/bench/internal/result"
	"github.com/relock-go/relock/bench/internal/workload"
)

// some returns a result with numbers everywhere.
func some() *result.Result {
	r := &result.Result{
		Date:       time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC),
		Settings:   result.Settings{Rounds: 1, Duration: time.Second},
		Machine:    result.Machine{CPU: "a CPU", Cores: 2, OS: "linux/amd64", Go: "go1.26", Redis: "7.4"},
		Versions:   []result.Version{{Module: "github.com/redis/rueidis", Version: "v1"}},
		Contenders: []result.Contender{{Name: "peer", About: "a peer"}, {Name: "cohort", About: "ours", Own: true}},
	}
	for _, w := range workload.All {
		r.Workloads = append(r.Workloads, result.Workload{Name: w.Name, About: w.About(), Kind: w.Kind, Processes: w.Processes, Goroutines: w.Goroutines})
		for i, c := range r.Contenders {
			r.Add(w.Name, c.Name, result.Sample{Sections: 10, PerSecond: float64(1000 * (i + 1)), Commands: 2 / float64(i+1), CPU: 30,
				WaitP50: 1, WaitP99: 2, WaitMax: 3, ReadP99: 2, WriteP99: 4, JainGoroutines: 0.9, JainProcesses: 1})
		}
	}
	return r
}

func TestAReportIsWholeAndSelfContained(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, Write(some(), folder))
	for _, f := range figures {
		for _, theme := range themes {
			svg, err := os.ReadFile(filepath.Join(folder, file(f, theme)))
			require.NoError(t, err)
			assert.Contains(t, string(svg), "<svg")
		}
	}
	page, err := os.ReadFile(filepath.Join(folder, Page))
	require.NoError(t, err)
	text := string(page)
	for _, f := range figures {
		assert.Contains(t, text, f.Title)
	}
	for _, outside := range []string{"http://", "https://", "<script src", "<link"} {
		assert.NotContains(t, strings.ReplaceAll(text, "http://www.w3.org", ""), outside)
	}
	for _, name := range []string{Data, CSV} {
		assert.FileExists(t, filepath.Join(folder, name))
	}
}

// On a phone a part that is wider than the screen scrolls sideways in a box of its own; the page does not.
func TestAReportCanBeReadOnAPhone(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, Write(some(), folder))
	page, err := os.ReadFile(filepath.Join(folder, Page))
	require.NoError(t, err)
	text := string(page)
	assert.Contains(t, text, `<meta name="viewport" content="width=device-width, initial-scale=1">`)
	boxes := strings.Count(text, `<div class="scroll" tabindex="0"><table>`) + strings.Count(text, `<div class="scroll" tabindex="0"><picture>`)
	assert.Equal(t, strings.Count(text, "<table>")+strings.Count(text, "<picture>"), boxes)
	assert.Equal(t, 1, strings.Count(text, `<table class="who">`), "whose lines are broken")
	assert.Empty(t, regexp.MustCompile(`[^-]width: *\d+(px|rem|em|pt)`).FindAllString(text, -1), "fixed widths")
}

func TestAReportHasTheFiguresOfItsWorkloads(t *testing.T) {
	r := some()
	r.Workloads = []result.Workload{{Name: workload.Scarce, Kind: workload.Permits}}
	folder := t.TempDir()
	require.NoError(t, Write(r, folder))
	svgs, err := filepath.Glob(filepath.Join(folder, "*.svg"))
	require.NoError(t, err)
	assert.Len(t, svgs, len(themes))
}

func TestTheReadmeHasItsPart(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	require.NoError(t, Write(some(), from))
	readme := filepath.Join(t.TempDir(), "README.md")
	require.NoError(t, os.WriteFile(readme, []byte("before\n"+begin+"\nold\n"+end+"\nafter\n"), 0o600))
	require.NoError(t, Publish(from, to, readme))
	text, err := os.ReadFile(readme)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(text), "before\n"+begin))
	assert.True(t, strings.HasSuffix(string(text), end+"\nafter\n"))
	assert.NotContains(t, string(text), "old")
	assert.Contains(t, string(text), "| **cohort** | 2000 |")
	assert.Contains(t, string(text), "a CPU, 2 cores")
	once := string(text)
	require.NoError(t, Publish(from, to, readme))
	text, err = os.ReadFile(readme)
	require.NoError(t, err)
	assert.Equal(t, once, string(text), "again")
}

func TestAReadmeWithoutMarksIsRefused(t *testing.T) {
	_, err := Replace("no marks", "part")
	require.ErrorContains(t, err, begin)
}
