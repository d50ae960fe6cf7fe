package relockotel_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/relockotel"
)

// The table of instruments in docs/metrics.md has exactly the instruments that are registered, with their descriptions.
// (Their names in Prometheus are checked where Prometheus is used: in examples/seats.)
func TestTheTableOfInstrumentsIsTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, relockotel.WithLockName(func(name string) string { return name }))
		session := s.session(memory.New())
		hold(t, session, "a")
		release(t, session, "a")
		time.Sleep(second)
		registered := map[string]string{}
		for name, m := range s.metrics() {
			registered[name] = fmt.Sprintf("| %s | `%s` | %s | %s |", kind(t, m), m.Unit,
				strings.Join(attributesOf(m), ", "), strings.TrimSuffix(m.Description, "."))
		}
		assert.Len(t, registered, 13)
		assert.Equal(t, registered, documented(t))
	})
}

// The program in docs/metrics.md is the one that is compiled and run as an Example.
func TestTheProgramInTheDocumentIsTheExample(t *testing.T) {
	text, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	program := regexp.MustCompile(`(?ms)^func open\(.*?^}\n`).FindString(string(source))
	require.NotEmpty(t, program)
	assert.Contains(t, string(text), "```go\n"+program+"```")
}

// documented reads the table: each instrument, its name in Prometheus, and the rest of its row.
func documented(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	row := regexp.MustCompile("(?m)^\\| `(relock\\.[a-z_.]+)` \\| `[a-z_]+` (\\| [a-z]+.*\\|)$")
	rows := map[string]string{}
	for _, match := range row.FindAllStringSubmatch(string(text), -1) {
		rows[match[1]] = match[2]
	}
	return rows
}

func kind(t *testing.T, m metricdata.Metrics) string {
	t.Helper()
	switch data := m.Data.(type) {
	case metricdata.Histogram[float64]:
		return "histogram"
	case metricdata.Sum[int64]:
		if data.IsMonotonic {
			return "counter"
		}
		return "up-down counter"
	}
	t.Fatalf("%s is a %T", m.Name, m.Data)
	return ""
}
