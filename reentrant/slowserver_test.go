package reentrant_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// slowKinds are the kinds of holds in these tests: a lock, a side, a permit.
var slowKinds = map[string]struct {
	opts  []reentrant.Option
	sides func(s *reentrant.Session) []slowSide
}{
	"lock":       {sides: lockSides},
	"cohort":     {opts: []reentrant.Option{reentrant.WithCohort()}, sides: lockSides},
	"read-write": {sides: rwSides},
	"semaphore":  {sides: permitSides},
}

// A slowSide takes a part of a name and releases it.
type slowSide struct{ take, leave func(context.Context) error }

func lockSides(s *reentrant.Session) []slowSide {
	l := s.NewLock("x")
	return []slowSide{{l.Lock, l.Unlock}}
}

func rwSides(s *reentrant.Session) []slowSide {
	l := s.NewRWLock("x")
	downgrade := func(ctx context.Context) error { return errors.Join(l.RLock(ctx), l.Unlock(ctx), l.RUnlock(ctx)) }
	return []slowSide{{l.Lock, l.Unlock}, {l.RLock, l.RUnlock}, {l.Lock, downgrade}}
}

func permitSides(s *reentrant.Session) (sides []slowSide) {
	m := s.NewSemaphore("x", 3)
	for n := range 3 {
		sides = append(sides, slowSide{
			func(ctx context.Context) error { return m.Acquire(ctx, n+1) },
			func(ctx context.Context) error { return m.Release(ctx, n+1) },
		})
	}
	return sides
}

// A server that becomes slow just after it has pushed a grant costs no hold. By then the session has replaced the
// grant's short lease by a full one: with one renewal for a hold that lasts long enough, and none for a shorter one.
func TestAServerThatIsSlowSoonAfterAPushCostsNoHold(t *testing.T) {
	for name, kind := range slowKinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				opts := append(kind.opts, reentrant.WithLease(time.Minute))
				s := newSession(t, b, opts...)
				sides := kind.sides(s)
				side := sides[len(sides)-1]
				first := kind.sides(newSession(t, b, opts...))[len(sides)-1]
				require.NoError(t, first.take(owner(t, "a")))
				got := make(chan error)
				go func() { got <- side.take(owner(t, "b")) }()
				synctest.Wait()
				require.NoError(t, first.leave(owner(t, "a")))
				require.NoError(t, <-got)
				time.Sleep(reentrant.DefaultHeartbeat / 10)
				synctest.Wait()
				assert.Zero(t, b.Count(memory.Renew), "a short hold needs no renewal")
				time.Sleep(reentrant.DefaultHeartbeat * 3 / 10)
				synctest.Wait()
				assert.Equal(t, 1, b.Count(memory.Renew))
				b.Partition(s.ID(), true)
				time.Sleep(20 * time.Second)
				b.Partition(s.ID(), false)
				time.Sleep(20 * time.Second)
				assert.NoError(t, side.leave(owner(t, "b")))
			})
		})
	}
}

// A slowServer replies to every command within three seconds, and to two of three in time. Messages are as late, or
// lost, and some commands arrive twice.
type slowServer struct {
	mu   sync.Mutex
	rnd  *rand.Rand
	late map[string]int // by verb, how many commands of a session in a row had late replies
}

func (s *slowServer) judge(op memory.Op) memory.Verdict {
	const slowest, limit = 3 * time.Second, 1900 * time.Millisecond
	s.mu.Lock()
	defer s.mu.Unlock()
	takes := time.Duration(s.rnd.Int64N(int64(slowest)))
	if op.Verb == memory.Push {
		return memory.Verdict{Lost: s.rnd.IntN(10) == 0, Delay: takes}
	}
	count := op.Session + string(op.Verb)
	if s.late[count]++; takes < limit || s.late[count] > 2 {
		takes, s.late[count] = takes%limit, 0
	}
	v := memory.Verdict{Delay: time.Duration(s.rnd.Int64N(int64(takes) + 1))}
	v.Late = takes - v.Delay
	if s.rnd.IntN(10) == 0 {
		v.Again = time.Duration(s.rnd.Int64N(int64(10 * time.Second)))
	}
	return v
}

// With heartbeats, and so grants, as long as the lease allows, a slow server costs no hold, in whatever order commands
// and messages arrive.
func TestAServerThatIsOnlySlowCostsNoHold(t *testing.T) {
	for name, kind := range slowKinds {
		for seed := range uint64(5) {
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := &slowServer{rnd: rand.New(rand.NewPCG(seed, 0)), late: make(map[string]int)}
					b := memory.New()
					var users sync.WaitGroup
					for i := range 3 {
						s := newSession(t, b, append(kind.opts, reentrant.WithLease(time.Minute), reentrant.WithHeartbeat(20*time.Second))...)
						for j := range 3 {
							rnd, ctx := rand.New(rand.NewPCG(seed, uint64(1+3*i+j))), owner(t, fmt.Sprint(i, j))
							users.Go(func() { useSlowly(t, ctx, rnd, kind.sides(s)) })
						}
					}
					b.SetFault(server.judge)
					users.Wait()
					b.SetFault(nil)
				})
			})
		}
	}
}

// useSlowly takes sides for short and long times, sometimes with little patience. It may not learn whether a release
// succeeded, but must never learn of a loss.
func useSlowly(t *testing.T, ctx context.Context, rnd *rand.Rand, sides []slowSide) {
	for range 5 {
		time.Sleep(time.Duration(rnd.Int64N(int64(20 * time.Second))))
		side, patience := sides[rnd.IntN(len(sides))], time.Hour
		if rnd.IntN(3) == 0 {
			patience = time.Duration(rnd.Int64N(int64(time.Minute)))
		}
		waiting, cancel := context.WithTimeout(ctx, patience)
		err := side.take(waiting)
		cancel()
		if err != nil {
			continue
		}
		time.Sleep(time.Duration(rnd.Int64N(int64(90*time.Second))) / time.Duration(1+99*rnd.IntN(2)))
		err = side.leave(ctx)
		assert.True(t, err == nil || errors.Is(err, reentrant.ErrUnavailable), "%v", err)
	}
}
