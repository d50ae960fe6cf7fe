package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/bench/internal/result"
	"github.com/relock-go/relock/bench/internal/workload"
)

func TestAimsStandBesideTheirFigures(t *testing.T) {
	r := &result.Result{Contenders: []result.Contender{{Name: bsm}, {Name: "redsync"}, {Name: "cohort", Own: true}, {Name: "relock", Own: true}}}
	for name, perSecond := range map[string]float64{bsm: 100, "redsync": 80, "cohort": 1000, "relock": 75} {
		r.Add(workload.Fresh, name, result.Sample{PerSecond: perSecond, CPU: 2000 / perSecond})
	}
	r.Add(workload.Uncontended, "relock", result.Sample{PerSecond: 1}) // without a peer
	var out bytes.Buffer
	require.NoError(t, WriteAims(r, &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 2)
	assert.Contains(t, lines[0], " 0.75 × redislock-exponential: aim ≥ 0.8: missed")
	assert.Contains(t, lines[1], " 1.33 × redislock-exponential: aim ≤ 1.35: reached")
}

func TestAimsAreOfWhatIsMeasured(t *testing.T) {
	for _, a := range aims {
		_, ok := workload.Find(a.Workload)
		assert.True(t, ok, a.Workload)
		assert.Positive(t, a.Ratio)
	}
}
