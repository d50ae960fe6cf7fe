package report

import (
	"bytes"
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/relock-go/relock/bench/internal/result"
	"github.com/relock-go/relock/bench/internal/workload"
)

// A figure is a plot with its title and texts.
type figure struct {
	Name     string // of its files
	Kind     workload.Kind
	Title    string
	Sentence string
	draw     func(*result.Result, theme) (*drawing, error)
}

// figures are all figures, in the order of the page.
var figures = []figure{
	{"commands", workload.Exclusive, "What a section asks of Redis",
		"Commands that clients sent for each section, against the goroutines of one process. The axes are logarithmic: one step down is a tenth.",
		lines(byGoroutines, result.Commands, "goroutines in one process", "commands per section")},
	{"throughput", workload.Exclusive, "Sections per second",
		"How many sections get done, against the goroutines of one process that want the lock; nothing is done inside, so this is the lock's own speed.",
		lines(byGoroutines, result.PerSecond, "goroutines in one process", "sections per second")},
	{"waits", workload.Exclusive, "How long one waits",
		"From the call of Lock to its return, with 5 processes of 20 goroutines each and nothing inside: from the median over the 99th percentile to the longest. A short line is a fair lock; a low median with a far end is one that some get again and again while others starve.",
		waits(workload.Main)},
	{"fairness", workload.Exclusive, "Who gets how much",
		"Jain's index of the sections that each goroutine, and each process, got in the same situation: 1 when all got as much as the others, 0.01 if one goroutine of a hundred got everything.",
		fairness},
	{"cost", workload.Exclusive, "What a section costs Redis",
		"Processor time of the Redis server for each section, against the number of processes with 20 goroutines each.",
		lines(byProcesses, result.CPU, "processes of 20 goroutines", "Redis CPU per section, µs")},
	{"shared-commands", workload.ReadWrite, "What a read or a write asks of Redis",
		"Commands that clients sent for each section of a read-write lock, against the share of writes; 5 processes of 20 goroutines each, nothing inside.",
		lines(byWrites, result.Commands, "writes in a hundred sections", "commands per section")},
	{"shared-throughput", workload.ReadWrite, "Reads and writes per second",
		"How many sections get done in the same situation.",
		lines(byWrites, result.PerSecond, "writes in a hundred sections", "sections per second")},
	{"shared-writes", workload.ReadWrite, "How long a writer waits",
		"The 99th percentile of the waits of writers in the same situation.",
		lines(byWrites, result.WriteP99, "writes in a hundred sections", "99th percentile of a writer's wait, ms")},
	{"semaphore-waits", workload.Permits, "How long one waits for a permit",
		"From the call to its return, with three permits for 5 processes of 20 goroutines each, and 1 ms inside.",
		waits(workload.Scarce)},
}

// figuresOf returns the figures for which the result has data.
func figuresOf(r *result.Result) []figure {
	var some []figure
	for _, f := range figures {
		if slices.ContainsFunc(r.Workloads, func(w result.Workload) bool { return w.Kind == f.Kind }) {
			some = append(some, f)
		}
	}
	return some
}

// The sizes of a drawing and of its legend.
const (
	width, height = 9 * vg.Inch, 4.5 * vg.Inch
	legendWidth   = 2 * vg.Inch
)

// A drawing is a plot with its legend beside it, so that the legend covers nothing.
type drawing struct {
	*plot.Plot
	legend plot.Legend
}

// A theme is the colours for one kind of page. Plots have no background of their own.
type theme struct {
	name       string
	ink, faint color.Color
	peers, own []color.Color
}

// Within a group the colours differ in brightness, so that they can be distinguished with any kind of colour vision. Relock's
// colours are cold and its lines solid; the peers' colours are warm and their lines dashed.
var themes = []theme{
	{name: "light", ink: rgb(0x24292f), faint: rgb(0xd0d7de),
		peers: []color.Color{rgb(0x8a4b08), rgb(0xd55e00), rgb(0x9a7d0a), rgb(0xe69f00), rgb(0x7d2e52), rgb(0xcc79a7)},
		own:   []color.Color{rgb(0x6e7781), rgb(0x56b4e9), rgb(0x0072b2), rgb(0x009e73), rgb(0x054a36)}},
	{name: "dark", ink: rgb(0xe6edf3), faint: rgb(0x3d444d),
		peers: []color.Color{rgb(0xc98a4b), rgb(0xff8c42), rgb(0xbfa73a), rgb(0xffc845), rgb(0xb86a92), rgb(0xf2a6cf)},
		own:   []color.Color{rgb(0x9198a1), rgb(0x8ed1fc), rgb(0x3fa0e0), rgb(0x2fcf9f), rgb(0xa5f0d5)}},
}

func rgb(hex uint32) color.Color {
	return color.RGBA{R: uint8(hex >> 16), G: uint8(hex >> 8), B: uint8(hex), A: 0xff}
}

// of returns the colour of a contender, which depends on its place in its group.
func (t theme) of(r *result.Result, name string) color.Color {
	next := map[bool]int{}
	for _, c := range r.Contenders {
		group := t.peers
		if c.Own {
			group = t.own
		}
		if c.Name == name {
			return group[next[c.Own]%len(group)]
		}
		next[c.Own]++
	}
	return t.ink
}

