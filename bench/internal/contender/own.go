package contender

import (
	"context"
	"time"

	"github.com/relock-go/relock/bench/internal/workload"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// lingering is long enough that a goroutine that was idle finds its process still has the lock.
const lingering = time.Second

// own has Relock as a whole, and Relock with parts left out: the difference between two lines shows what a part gains.
var own = []Contender{
	{Name: "direct", About: "Relock without its local tier: each goroutine has a session of its own, over one client per process",
		Own: true, Reentrant: true, Open: openDirect},
	{Name: "budget-1", About: "Relock, WithTurn(1, 0): every other hold goes to a waiting process",
		Own: true, Reentrant: true, Open: session(reentrant.WithTurn(1, 0))},
	{Name: "relock", About: "Relock, defaults",
		Own: true, Reentrant: true, Open: session()},
	{Name: "async", About: "Relock, WithAsyncUnlock()",
		Own: true, Reentrant: true, Open: session(reentrant.WithAsyncUnlock())},
	{Name: "linger", About: "Relock, WithLinger(1s)",
		Own: true, Reentrant: true, Open: session(reentrant.WithLinger(lingering))},
	{Name: "cohort", About: "Relock, WithCohort()",
		Own: true, Reentrant: true, Open: session(reentrant.WithCohort())},
	{Name: "cohort-linger", About: "Relock, WithCohort() and WithLinger(1s)",
		Own: true, Reentrant: true, Open: session(reentrant.WithCohort(), reentrant.WithLinger(lingering))},
}

// session is Relock as it is meant to be used: one session for all goroutines of a process.
func session(opts ...reentrant.Option) func(context.Context, string, workload.Workload) (Process, error) {
	return func(ctx context.Context, url string, _ workload.Workload) (Process, error) {
		return openSessions(ctx, url, 1, opts)
	}
}

func openDirect(ctx context.Context, url string, w workload.Workload) (Process, error) {
	return openSessions(ctx, url, w.Goroutines, nil)
}

// A relock assigns its sessions to the goroutines.
type relock struct {
	backend  *redisbackend.Backend
	sessions []*reentrant.Session
}

func openSessions(ctx context.Context, url string, n int, opts []reentrant.Option) (*relock, error) {
	backend, err := redisbackend.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	r := &relock{backend: backend}
	for range n {
		s, err := reentrant.NewSession(backend, opts...)
		if err != nil {
			r.Close()
			return nil, err
		}
		r.sessions = append(r.sessions, s)
	}
	return r, nil
}

func (r *relock) Mutex(_ context.Context, goroutine int, name string) (Mutex, error) {
	return r.sessions[goroutine%len(r.sessions)].NewLock(name), nil
}

// Close releases the locks that a run left when it was cut off.
func (r *relock) Close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, s := range r.sessions {
		_ = s.Close(ctx)
	}
	r.backend.Close()
}
