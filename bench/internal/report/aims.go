package report

import (
	"fmt"
	"io"
	"slices"

	"github.com/relock-go/relock/bench/internal/result"
	"github.com/relock-go/relock/bench/internal/workload"
)

// An aim is what a contender should reach under a workload: the contender's value of a metric, divided by the value of the best
// peer or of a named peer, is at least or at most Ratio.
type aim struct {
	Workload, Contender string
	Metric              result.Metric
	Peer                string // "" for the peer with the most sections/s
	AtMost              bool
	Ratio               float64
}

// aims are the aims of docs/performance.md that are ratios.
var aims = []aim{
	{Workload: workload.Main, Contender: "relock", Metric: result.PerSecond, Ratio: 2.2},
	{Workload: workload.Main, Contender: "relock", Metric: result.CPU, AtMost: true, Ratio: 0.7},
	{Workload: workload.Main, Contender: "relock", Metric: result.WaitP99, AtMost: true, Ratio: 0.1},
	{Workload: workload.Main, Contender: "cohort", Metric: result.PerSecond, Ratio: 50},
	{Workload: "1x100", Contender: "relock", Metric: result.PerSecond, Ratio: 2},
	{Workload: "1x100", Contender: "relock", Metric: result.CPU, AtMost: true, Ratio: 0.75},
	{Workload: "5x20-zipf", Contender: "relock", Metric: result.PerSecond, Ratio: 1.5},
	{Workload: workload.Uncontended, Contender: "relock", Metric: result.PerSecond, Ratio: 0.9},
	{Workload: workload.Uncontended, Contender: "relock", Metric: result.CPU, Peer: bsm, AtMost: true, Ratio: 1.25},
	{Workload: workload.Fresh, Contender: "relock", Metric: result.PerSecond, Ratio: 0.8},
	{Workload: workload.Fresh, Contender: "relock", Metric: result.CPU, AtMost: true, Ratio: 1.35},
	{Workload: "fresh-2x20", Contender: "relock", Metric: result.PerSecond, Ratio: 0.9},
	{Workload: "fresh-2x20", Contender: "relock", Metric: result.PerSecond, Peer: bsm, Ratio: 1},
	{Workload: "fresh-2x20", Contender: "relock", Metric: result.PerSecond, Peer: "redsync", Ratio: 1},
	{Workload: "fresh-2x20", Contender: "relock", Metric: result.CPU, Peer: bsm, AtMost: true, Ratio: 1.1},
}

const bsm = "redislock-exponential"

// WriteAims writes a line for each aim whose contender and peer were measured.
func WriteAims(r *result.Result, to io.Writer) error {
	for _, a := range aims {
		line, ok := a.judge(r)
		if !ok {
			continue
		}
		if _, err := fmt.Fprintln(to, line); err != nil {
			return err
		}
	}
	return nil
}

// judge compares the medians. It returns false if there is nothing to compare.
func (a aim) judge(r *result.Result) (line string, ok bool) {
	own, ok := r.Cell(a.Workload, a.Contender)
	peer, found := a.peer(r)
	if !ok || !found || !own.Measured() {
		return "", false
	}
	theirs := peer.Range(a.Metric).Median
	if theirs == 0 {
		return "", false
	}
	got, sign := own.Range(a.Metric).Median/theirs, "≥"
	reached := got >= a.Ratio
	if a.AtMost {
		sign, reached = "≤", got <= a.Ratio
	}
	verdict := "missed"
	if reached {
		verdict = "reached"
	}
	return fmt.Sprintf("%-11s %-10s %-10s %5.2f × %s: aim %s %g: %s", a.Workload, a.Contender, a.Metric.Head, got, peer.Contender, sign, a.Ratio, verdict), true
}

// peer returns the cell that the aim compares with.
func (a aim) peer(r *result.Result) (best result.Cell, found bool) {
	for _, c := range r.Of(a.Workload) {
		own := slices.ContainsFunc(r.Contenders, func(one result.Contender) bool { return one.Name == c.Contender && one.Own })
		switch {
		case own || !c.Measured() || a.Peer != "" && a.Peer != c.Contender:
		case !found || c.Range(result.PerSecond).Median > best.Range(result.PerSecond).Median:
			best, found = c, true
		}
	}
	return best, found
}
