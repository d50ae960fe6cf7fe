package report

import (
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/relock-go/relock/bench/internal/result"
	"github.com/relock-go/relock/bench/internal/workload"
)

// A mark is a metric's dot in a contender's row.
type mark struct {
	metric result.Metric
	name   string
	shape  draw.GlyphDrawer
}

// waits draws a row of waiting times for each contender, on a logarithmic axis.
func waits(workload string) func(*result.Result, theme) (*drawing, error) {
	return func(r *result.Result, t theme) (*drawing, error) {
		p, err := rows(r, t, workload, "wait, ms", []mark{
			{result.WaitP50, "median", draw.RingGlyph{}},
			{result.WaitP99, "99th percentile", draw.CircleGlyph{}},
			{result.WaitMax, "longest", draw.CrossGlyph{}},
		})
		if err == nil {
			log(&p.X)
		}
		return p, err
	}
}

// fairness draws a row for each contender, on an axis from 0 to 1.
func fairness(r *result.Result, t theme) (*drawing, error) {
	p, err := rows(r, t, workload.Main, "Jain's fairness index", []mark{
		{result.JainGoroutines, "goroutines", draw.CircleGlyph{}},
		{result.JainProcesses, "processes", draw.BoxGlyph{}},
	})
	if err == nil {
		p.X.Min, p.X.Max = 0, 1
	}
	return p, err
}

// rows draws a line for each contender from its first mark to its last, under one workload.
func rows(r *result.Result, t theme, workload, x string, marks []mark) (*drawing, error) {
	p := t.blank(x, "")
	cells := measured(r.Of(workload))
	var labels []string
	for i := range cells {
		cell := cells[len(cells)-1-i] // the first contender is on top
		labels = append(labels, cell.Contender)
		if err := row(p, r, t, cell, float64(i), marks); err != nil {
			return nil, err
		}
	}
	for _, m := range marks {
		legend := &plotter.Scatter{GlyphStyle: draw.GlyphStyle{Color: t.ink, Radius: vg.Points(4), Shape: m.shape}}
		p.legend.Add(m.name, legend)
	}
	if len(labels) > 0 {
		p.NominalY(labels...)
		p.Y.Tick.Label.YAlign = draw.YCenter
		p.Y.Min, p.Y.Max = -0.5, float64(len(labels))-0.5
	}
	return p, nil
}

func row(p *drawing, r *result.Result, t theme, cell result.Cell, y float64, marks []mark) error {
	var points plotter.XYs
	for _, m := range marks {
		points = append(points, plotter.XY{X: max(cell.Range(m.metric).Median, least), Y: y})
	}
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	line.Color, line.Width = t.of(r, cell.Contender), vg.Points(2)
	p.Add(line)
	for i, m := range marks {
		dot, err := plotter.NewScatter(points[i : i+1])
		if err != nil {
			return err
		}
		dot.GlyphStyle = draw.GlyphStyle{Color: line.Color, Radius: vg.Points(4.5), Shape: m.shape}
		p.Add(dot)
	}
	return nil
}

func measured(cells []result.Cell) []result.Cell {
	var some []result.Cell
	for _, c := range cells {
		if c.Measured() {
			some = append(some, c)
		}
	}
	return some
}
