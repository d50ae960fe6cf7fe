package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// A relock that is killed cannot tell its command. The kernel does.
func TestAKilledRelockTakesItsCommandAlong(t *testing.T) {
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
	}, "the command lives on")
}

// dead tells whether a process has ended, whether or not somebody has asked how.
func dead(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}
