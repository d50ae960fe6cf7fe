package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestProgressIsALineAtEveryTenth(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out, 100)
	for done := range int64(101) {
		p.show(done, 0)
	}
	p.end()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	assert.Len(t, lines, 10)
	assert.Equal(t, "10 of 100 keys", lines[0])
	assert.Equal(t, "100 of 100 keys", lines[9])
}

func TestProgressOnATerminalIsOneLine(t *testing.T) {
	var out strings.Builder
	p := &progress{out: &out, terminal: true, keys: 100}
	p.show(1, 0)
	p.show(1, 0)
	p.show(2, 1)
	p.end()
	assert.Equal(t, "\r1 of 100 keys\r2 of 100 keys, 1 process killed\n", out.String())
}
