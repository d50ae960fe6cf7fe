// Package screen shows the progress of a job, and its result.
package screen

import (
	"fmt"
	"io"
	"os"
)

// Progress shows how much of a job is done. On a terminal it changes one line again and again; elsewhere it prints a line at
// every tenth.
type Progress struct {
	out      io.Writer
	terminal bool
	goal     int64
	unit     string
	shown    int64 // the count in the last line
}

// NewProgress shows the progress towards a goal.
func NewProgress(out io.Writer, goal int64, unit string) *Progress {
	return &Progress{out: out, terminal: isTerminal(out), goal: goal, unit: unit}
}

// isTerminal reports whether out is a terminal.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Show shows how much of the job is done.
func (p *Progress) Show(done int64, kills int) {
	step := p.goal / 10
	if p.terminal {
		step = 1
	}
	if done < p.shown+max(step, 1) {
		return
	}
	p.shown = done
	text := fmt.Sprintf("%d of %d %s", done, p.goal, p.unit)
	switch kills {
	case 0:
	case 1:
		text += ", 1 process killed"
	default:
		text += fmt.Sprintf(", %d processes killed", kills)
	}
	if p.terminal {
		fmt.Fprint(p.out, "\r"+text)
		return
	}
	fmt.Fprintln(p.out, text)
}

// End ends the line that Show changes.
func (p *Progress) End() {
	if p.terminal && p.shown > 0 {
		fmt.Fprintln(p.out)
	}
}
