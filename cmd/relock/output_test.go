//go:build linux

package main

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A device that is full is an error, also of what prints a few lines.
func TestAFullDeviceIsAnError(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer func() { assert.NoError(t, full.Close()) }()
	url := embedded(t)
	for _, args := range [][]string{
		{"inspect", "x"}, {"inspect", "x", "--json"}, {"hold", "x"}, {"list", "--all"}, {"watch", "x"}, {"unlock", "x"}, {"man"}, {"completion", "bash"}, {"help", "run"},
	} {
		var stderr bytes.Buffer
		status := execute(append(args, "--redis", url), full, &stderr)
		for end := time.Now().Add(patience); late(status, stderr.String()) && time.Now().Before(end); {
			stderr.Reset()
			status = execute(append(args, "--redis", url), full, &stderr)
		}
		assert.Equal(t, exitOutput, status, "%s: %s", args, &stderr)
		assert.Contains(t, stderr.String(), "relock: the output could not be written: write /dev/full: no space left on device\n")
	}
}
