package main

import (
	"fmt"
	"io"
	"os"
)

// progress shows how far the job is: on a terminal one line that keeps changing, elsewhere a line at every tenth.
type progress struct {
	out      io.Writer
	terminal bool
	keys     int64
	shown    int64 // what the last line said
}

// newProgress shows the way to so many keys.
func newProgress(out io.Writer, keys int) *progress {
	return &progress{out: out, terminal: isTerminal(out), keys: int64(keys)}
}

// isTerminal tells whether a person watches out.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// show says how many keys are done.
func (p *progress) show(done int64, kills int) {
	step := p.keys / 10
	if p.terminal {
		step = 1
	}
	if done < p.shown+max(step, 1) {
		return
	}
	p.shown = done
	text := fmt.Sprintf("%d of %d keys", done, p.keys)
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

// end leaves the line.
func (p *progress) end() {
	if p.terminal && p.shown > 0 {
		fmt.Fprintln(p.out)
	}
}
