package redisbackend_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/reentrant"
)

// BenchmarkHandoverBetweenSessions measures the time from Unlock in one process to the return of Lock in another process that
// waits: one command and one message. A session with a client of its own stands for a process. For comparison the same run
// measures round trips of a script that does nothing.
func BenchmarkHandoverBetweenSessions(b *testing.B) {
	addr := redisserver.Start(b).Addr()
	h := handover{
		B: b, locks: contest(b, addr, "handover", 0), yardstick: newBare(connect(b, addr), 4, 6),
		limit: deadline{context.Background(), time.Now().Add(time.Hour)},
	}
	h.play(20) // loads the scripts
	h.spent, h.bare = 0, 0
	n := 0
	for b.Loop() {
		h.play(200)
		n += 199 // the first Lock is not handed over
	}
	b.ReportMetric(float64(h.spent)/float64(n), "handover-ns/op")
	b.ReportMetric(float64(h.bare)/float64(n), "bare-ns/op")
	b.ReportMetric(float64(h.spent)/float64(h.bare), "ratio")
	b.ReportMetric(0, "ns/op")
}

// A handover has two sessions that hand a lock over to each other. Only the holder of the lock uses the fields below.
type handover struct {
	*testing.B
	locks     [2]*reentrant.Lock
	yardstick *bare
	limit     context.Context

	turns       int // hand-overs still to be made
	gone        time.Time
	spent, bare time.Duration
	measured    chan struct{}
}

func (h *handover) play(turns int) {
	h.turns, h.gone, h.measured = turns, time.Time{}, make(chan struct{}, 1)
	duel(h, func(ctx context.Context, player int) error {
		for {
			if err := h.locks[player].Lock(ctx); err != nil {
				return err
			}
			if h.turns == 0 {
				return h.locks[player].Unlock(ctx)
			}
			if err := h.turn(ctx, player); err != nil {
				return err
			}
		}
	})
}

// turn is called by the player that has just acquired the lock.
func (h *handover) turn(ctx context.Context, player int) error {
	if !h.gone.IsZero() {
		h.spent += time.Since(h.gone)
		start := time.Now()
		require.NoError(h, h.yardstick.call(h.limit))
		h.bare += time.Since(start)
		h.measured <- struct{}{}
	}
	for {
		state, err := h.locks[player].Inspect(ctx)
		if err != nil {
			return err
		}
		if len(state.Waiting) > 0 {
			break
		}
	}
	h.turns--
	h.gone = time.Now()
	err := h.locks[player].Unlock(ctx)
	if h.turns > 0 {
		<-h.measured // a command sent during the measurement would delay the round trips
	}
	return err
}
