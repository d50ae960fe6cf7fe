package main

import (
	"fmt"
	"time"
)

// ownerName returns the owner's name of a relock process. It contains the host and the process id.
func ownerName(host string, pid int) string { return fmt.Sprintf("relock[%d]@%s", pid, host) }

// inWords formats a duration in one unit, rounded down.
func inWords(d time.Duration) string {
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "days"}, {time.Hour, "h"}, {time.Minute, "min"}} {
		if d >= 2*unit.size {
			return fmt.Sprintf("%d %s", d/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%d s", d/time.Second)
}
