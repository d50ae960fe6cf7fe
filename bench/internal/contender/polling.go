package contender

import (
	"context"
	"crypto/rand"
	_ "embed"
	"math"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/relock-go/relock/bench/internal/workload"
)

// polling has a plain read-write lock and a plain semaphore that poll Redis until they succeed. They are written for
// this benchmark: correct, with leases, and as simple as possible. They have no order and do not renew.
var polling = []Contender{
	pollingOf("rw-polling-1ms", "our own plain read-write lock for comparison: asks again every millisecond", workload.ReadWrite, time.Millisecond),
	pollingOf("rw-polling-10ms", "the same, asks again every 10 ms", workload.ReadWrite, 10*time.Millisecond),
	pollingOf("semaphore-polling-1ms", "our own plain semaphore for comparison: asks again every millisecond", workload.Permits, time.Millisecond),
	pollingOf("semaphore-polling-10ms", "the same, asks again every 10 ms", workload.Permits, 10*time.Millisecond),
}

//go:embed polling.lua
var pollingText string

var pollingScript = redis.NewScript(pollingText)

func pollingOf(name, about string, kind workload.Kind, pause time.Duration) Contender {
	return Contender{Name: name, About: about, Kind: kind, Plain: []string{"zrem"},
		Open: func(ctx context.Context, url string, w workload.Workload) (Process, error) {
			client, err := connect(ctx, url, w.Goroutines)
			return &pollingProcess{client, w, pause}, err
		}}
}

type pollingProcess struct {
	client   *redis.Client
	workload workload.Workload
	pause    time.Duration
}

func (p *pollingProcess) Mutex(_ context.Context, _ int, name string) (Mutex, error) {
	return &pollingMutex{process: p, name: name}, nil
}

func (p *pollingProcess) Close() { _ = p.client.Close() }

// A pollingMutex is one member of a lock. It is inside at most once at a time.
type pollingMutex struct {
	process *pollingProcess
	name    string
	member  string
}

// Lock takes the write side or a permit.
func (m *pollingMutex) Lock(ctx context.Context) error {
	if m.process.workload.Kind == workload.Permits {
		return m.enter(ctx, "p", m.process.workload.Permits-1)
	}
	return m.enter(ctx, "w", 0)
}

func (m *pollingMutex) RLock(ctx context.Context) error { return m.enter(ctx, "r", math.MaxInt32) }

func (m *pollingMutex) enter(ctx context.Context, kind string, others int) error {
	m.member = kind + rand.Text()
	for {
		inside, err := pollingScript.Run(ctx, m.process.client, []string{m.name}, m.member, lease.Milliseconds(), others).Bool()
		if inside || err != nil {
			return err
		}
		select {
		case <-time.After(m.process.pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m *pollingMutex) RUnlock(ctx context.Context) error { return m.Unlock(ctx) }

func (m *pollingMutex) Unlock(ctx context.Context) error {
	return m.process.client.ZRem(ctx, m.name, m.member).Err()
}
