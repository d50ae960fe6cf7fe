package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/bench/internal/redisload"
	"github.com/relock-go/relock/bench/internal/result"
	"github.com/relock-go/relock/bench/internal/worker"
)

func TestJain(t *testing.T) {
	assert.InDelta(t, 1, result.Jain([]int64{5, 5, 5}), 1e-9)
	assert.InDelta(t, 0.25, result.Jain([]int64{8, 0, 0, 0}), 1e-9)
	assert.InDelta(t, 0.5, result.Jain([]int64{3, 3, 0, 0}), 1e-9)
	assert.Zero(t, result.Jain([]int64{0, 0}))
	assert.Zero(t, result.Jain(nil))
}

func TestRangeIsTheMedianAndTheEnds(t *testing.T) {
	rangeOf := func(values ...float64) result.Range {
		var c result.Cell
		for _, v := range values {
			c.Samples = append(c.Samples, result.Sample{PerSecond: v})
		}
		return c.Range(result.PerSecond)
	}
	assert.Equal(t, result.Range{}, rangeOf())
	assert.Equal(t, result.Range{Median: 3, Least: 1, Most: 9}, rangeOf(9, 1, 3))
	assert.Equal(t, result.Range{Median: 2.5, Least: 1, Most: 9}, rangeOf(9, 1, 3, 2))
}

func TestNumbersAreShort(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.00", 0.00001: "<0.0001", 0.0042: "0.0042", 0.5: "0.50", 2: "2.00", 12.34: "12.3", 123.4: "123",
		1234: "1234", 12_345: "12.3k", 123_456: "123k", 1_234_567: "1.23M", 999_900: "1.00M",
	} {
		assert.Equal(t, want, result.Number(v), "%v", v)
	}
}

func TestSumAddsUpWhatTheProcessesSay(t *testing.T) {
	outcomes := []worker.Outcome{
		{InTime: []int64{10, 10}, Sections: 22, Mallocs: 44},
		{InTime: []int64{20, 0}, Sections: 22, Mallocs: 44, Errors: 1, First: "ouch", CutOff: 2},
	}
	load := redisload.Counters{Calls: map[string]int64{"evalsha": 88, "set": 44, "info": 1}, CPU: 440 * time.Microsecond, Bytes: 4400,
		Keys: 44, Memory: 8800}
	s := result.Sum(outcomes, 2*time.Second, load, nil)
	assert.InDelta(t, 20, s.PerSecond, 1e-9, "sections that ended within the time")
	assert.InDelta(t, 2, s.Commands, 1e-9, "commands of all sections; INFO is sent by the benchmark itself")
	assert.InDelta(t, 1, s.Inner, 1e-9)
	assert.InDelta(t, 10, s.CPU, 1e-9)
	assert.InDelta(t, 100, s.Bytes, 1e-9)
	assert.InDelta(t, 1, s.Keys, 1e-9)
	assert.InDelta(t, 200, s.Memory, 1e-9)
	assert.InDelta(t, 2, s.Allocs, 1e-9)
	assert.InDelta(t, 1, s.JainProcesses, 1e-9)
	assert.InDelta(t, 40.0*40/(4*600), s.JainGoroutines, 1e-9)
	assert.Equal(t, "ouch", s.First)
	assert.EqualValues(t, 2, s.CutOff)

	plain := result.Sum(outcomes, time.Second, load, []string{"set"})
	assert.InDelta(t, 3, plain.Commands, 1e-9, "a contender that sends SET itself")
	assert.Zero(t, plain.Inner)
}

func sampleResult() *result.Result {
	r := &result.Result{
		Contenders: []result.Contender{{Name: "peer"}, {Name: "ours", Own: true}},
		Workloads:  []result.Workload{{Name: "5x20", About: "5 processes", Processes: 5, Goroutines: 20}},
	}
	r.Add("5x20", "peer", result.Sample{PerSecond: 1000, Commands: 2})
	r.Add("5x20", "peer", result.Sample{PerSecond: 3000, Commands: 2, Overlaps: 1})
	r.Add("5x20", "ours", result.Sample{Failed: "process 1: a worker does not answer", CutOff: 3, Errors: 1, First: "why"})
	return r
}

func TestATableShowsMediansAndWhatWentWrong(t *testing.T) {
	r := sampleResult()
	assert.EqualValues(t, 1, r.Overlaps())
	var out bytes.Buffer
	require.NoError(t, r.WriteTable(&out))
	text := out.String()
	assert.Contains(t, text, "2000")
	assert.Contains(t, text, "50 %", "half of the distance")
	assert.Contains(t, text, "a worker does not answer; 3 still waited at the end; 1 errors, the first: why")
}

func TestResultsAreKept(t *testing.T) {
	r := sampleResult()
	path := filepath.Join(t.TempDir(), "results.json")
	require.NoError(t, r.Save(path))
	again, err := result.Load(path)
	require.NoError(t, err)
	assert.Equal(t, r, again)

	var out bytes.Buffer
	require.NoError(t, r.WriteCSV(&out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 4)
	assert.Equal(t, strings.Count(lines[0], ","), strings.Count(lines[3], ","))
	assert.True(t, strings.HasPrefix(lines[2], "5x20,peer,2,"))
}
