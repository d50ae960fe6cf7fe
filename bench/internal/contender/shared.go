package contender

import (
	"context"

	"github.com/relock-go/relock/bench/internal/workload"
	"github.com/relock-go/relock/reentrant"
)

// shared are Relock's read-write lock and semaphore.
var shared = []Contender{
	{Name: "rwlock", About: "Relock's RWLock, defaults", Kind: workload.ReadWrite, Own: true, Open: openRWLock},
	{Name: "semaphore", About: "Relock's Semaphore, defaults", Kind: workload.Permits, Own: true, Open: openSemaphore},
}

type rwProcess struct{ *relock }

func openRWLock(ctx context.Context, url string, _ workload.Workload) (Process, error) {
	r, err := openSessions(ctx, url, 1, nil)
	return rwProcess{r}, err
}

func (p rwProcess) Mutex(_ context.Context, _ int, name string) (Mutex, error) {
	return p.sessions[0].NewRWLock(name), nil
}

type semaphoreProcess struct {
	*relock
	permits int
}

func openSemaphore(ctx context.Context, url string, w workload.Workload) (Process, error) {
	r, err := openSessions(ctx, url, 1, nil)
	return semaphoreProcess{r, w.Permits}, err
}

func (p semaphoreProcess) Mutex(_ context.Context, _ int, name string) (Mutex, error) {
	return permit{p.sessions[0].NewSemaphore(name, p.permits)}, nil
}

// A permit takes one permit of a semaphore.
type permit struct{ semaphore *reentrant.Semaphore }

func (p permit) Lock(ctx context.Context) error   { return p.semaphore.Acquire(ctx, 1) }
func (p permit) Unlock(ctx context.Context) error { return p.semaphore.Release(ctx, 1) }

// split is the upper bound of what a semaphore can reach: it sends nothing to Redis.
var split = Contender{
	Name: "split", About: "no Redis: each process has its part of the permits in a channel", Kind: workload.Permits,
	Open: func(_ context.Context, _ string, w workload.Workload) (Process, error) {
		return &splitProcess{share: w.Permits / w.Processes, channels: make(map[string]channel)}, nil
	},
}

// A splitProcess has a channel for each semaphore.
type splitProcess struct {
	share    int
	channels map[string]channel
}

func (p *splitProcess) Mutex(_ context.Context, _ int, name string) (Mutex, error) {
	if p.channels[name] == nil {
		p.channels[name] = make(channel, p.share)
	}
	return p.channels[name], nil
}

func (p *splitProcess) Close() {}

// A channel is a semaphore: it has a value for each permit that is taken.
type channel chan struct{}

func (c channel) Lock(ctx context.Context) error {
	select {
	case c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c channel) Unlock(context.Context) error {
	<-c
	return nil
}
