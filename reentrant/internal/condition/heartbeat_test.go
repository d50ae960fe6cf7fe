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

// beats receive when each beat was sent.
type beats struct {
	backend.Conditions
	sent chan time.Time
}

func (b beats) Beat(_ context.Context, _ string, tickets, _ []uint64) ([]backend.TicketStatus, error) {
	b.sent <- time.Now()
	return make([]backend.TicketStatus, len(tickets)), nil
}

// Most waits end before that. The beats for earlier waiters were not missed: there was no waiter.
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
