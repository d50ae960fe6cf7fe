package reentrant_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/reentrant"
)

// An ownerProgram makes goroutines of several sessions, two for each owner, run functions inside one another.
type ownerProgram struct {
	t *testing.T

	mu    sync.Mutex // guards what follows, and rnd
	rnd   *rand.Rand
	reads map[reentrant.Owner]int // functions inside, by owner
	write map[reentrant.Owner]int
	used  int // permits
}

func (p *ownerProgram) random(most int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rnd.IntN(most)
}

// within counts f as inside while f runs, and checks that no owner but the writer is inside together with a writer.
func (p *ownerProgram) within(own reentrant.Owner, inside map[reentrant.Owner]int, f func()) {
	p.mu.Lock()
	inside[own]++
	for owner, n := range p.write {
		assert.True(p.t, n == 0 || owner == own, "%v is beside the writer %v", own, owner)
	}
	for owner, n := range p.reads {
		assert.True(p.t, n == 0 || owner == own || p.write[own] == 0, "the writer %v is beside %v", own, owner)
	}
	p.mu.Unlock()
	f()
	p.mu.Lock()
	defer p.mu.Unlock()
	inside[own]--
}

// do runs a function inside the lock. That function may call do again.
func (p *ownerProgram) do(ctx context.Context, do, rdo func(context.Context, func(context.Context) error) error, own reentrant.Owner, depth int) error {
	run, inside := do, p.write
	if rdo != nil && p.random(2) == 0 {
		run, inside = rdo, p.reads
	}
	return run(ctx, func(ctx context.Context) error {
		p.within(own, inside, func() {
			time.Sleep(time.Duration(p.random(3000)) * time.Microsecond)
			if depth < 3 && p.random(2) == 0 {
				if err := p.do(ctx, do, rdo, own, depth+1); err != nil {
					assert.ErrorIs(p.t, err, reentrant.ErrUpgrade)
				}
			}
		})
		return nil
	})
}

func (p *ownerProgram) play(s *reentrant.Session, ctx context.Context, own reentrant.Owner, kind string) {
	l, rw, m := s.NewLock("x"), s.NewRWLock("x"), s.NewSemaphore("x", 3)
	for range 6 {
		var err error
		switch n := 1 + p.random(3); kind {
		case "lock":
			err = p.do(ctx, l.Do, nil, own, 0)
		case "sides":
			err = p.do(ctx, rw.Do, rw.RDo, own, 0)
		default:
			err = m.Do(ctx, n, func(context.Context) error {
				p.use(n)
				time.Sleep(time.Duration(p.random(3000)) * time.Microsecond)
				p.use(-n)
				return nil
			})
		}
		assert.True(p.t, err == nil || errors.Is(err, reentrant.ErrUpgrade), "%v", err)
		time.Sleep(time.Duration(p.random(3000)) * time.Microsecond)
	}
}

func (p *ownerProgram) use(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used += n
	assert.LessOrEqual(p.t, p.used, 3)
}

// Two goroutines of one owner are inside together, and owners keep each other out, whatever functions run inside one another.
func TestFunctionsOfSharedOwnersInRandomPrograms(t *testing.T) {
	for _, kind := range []string{"lock", "sides", "permits"} {
		for name, mode := range map[string][]reentrant.Option{"plain": nil, "asynchronous": {reentrant.WithAsyncUnlock()}, "cohort": {reentrant.WithCohort(), reentrant.WithLinger(time.Millisecond)}} {
			t.Run(kind+", "+name, func(t *testing.T) {
				for seed := range uint64(testsize.Of(500, 15)) {
					synctest.Test(t, func(t *testing.T) {
						p := &ownerProgram{t: t, rnd: rand.New(rand.NewPCG(seed, 0)), reads: map[reentrant.Owner]int{}, write: map[reentrant.Owner]int{}}
						b := memory.New(memory.WithFault(func(memory.Op) memory.Verdict {
							return memory.Verdict{Delay: time.Duration(p.random(500)) * time.Microsecond, Late: time.Duration(p.random(500)) * time.Microsecond}
						}))
						var players sync.WaitGroup
						for _, session := range []string{"a", "b"} {
							s := newSession(t, b, mode...)
							for _, who := range []string{"1", "2"} {
								ctx := owner(t, session+who)
								for range 2 {
									players.Go(func() { p.play(s, ctx, reentrant.CurrentOwner(ctx), kind) })
								}
							}
						}
						players.Wait()
						assert.Zero(t, p.used)
					})
					if t.Failed() {
						t.Fatalf("seed %d", seed)
					}
				}
			})
		}
	}
}
