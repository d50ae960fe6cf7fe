//go:build mutants

package redisbackend

import (
	"strings"

	"github.com/relock-go/relock/internal/mutant"
)

var fault = mutant.Of("redisclient")

// scriptFaults are those in the scripts: what is left out or put wrong.
var scriptFaults = map[string]struct{ right, wrong string }{
	faultBus:       {"if type(heard) == 'number' and heard > 0 then return end", ""},
	faultSilence:   {"if type(heard) == 'number' and heard > 0 then return end", "do return end"},
	faultShardtag:  {"string.match(hold, '{([^}]*)}') or hold", "hold"},
	faultSignalbus: {"tell(channel, session, k[1],", "redis.pcall('PUBLISH', channel .. session,"},
}

func init() {
	m, ok := scriptFaults[fault]
	if !ok {
		return
	}
	found := false
	mutate = func(text string) string {
		found = found || strings.Contains(text, m.right)
		return strings.ReplaceAll(text, m.right, m.wrong)
	}
	if loadClusterScripts(); !found {
		panic("redisbackend: the scripts have changed, the fault fits none")
	}
}
