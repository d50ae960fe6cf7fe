//go:build mutant_localqueue_lostgrant || mutant_localqueue_ghost || mutant_localqueue_lifo || mutant_localqueue_doublegrant || mutant_localqueue_earlyrecycle || mutant_localqueue_deafkin || mutant_localqueue_deafops || mutant_localqueue_evictbusy || mutant_localqueue_greedy || mutant_localqueue_unturned || mutant_localqueue_straggler || mutant_localqueue_snatch || mutant_localqueue_estranged

package localqueue

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
			if name, ok := strings.CutPrefix(tag, "mutant_localqueue_"); ok {
				return name
			}
		}
	}
	panic("localqueue: built with a fault, but not told which")
}()
