package condition

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
)

// beats sends the time of each beat to a channel.
type beats struct {
	backend.Conditions
	sent chan time.Time
}

func (b beats) Beat(_ context.Context, _ string, tickets, _ []uint64) ([]backend.TicketStatus, error) {
	b.sent <- time.Now()
	return make([]backend.TicketStatus, len(tickets)), nil
}

// Most waits end within a heartbeat. While the session had no waiter it missed no beat, so the first beat for a new waiter is
// not due at once.
func TestAWaiterThatComesAloneIsShownAfterAHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeartbeat(core.NewSession(core.Config{
			Heartbeat: time.Second, CommandTimeout: time.Second, Logger: slog.New(slog.DiscardHandler),
			Jitter: func(time.Duration) time.Duration { return 0 },
		}))
		h.start()
		defer h.stop()
		b := beats{sent: make(chan time.Time)}
		for range 2 {
			ticket := NewTicket(1, "condition", core.Owner{}, b)
			came := time.Now()
			h.add(ticket)
			assert.Equal(t, time.Second, (<-b.sent).Sub(came))
			h.remove(ticket)
			time.Sleep(time.Minute)
		}
	})
}
