package screen

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestProgressIsALineAtEveryTenth(t *testing.T) {
	var out strings.Builder
	p := NewProgress(&out, 100, "keys")
	for done := range int64(101) {
		p.Show(done, 0)
	}
	p.End()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	assert.Len(t, lines, 10)
	assert.Equal(t, "10 of 100 keys", lines[0])
	assert.Equal(t, "100 of 100 keys", lines[9])
}

func TestProgressOnATerminalIsOneLine(t *testing.T) {
	var out strings.Builder
	p := &Progress{out: &out, terminal: true, goal: 100, unit: "keys"}
	p.Show(1, 0)
	p.Show(1, 0)
	p.Show(2, 1)
	p.End()
	assert.Equal(t, "\r1 of 100 keys\r2 of 100 keys, 1 process killed\n", out.String())
}
