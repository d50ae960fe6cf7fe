package main

import (
	"fmt"
	"io"
	"time"

	"github.com/relock-go/relock/bench/internal/result"
)

// A progress prints how far the run is, one line for each cell.
type progress struct {
	to         io.Writer
	cells, all int
	began      time.Time
}

func newProgress(to io.Writer, all int) *progress {
	return &progress{to: to, all: all, began: time.Now()}
}

func (p *progress) done(round int, workload, contender string, s result.Sample) {
	p.cells++
	left := time.Since(p.began) / time.Duration(p.cells) * time.Duration(p.all-p.cells)
	what := s.Failed
	if what == "" {
		what = fmt.Sprintf("%8s sections/s %8s commands %8s ms p99", result.Number(s.PerSecond), result.Number(s.Commands), result.Number(s.WaitP99))
	}
	if s.Overlaps > 0 {
		what += fmt.Sprintf(" %d OVERLAPS", s.Overlaps)
	}
	fmt.Fprintf(p.to, "%3d/%d  %5s left  round %d  %-12s %-22s %s\n", p.cells, p.all, left.Round(time.Second), round, workload, contender, what)
}
