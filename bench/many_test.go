package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// A many takes several locks for the owner of ctx, and returns a function that releases them.
type many func(ctx context.Context, names []string) (giveBack func() error, err error)

// contenders are the ways to take several locks. Each function opens one process on the Redis at addr.
var contenders = map[string]func(b *testing.B, addr string) many{
	"relock-multilock": func(b *testing.B, addr string) many {
		s := openSession(b, addr)
		return func(ctx context.Context, names []string) (func() error, error) {
			m := reentrant.NewMultiLock(handles(s, names)...)
			return func() error { return m.Unlock(ctx) }, m.Lock(ctx)
		}
	},
	"relock-one-by-one": func(b *testing.B, addr string) many {
		s := openSession(b, addr)
		return func(ctx context.Context, names []string) (func() error, error) {
			locks := handles(s, slices.Sorted(slices.Values(names)))
			for _, l := range locks {
				if err := l.Lock(ctx); err != nil {
					return nil, err
				}
			}
			return func() error {
				for _, l := range slices.Backward(locks) {
					if err := l.Unlock(ctx); err != nil {
						return err
					}
				}
				return nil
			}, nil
		}
	},
	"redislock-obtainmulti": func(b *testing.B, addr string) many {
		client := redis.NewClient(&redis.Options{Addr: addr})
		b.Cleanup(func() { _ = client.Close() })
		locker := redislock.New(client)
		return func(ctx context.Context, names []string) (func() error, error) {
			l, err := locker.ObtainMulti(ctx, names, 10*time.Second,
				&redislock.Options{RetryStrategy: redislock.ExponentialBackoff(time.Millisecond, 64*time.Millisecond)})
			return func() error { return l.Release(ctx) }, err
		}
	},
}

func openSession(b *testing.B, addr string) *reentrant.Session {
	backend, err := redisbackend.Open(b.Context(), "redis://"+addr)
	require.NoError(b, err)
	b.Cleanup(backend.Close)
	s, err := reentrant.NewSession(backend)
	require.NoError(b, err)
	b.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

func handles(s *reentrant.Session, names []string) (locks []*reentrant.Lock) {
	for _, name := range names {
		locks = append(locks, s.NewLock(name))
	}
	return locks
}

func named(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("{many}%04d", i))
	}
	return names
}

// A thousand free locks are acquired and released.
func BenchmarkAThousandFreeLocks(b *testing.B) {
	for name, open := range contenders {
		b.Run(name, func(b *testing.B) {
			take := open(b, redisserver.Start(b).Addr())
			ctx := reentrant.WithOwner(context.Background(), "owner")
			for b.Loop() {
				giveBack, err := take(ctx, named(1000))
				require.NoError(b, err)
				require.NoError(b, giveBack())
			}
		})
	}
}

// Five processes of 20 owners each take random sets of ten out of 200 locks, and hold each set for a millisecond. The benchmark
// reports the wait for a set.
func BenchmarkRandomSetsOfTen(b *testing.B) {
	for name, open := range contenders {
		b.Run(name, func(b *testing.B) {
			addr := redisserver.Start(b).Addr()
			names := named(200)
			var mu sync.Mutex
			var waits []time.Duration
			var owners sync.WaitGroup
			begun := time.Now()
			for p := range 5 {
				take := open(b, addr)
				for i := range 20 {
					owners.Go(func() {
						ctx := reentrant.WithOwner(context.Background(), fmt.Sprint(p, "/", i))
						for range b.N {
							var set []string
							for _, n := range rand.Perm(len(names))[:10] {
								set = append(set, names[n])
							}
							asked := time.Now()
							giveBack, err := take(ctx, set)
							waited := time.Since(asked)
							if err != nil {
								b.Error(err)
								return
							}
							time.Sleep(time.Millisecond)
							if err := giveBack(); err != nil {
								b.Error(err)
								return
							}
							mu.Lock()
							waits = append(waits, waited)
							mu.Unlock()
						}
					})
				}
			}
			owners.Wait()
			slices.Sort(waits)
			b.ReportMetric(float64(len(waits))/time.Since(begun).Seconds(), "sets/s")
			b.ReportMetric(float64(waits[len(waits)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}
