package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A relock that is killed cannot end its command. The kernel does it.
func TestAKilledRelockTakesItsCommandAlong(t *testing.T) {
	t.Parallel()
	h := newHeart(t)
	r := start(t, embedded(t), "run", "lock", "--", "sh", "-c", "exec env "+h.command())
	h.await(1)
	r.signal(syscall.SIGKILL)
	eventually(t, func() bool {
		pids, _ := h.read()
		for pid := range pids {
			if !dead(pid) {
				return false
			}
		}
		return true
	}, "the command is still alive")
}

// Relock reaps the processes that a command leaves behind, and does not depend on an init that is slow or missing.
func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	r := start(t, embedded(t), "run", "lock", "--", "sh", "-c",
		`orphan=$(sh -c 'sleep 100 >/dev/null & echo $!'); echo $orphan; grep PPid: /proc/$orphan/status; echo $PPID`)
	r.exits(0)
	var orphan, parent, relock int
	_, err := fmt.Sscanf(r.stdout.String(), "%d\nPPid: %d\n%d", &orphan, &parent, &relock)
	require.NoError(t, err, r.stdout)
	assert.Equal(t, relock, parent)
	assert.NoFileExists(t, fmt.Sprintf("/proc/%d/stat", orphan))
}

// dead reports whether a process has ended, reaped or not.
func dead(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}
