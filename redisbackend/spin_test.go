package redisbackend_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// BenchmarkSpin measures whether it pays that the head of a queue tries again before it parks. Two sessions with one goroutine
// each acquire the same lock all the time, and hold it for the given time. Runs with different numbers of tries alternate. The
// metric ratio compares each run with the run that makes no tries. docs/performance.md has the results.
func BenchmarkSpin(b *testing.B) {
	for _, inside := range []time.Duration{0, 50 * time.Microsecond, 500 * time.Microsecond} {
		b.Run(fmt.Sprintf("inside=%v", inside), func(b *testing.B) { spin(b, inside, []int{0, 1, 3, 10}) })
	}
}

func spin(b *testing.B, inside time.Duration, spins []int) {
	addr := redisserver.Start(b).Addr()
	counter := connect(b, addr)
	const slice = 200
	play := make([]func(), len(spins))
	for i, n := range spins {
		locks := contest(b, addr, fmt.Sprint("spin-", n), n)
		play[i] = func() {
			duel(b, func(ctx context.Context, player int) error {
				for range slice / 2 {
					if err := locks[player].Do(ctx, func(context.Context) error { busy(inside); return nil }); err != nil {
						return err
					}
				}
				return nil
			})
		}
		play[i]() // loads the scripts
	}
	spent, commands, sections := make([]time.Duration, len(spins)), make([]int, len(spins)), 0
	for b.Loop() {
		for i := range spins {
			before, start := evals(b, counter), time.Now()
			play[i]()
			spent[i] += time.Since(start)
			commands[i] += evals(b, counter) - before
		}
		sections += slice
	}
	for i, n := range spins {
		b.ReportMetric(float64(spent[i])/float64(spent[0]), fmt.Sprintf("spin%d-ratio", n))
		b.ReportMetric(float64(commands[i])/float64(sections), fmt.Sprintf("spin%d-redis-commands/op", n))
	}
	b.ReportMetric(0, "ns/op")
}

// contest returns one lock for each of two sessions. Both locks have the same name, and each session has a client of its own.
func contest(tb testing.TB, addr, name string, spin int) (locks [2]*reentrant.Lock) {
	for player := range locks {
		backend, err := redisbackend.New(connect(tb, addr))
		require.NoError(tb, err)
		session, err := reentrant.NewSession(backend, slices.Concat(calm, []reentrant.Option{reentrant.WithSpin(spin)})...)
		require.NoError(tb, err)
		tb.Cleanup(func() { assert.NoError(tb, session.Close(context.Background())) })
		locks[player] = session.NewLock(name)
	}
	return locks
}

func busy(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
	}
}
