package faults

import (
	"fmt"
	"time"

	"github.com/relock-go/relock/faults/history"
)

// simBlock is the longest time by which tokens may run ahead of the server's clock.
const simBlock = 5 * time.Second

// mistimed finds tokens that do not come from the server's clock. In a calm this clock is the world's. A session that keeps a
// lock may continue from an older token. A caller may get the grant of an earlier caller that has left, if the message with
// that grant was lost.
func (w *world) mistimed() (findings []string) {
	for _, c := range w.calls {
		if c.Return > w.storm || c.Kind != history.Acquire || c.Outcome != history.OK || c.again || c.Token == 0 || c.Read {
			continue
		}
		at := time.Duration(int64(c.Token)-w.start.UnixMicro()) * time.Microsecond
		if at > time.Duration(c.Return)+simBlock || !w.cohorts() && !w.lags() && !w.deaf() && at < time.Duration(c.Call)-simBlock {
			findings = append(findings, fmt.Sprintf("%s got %s, called %v, with a token from %v", c.Client, c.Lock, time.Duration(c.Call), at))
		}
	}
	return findings
}