// blank returns a plot without anything in it.
func (t theme) blank(x, y string) *drawing {
	p := &drawing{plot.New(), plot.NewLegend()}
	p.BackgroundColor = color.Transparent
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.X.Padding, p.Y.Padding = 0, 0
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color, axis.Tick.Color = t.ink, t.ink
		t.write(&axis.Label.TextStyle, 11)
		t.write(&axis.Tick.Label, 10)
	}
	t.write(&p.legend.TextStyle, 10)
	p.legend.Top, p.legend.Left, p.legend.XOffs, p.legend.Padding = true, true, vg.Points(12), vg.Points(3)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = t.faint, t.faint
	p.Add(grid)
	return p
}

func (t theme) write(style *draw.TextStyle, size float64) {
	style.Color = t.ink
	style.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: font.Points(size)}
}

// log makes an axis logarithmic, over whole decades.
func log(axis *plot.Axis) {
	if axis.Min <= 0 || math.IsInf(axis.Min, 0) {
		return // no value was measured
	}
	axis.Scale = plot.LogScale{}
	axis.Tick.Marker = plot.TickerFunc(func(low, high float64) []plot.Tick {
		ticks := plot.LogTicks{Prec: -1}.Ticks(low, high)
		for i := range ticks {
			if ticks[i].Label != "" {
				ticks[i].Label = short(ticks[i].Value)
			}
		}
		return ticks
	})
	axis.Min = math.Pow(10, math.Floor(math.Log10(axis.Min)))
	axis.Max = math.Pow(10, math.Ceil(math.Log10(axis.Max)))
	if axis.Min == axis.Max {
		axis.Max *= 10
	}
}

// short formats a number for an axis.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', -1, 64) + "M"
	case v >= 1e4:
		return strconv.FormatFloat(v/1e3, 'g', -1, 64) + "k"
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// least is the lowest value on a logarithmic axis. Smaller values are drawn at this point.
const least = 0.0001

// svg draws the plot. It names the font together with fonts of the same widths that browsers have.
func (d *drawing) svg() ([]byte, error) {
	canvas := vgsvg.New(width, height)
	page := draw.New(canvas)
	d.Draw(draw.Crop(page, 0, -legendWidth, 0, -vg.Points(4)))
	d.legend.Draw(draw.Crop(page, width-legendWidth, 0, 0, 0))
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans"),
		[]byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif")), nil
}

// A series is a row of workloads along an axis.
type series func(result.Workload) (x int, ok bool)

func byGoroutines(w result.Workload) (int, bool) {
	return w.Goroutines, w.Processes == 1 && plain(w)
}

func byProcesses(w result.Workload) (int, bool) {
	return w.Processes, w.Goroutines == 20 && plain(w)
}

// byWrites returns how many of a hundred sections write.
func byWrites(w result.Workload) (int, bool) {
	known, ok := workload.Find(w.Name)
	return 100 - known.Reads, ok && known.Kind == workload.ReadWrite && known.Idle == 0
}

// plain returns the workloads with one lock and empty sections.
func plain(w result.Workload) bool {
	known, ok := workload.Find(w.Name)
	return ok && known.Kind == workload.Exclusive && !known.Reentrant && known.Locks <= 1 && known.Busy == 0 && known.Idle == 0
}

// lines draws a metric of each contender along a series, on logarithmic axes.
func lines(along series, metric result.Metric, x, y string) func(*result.Result, theme) (*drawing, error) {
	return func(r *result.Result, t theme) (*drawing, error) {
		p := t.blank(x, y)
		for i, c := range r.Contenders {
			points := pointsOf(r, c.Name, along, metric)
			if len(points) == 0 {
				continue
			}
			line, dots, err := plotter.NewLinePoints(points)
			if err != nil {
				return nil, err
			}
			line.Color, dots.Color = t.of(r, c.Name), t.of(r, c.Name)
			line.Width = vg.Points(2)
			dots.Shape, dots.Radius = shapes[i%len(shapes)], vg.Points(3.5)
			if !c.Own {
				line.Width, line.Dashes = vg.Points(1.5), []vg.Length{vg.Points(5), vg.Points(3)}
			}
			p.Add(line, dots)
			p.legend.Add(c.Name, line, dots)
		}
		if math.IsInf(p.X.Min, 0) {
			return p, nil // nothing was measured
		}
		p.X.Tick.Marker = marks(r, along)
		p.X.Scale = plot.LogScale{}
		p.X.Min, p.X.Max = p.X.Min/margin, p.X.Max*margin
		if p.X.Min == p.X.Max { // only a single point
			p.X.Max *= 10
		}
		log(&p.Y)
		return p, nil
	}
}

// margin is how far the x axis extends beyond the outermost values.
const margin = 1.2

var shapes = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{}, draw.BoxGlyph{}}

func pointsOf(r *result.Result, contender string, along series, metric result.Metric) plotter.XYs {
	var points plotter.XYs
	for _, w := range r.Workloads {
		x, ok := along(w)
		cell, found := r.Cell(w.Name, contender)
		if ok && found && cell.Measured() {
			points = append(points, plotter.XY{X: float64(x), Y: max(cell.Range(metric).Median, least)})
		}
	}
	return points
}

// marks draws the measured values.
func marks(r *result.Result, along series) plot.Ticker {
	var ticks plot.ConstantTicks
	for _, w := range r.Workloads {
		if x, ok := along(w); ok {
			ticks = append(ticks, plot.Tick{Value: float64(x), Label: short(float64(x))})
		}
	}
	return ticks
}
