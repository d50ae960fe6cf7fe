package contender

import (
	"context"
	"math"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/relock-go/relock/bench/internal/workload"
)

// peers are the other libraries at their newest versions (go.mod), with their defaults and with settings that favour
// them.
var peers = []Contender{
	{Name: "rueidislock", About: "rueidislock, defaults: the majority of three keys",
		Open: openRueidislock(rueidislock.LockerOption{})},
	{Name: "rueidislock-1", About: "rueidislock, KeyMajority 1 and NoLoopTracking, which its README recommends for one Redis",
		Open: openRueidislock(rueidislock.LockerOption{KeyMajority: 1, NoLoopTracking: true})},
	{Name: "redsync", About: "redsync, defaults: asks again after 50 to 250 ms; as many tries as it takes",
		Plain: []string{"set"}, Open: openRedsync()},
	{Name: "redsync-5ms", About: "redsync, asks again every 5 ms",
		Plain: []string{"set"}, Open: openRedsync(redsync.WithRetryDelay(5 * time.Millisecond))},
	{Name: "redislock-linear", About: "bsm/redislock, LinearBackoff of 10 ms",
		Open: openRedislock(func() redislock.RetryStrategy { return redislock.LinearBackoff(10 * time.Millisecond) })},
	{Name: "redislock-exponential", About: "bsm/redislock, ExponentialBackoff from 1 to 100 ms",
		Open: openRedislock(func() redislock.RetryStrategy {
			return redislock.ExponentialBackoff(time.Millisecond, 100*time.Millisecond)
		})},
}

// lease is as long as Relock's default, so that with every contender the wait for a dead holder is equally long.
const lease = 10 * time.Second

// ---------------------------------------------------------------- rueidislock

type rueidisProcess struct{ locker rueidislock.Locker }

func openRueidislock(option rueidislock.LockerOption) func(context.Context, string, workload.Workload) (Process, error) {
	return func(_ context.Context, url string, _ workload.Workload) (Process, error) {
		client, err := rueidis.ParseURL(url)
		if err != nil {
			return nil, err
		}
		option.ClientOption = client
		option.KeyValidity = lease
		locker, err := rueidislock.NewLocker(option)
		if err != nil {
			return nil, err
		}
		return rueidisProcess{locker}, nil
	}
}

func (p rueidisProcess) Mutex(_ context.Context, _ int, name string) (Mutex, error) {
	return &rueidisMutex{locker: p.locker, name: name}, nil
}

func (p rueidisProcess) Close() { p.locker.Close() }

type rueidisMutex struct {
	locker rueidislock.Locker
	name   string
	unlock context.CancelFunc
}

func (m *rueidisMutex) Lock(ctx context.Context) (err error) {
	_, m.unlock, err = m.locker.WithContext(ctx, m.name)
	return err
}

func (m *rueidisMutex) Unlock(context.Context) error {
	m.unlock() // Unlock returns no error here
	return nil
}

// ---------------------------------------------------------------- redsync and redislock, on go-redis

// connect makes a client with a connection for each goroutine, for the case that they need them at once. With the default of
// ten connections for each CPU, the holder's Unlock would wait behind the goroutines that poll.
func connect(ctx context.Context, url string, goroutines int) (*redis.Client, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	options.PoolSize = goroutines
	client := redis.NewClient(options)
	if err := client.Ping(ctx).Err(); err != nil {
		_ = client.Close() // the first error explains more
		return nil, err
	}
	return client, nil
}

type redsyncProcess struct {
	client  *redis.Client
	redsync *redsync.Redsync
	options []redsync.Option
}

func openRedsync(options ...redsync.Option) func(context.Context, string, workload.Workload) (Process, error) {
	return func(ctx context.Context, url string, w workload.Workload) (Process, error) {
		client, err := connect(ctx, url, w.Goroutines)
		if err != nil {
			return nil, err
		}
		options := append([]redsync.Option{redsync.WithExpiry(lease), redsync.WithTries(math.MaxInt32)}, options...)
		return redsyncProcess{client, redsync.New(redsyncpool.NewPool(client)), options}, nil
	}
}

func (p redsyncProcess) Mutex(_ context.Context, _ int, name string) (Mutex, error) {
	return redsyncMutex{p.redsync.NewMutex(name, p.options...)}, nil
}

func (p redsyncProcess) Close() { _ = p.client.Close() }

type redsyncMutex struct{ mutex *redsync.Mutex }

func (m redsyncMutex) Lock(ctx context.Context) error { return m.mutex.LockContext(ctx) }

func (m redsyncMutex) Unlock(ctx context.Context) error {
	_, err := m.mutex.UnlockContext(ctx)
	return err
}

type redislockProcess struct {
	client *redis.Client
	locker *redislock.Client
	retry  func() redislock.RetryStrategy
}

func openRedislock(retry func() redislock.RetryStrategy) func(context.Context, string, workload.Workload) (Process, error) {
	return func(ctx context.Context, url string, w workload.Workload) (Process, error) {
		client, err := connect(ctx, url, w.Goroutines)
		if err != nil {
			return nil, err
		}
		return redislockProcess{client, redislock.New(client), retry}, nil
	}
}

func (p redislockProcess) Mutex(_ context.Context, _ int, name string) (Mutex, error) {
	return &redislockMutex{process: p, name: name}, nil
}

func (p redislockProcess) Close() { _ = p.client.Close() }

type redislockMutex struct {
	process redislockProcess
	name    string
	held    *redislock.Lock
}

// Lock makes a new strategy each time, because the exponential one counts its pauses.
func (m *redislockMutex) Lock(ctx context.Context) (err error) {
	m.held, err = m.process.locker.Obtain(ctx, m.name, lease, &redislock.Options{RetryStrategy: m.process.retry()})
	return err
}

func (m *redislockMutex) Unlock(ctx context.Context) error { return m.held.Release(ctx) }
