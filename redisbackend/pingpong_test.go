package redisbackend_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// BenchmarkConditionPingPong has two processes wake each other by a condition in turn, as in a bounded buffer with one place. A
// round trip is two Signals and two Awaits. For comparison it measures plain pub/sub messages, which are the cheapest way to
// wake a goroutine of another process. The two measurements alternate, since the machine's speed changes.
func BenchmarkConditionPingPong(b *testing.B) {
	addr := redisserver.Start(b).Addr()
	table := newTable(b, addr)
	wire := newWire(b, addr)
	counter := connect(b, addr)
	table.play(b, 10) // loads the scripts
	wire.play(b, 10)

	var spent [2]time.Duration
	commands, trips := 0, 0
	const slice = 200
	for b.Loop() {
		before, start := evals(b, counter), time.Now()
		table.play(b, slice)
		spent[0] += time.Since(start)
		commands += evals(b, counter) - before

		start = time.Now()
		wire.play(b, slice)
		spent[1] += time.Since(start)
		trips += slice
	}
	b.ReportMetric(float64(spent[0])/float64(trips), "condition-ns/op")
	b.ReportMetric(float64(spent[1])/float64(trips), "pubsub-ns/op")
	b.ReportMetric(float64(spent[0])/float64(spent[1]), "ratio")
	b.ReportMetric(float64(commands)/float64(trips), "redis-commands/op")
	b.ReportMetric(0, "ns/op")
}

// A table has two sessions that pass a ball to each other. Each session has a client of its own, and a lock guards the ball.
type table struct {
	locks [2]*reentrant.Lock
	ball  int // number of strokes: its parity says whose turn it is
}

func newTable(tb testing.TB, addr string) *table {
	var t table
	for player := range t.locks {
		backend, err := redisbackend.New(connect(tb, addr))
		require.NoError(tb, err)
		session, err := reentrant.NewSession(backend, calm...)
		require.NoError(tb, err)
		tb.Cleanup(func() { assert.NoError(tb, session.Close(context.Background())) })
		t.locks[player] = session.NewLock("ball")
	}
	return &t
}

// play makes n round trips.
func (t *table) play(tb testing.TB, trips int) {
	t.ball = 0
	duel(tb, func(ctx context.Context, player int) error { return t.rally(ctx, player, 2*trips) })
}

// rally plays one player's part until the ball has been hit as often as strokes says.
func (t *table) rally(ctx context.Context, player, strokes int) error {
	moved := t.locks[player].NewCondition("moved")
	return t.locks[player].Do(ctx, func(context.Context) error {
		for t.ball < strokes {
			move := moved.Await
			if t.ball%2 == player {
				t.ball++
				move = moved.Signal
			}
			if err := move(ctx); err != nil {
				return err
			}
		}
		return nil // the signal of the last stroke has woken the other player if it was waiting
	})
}

// A wire has two clients that send each other plain pub/sub messages.
type wire struct {
	clients [2]rueidis.Client
	heard   [2]chan struct{}
}

// channels are the names of the two channels that the clients listen to.
var channels = [2]string{"pingpong:0", "pingpong:1"}

func newWire(tb testing.TB, addr string) *wire {
	var w wire
	for me := range channels {
		w.clients[me], w.heard[me] = connect(tb, addr), make(chan struct{}, 1)
		ctx, hangUp := context.WithCancel(context.Background())
		var listening sync.WaitGroup
		listening.Go(func() {
			_ = w.clients[me].Receive(ctx, w.clients[me].B().Subscribe().Channel(channels[me]).Build(), // returns when its context ends
				func(rueidis.PubSubMessage) { w.heard[me] <- struct{}{} })
		})
		tb.Cleanup(func() {
			hangUp()
			listening.Wait()
		})
	}
	require.Eventually(tb, func() bool {
		n, err := w.clients[0].Do(tb.Context(), w.clients[0].B().PubsubNumsub().Channel(channels[:]...).Build()).AsIntMap()
		require.NoError(tb, err)
		return n[channels[0]] == 1 && n[channels[1]] == 1
	}, time.Minute, time.Millisecond)
	return &w
}

// play makes n round trips.
func (w *wire) play(tb testing.TB, trips int) {
	duel(tb, func(ctx context.Context, me int) error {
		for range trips {
			if me == 1 {
				w.listen(ctx, me)
			}
			message := w.clients[me].B().Publish().Channel(channels[1-me]).Message("").Build()
			if err := w.clients[me].Do(ctx, message).Error(); err != nil {
				return err
			}
			if me == 0 {
				w.listen(ctx, me)
			}
		}
		return nil
	})
}

// listen waits for a message.
func (w *wire) listen(ctx context.Context, me int) {
	select {
	case <-w.heard[me]:
	case <-ctx.Done():
	}
}

// duel runs two players at once. The first error ends both.
func duel(tb testing.TB, play func(ctx context.Context, player int) error) {
	ctx, stop := context.WithCancelCause(tb.Context())
	defer stop(nil)
	var players sync.WaitGroup
	for player := range 2 {
		players.Go(func() {
			if err := play(ctx, player); err != nil {
				stop(err)
			}
		})
	}
	players.Wait()
	require.NoError(tb, context.Cause(ctx))
}
