package outage

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// A server can serve a lock again in the moment in which no command has failed for long. Then the outage has two ends, and the
// later one may come when there is another outage.
func TestAnOutageEndsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		o := Outages{Quiet: time.Minute, Log: func(_ slog.Level, text string, _ ...slog.Attr) { lines = append(lines, text) }}
		o.Begin("lock", errors.New("down"), true)
		one := o.locks["lock"]
		o.Answered("lock")
		o.end("lock", one, "late")
		assert.Zero(t, o.Open.Load())
		o.Begin("lock", errors.New("down"), true)
		o.end("lock", one, "late")
		assert.True(t, o.Add("lock"), "the next outage goes on")
		assert.NotContains(t, lines, "late")
		o.Close()
	})
}
