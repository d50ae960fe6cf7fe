package redisbackend_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend"
)

// bare is a script that does nothing. It is called with as many keys and arguments as our scripts, so it shows the cost of a
// round trip.
type bare struct {
	client     rueidis.Client
	script     *rueidis.Lua
	keys, args []string
}

func newBare(client rueidis.Client, keys, args int) *bare {
	return &bare{client: client, script: rueidis.NewLuaScript("return {1, 1700000000000000, 1700000000000000, 0}"),
		keys: slices.Repeat([]string{"{bare}key"}, keys), args: slices.Repeat([]string{"1700000000000000"}, args)}
}

func (b *bare) call(ctx context.Context) error {
	list, err := b.script.Exec(ctx, b.client, b.keys, b.args).ToArray()
	if err != nil {
		return err
	}
	_, err = list[0].ToInt64()
	return err
}

// bench has an uncontended lock and, for comparison, bare scripts, on one connection.
type bench struct {
	ctx              context.Context
	conn             backend.Conn
	remote           backend.Remote
	req              backend.AcquireRequest
	acquire, release *bare
}

func newBench(tb testing.TB) *bench {
	client := connect(tb, redisserver.Start(tb).Addr())
	backend, err := redisbackend.New(client)
	require.NoError(tb, err)
	// Package reentrant, too, sends commands with a deadline that cannot be cancelled: the connection stays in its
	// synchronous mode.
	b := &bench{ctx: deadline{tb.Context(), time.Now().Add(time.Hour)}, acquire: newBare(client, 4, 13), release: newBare(client, 4, 6),
		req: request(0)}
	conn, err := backend.Connect(b.ctx, "5f0c8a3e-0000-4000-8000-000000000000", newMember())
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = conn.Close() })
	b.conn = conn
	b.remote, err = conn.Bind("lock")
	require.NoError(tb, err)
	b.req.NotAfter = time.Now().Add(time.Hour)
	return b
}

type deadline struct {
	context.Context
	at time.Time
}

func (d deadline) Deadline() (time.Time, bool) { return d.at, true }

func (b *bench) lock() error {
	b.req.Epoch++
	_, err := b.remote.Acquire(b.ctx, b.req)
	return err
}

func (b *bench) unlock() error {
	_, err := b.remote.Release(b.ctx, backend.ReleaseRequest{Epoch: b.req.Epoch})
	return err
}

// BenchmarkUncontended compares an uncontended Lock and Unlock with two calls of a script that does nothing. The two alternate
// in one run, because the speed of the machine varies by more than they differ.
func BenchmarkUncontended(b *testing.B) {
	s := newBench(b)
	steps := []func() error{s.lock, s.unlock,
		func() error { return s.acquire.call(s.ctx) }, func() error { return s.release.call(s.ctx) }}
	for _, step := range steps {
		require.NoError(b, step()) // loads the scripts
	}
	var spent [2]time.Duration
	for b.Loop() {
		for i, step := range steps {
			start := time.Now()
			if err := step(); err != nil {
				b.Fatal(err)
			}
			spent[i/2] += time.Since(start)
		}
	}
	n := float64(b.N)
	b.ReportMetric(float64(spent[0])/n, "lock+unlock-ns/op")
	b.ReportMetric(float64(spent[1])/n, "two-bare-ns/op")
	b.ReportMetric(float64(spent[0])/float64(spent[1]), "ratio")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkAcquireRelease is BenchmarkUncontended without the comparison, to count allocations and commands.
func BenchmarkAcquireRelease(b *testing.B) {
	s := newBench(b)
	require.NoError(b, s.lock())
	require.NoError(b, s.unlock())
	before := evals(b, s.acquire.client)
	b.ReportAllocs()
	for b.Loop() {
		if s.lock() != nil || s.unlock() != nil {
			b.Fatal("failed")
		}
	}
	b.ReportMetric(float64(evals(b, s.acquire.client)-before)/float64(b.N), "redis-commands/op")
}

func BenchmarkBareTwice(b *testing.B) {
	s := newBench(b)
	require.NoError(b, s.acquire.call(s.ctx))
	b.ReportAllocs()
	for b.Loop() {
		if s.acquire.call(s.ctx) != nil || s.release.call(s.ctx) != nil {
			b.Fatal("failed")
		}
	}
}

// BenchmarkRenew10000 renews 10,000 held locks at once.
func BenchmarkRenew10000(b *testing.B) {
	client := connect(b, redisserver.Start(b).Addr())
	redis, err := redisbackend.New(client)
	require.NoError(b, err)
	conn, err := redis.Connect(b.Context(), "5f0c8a3e-0000-4000-8000-000000000000", newMember())
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	renewals := make([]backend.Renewal, 10_000)
	for i := range renewals {
		remote, err := conn.Bind("lock:" + text(int64(i)))
		require.NoError(b, err)
		_, err = remote.Acquire(b.Context(), request(1, func(r *backend.AcquireRequest) { r.Lease = time.Hour }))
		require.NoError(b, err)
		renewals[i] = backend.Renewal{Remote: remote, Epoch: 1, Lease: time.Hour}
	}
	conn.Renew(b.Context(), renewals)
	before := evals(b, client)
	b.ReportAllocs()
	for b.Loop() {
		conn.Renew(b.Context(), renewals)
	}
	b.ReportMetric(float64(evals(b, client)-before)/float64(b.N), "redis-commands/op")
	for _, r := range renewals {
		require.NoError(b, r.Err)
		require.False(b, r.Gone)
	}
}

// evals returns how many scripts a server has run.
func evals(tb testing.TB, client rueidis.Client) int {
	// The context cannot be cancelled, so the connection stays in its synchronous mode.
	info, err := client.Do(context.Background(), client.B().Info().Section("commandstats").Build()).ToString()
	require.NoError(tb, err)
	return countScripts(tb, info)
}
