package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// ownerName returns the owner's name of a relock process. It contains the host and the process id.
func ownerName(host string, pid int) string { return fmt.Sprintf("relock[%d]@%s", pid, host) }

var ownerForm = regexp.MustCompile(`^~relock\[([0-9]+)\]@(.+)$`)

// holderOf describes the holder of a lock: by host and process id if it is a relock process, else by its owner's name,
// or by its session if the owner has none. The holders of a read-write lock or a semaphore are known by their sessions
// alone.
func holderOf(st status) string {
	if st.shared != nil {
		return st.holders()
	}
	if m := ownerForm.FindStringSubmatch(st.Owner); m != nil {
		return fmt.Sprintf("%s (pid %s)", shown(m[2]), m[1])
	}
	if name, named := strings.CutPrefix(st.Owner, "~"); named {
		return shown(name)
	}
	return "session " + shown(st.Session)
}

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
