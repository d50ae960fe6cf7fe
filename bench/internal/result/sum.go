package result

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/relock-go/relock/bench/internal/redisload"
	"github.com/relock-go/relock/bench/internal/worker"
)

// Sum makes a sample from the processes' outcomes and Redis's counters. The load is that of all sections, including those after
// the end, since it was counted until the last section had ended.
func Sum(outcomes []worker.Outcome, d time.Duration, load redisload.Counters, plain []string) Sample {
	var s Sample
	var goroutines, processes []int64
	var mallocs, inTime int64
	var waits, reads, writes *hdrhistogram.Histogram
	for _, o := range outcomes {
		goroutines = append(goroutines, o.InTime...)
		processes = append(processes, total(o.InTime))
		inTime += total(o.InTime)
		mallocs += int64(o.Mallocs)
		s.Sections += o.Sections
		s.Errors += o.Errors
		s.CutOff += o.CutOff
		if s.First == "" {
			s.First = o.First
		}
		waits, reads, writes = merge(waits, o.Waits), merge(reads, o.Reads), merge(writes, o.Writes)
	}
	if waits != nil {
		s.WaitP50, s.WaitP99, s.WaitMax = ms(waits.ValueAtQuantile(50)), ms(waits.ValueAtQuantile(99)), ms(waits.Max())
	}
	if reads != nil {
		s.ReadP99, s.WriteP99 = ms(reads.ValueAtQuantile(99)), ms(writes.ValueAtQuantile(99))
	}
	sections := float64(s.Sections)
	fromClients, inner := load.Commands(plain)
	s.PerSecond = float64(inTime) / d.Seconds()
	s.Commands, s.Inner = ratio(float64(fromClients), sections), ratio(float64(inner), sections)
	s.Pushes = ratio(float64(load.Pushes()), sections)
	s.CPU = ratio(float64(load.CPU.Nanoseconds())/1e3, sections)
	s.Bytes = ratio(float64(load.Bytes), sections)
	s.Keys, s.Memory = ratio(float64(load.Keys), sections), ratio(float64(load.Memory), sections)
	s.Allocs = ratio(float64(mallocs), sections)
	if s.Sections == 0 {
		s.Failed = "no goroutine got the lock"
	}
	s.JainGoroutines, s.JainProcesses = Jain(goroutines), Jain(processes)
	return s
}

func merge(to *hdrhistogram.Histogram, snapshot *hdrhistogram.Snapshot) *hdrhistogram.Histogram {
	if snapshot == nil {
		return to
	}
	h := hdrhistogram.Import(snapshot)
	if to != nil {
		to.Merge(h)
		return to
	}
	return h
}

func total(shares []int64) (n int64) {
	for _, share := range shares {
		n += share
	}
	return n
}

func ms(ns int64) float64 { return float64(ns) / 1e6 }
