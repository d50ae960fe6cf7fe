//go:build mutant_relock_late || mutant_relock_alone || mutant_relock_leftover || mutant_relock_short

package main

import (
	"runtime/debug"
	"strings"
)

// fault is the name in the build tag that brought this file in.
var fault = func() string {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key != "-tags" {
			continue
		}
		for tag := range strings.SplitSeq(s.Value, ",") {
			if name, ok := strings.CutPrefix(tag, "mutant_relock_"); ok {
				return name
			}
		}
	}
	panic("relock: built with a fault, but not told which")
}()
