package reentrant_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/reentrant"
)

// A slotProgram makes callers of several sessions take slots and give them back, while sessions are cut off.
type slotProgram struct {
	t     *testing.T
	limit int

	mu     sync.Mutex // guards what follows, and rnd
	rnd    *rand.Rand
	has    map[int]reentrant.Slot // by number: the slots that are not lost or given back
	tokens map[int]reentrant.Token
	wrong  []string
}

func (p *slotProgram) random(most time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration(p.rnd.Int64N(int64(most)))
}

// took notes a slot, and checks that no other slot, unless that is lost, has the same number.
func (p *slotProgram) took(s reentrant.Slot) {
	token, err := s.Token()
	if err != nil { // lost already
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := s.Number()
	if other, taken := p.has[n]; taken && stillOpen(other.Lost()) {
		p.wrong = append(p.wrong, fmt.Sprintf("number %d is had twice", n))
	}
	if n >= p.limit || token <= p.tokens[n] {
		p.wrong = append(p.wrong, fmt.Sprintf("number %d of %d with token %d after %d", n, p.limit, token, p.tokens[n]))
	}
	p.has[n], p.tokens[n] = s, token
}

// gives records that a slot is about to be given back.
func (p *slotProgram) gives(s reentrant.Slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.has[s.Number()] == s {
		delete(p.has, s.Number())
	}
}

// play takes slots and gives them back.
func (p *slotProgram) play(m *reentrant.Semaphore) {
	for range 8 {
		ctx, cancel := context.WithTimeout(p.t.Context(), time.Millisecond+p.random(20*time.Second))
		s, err := m.AcquireSlot(ctx)
		cancel()
		if err != nil {
			assert.ErrorIs(p.t, err, context.DeadlineExceeded)
			continue
		}
		p.took(s)
		select {
		case <-s.Lost():
		case <-time.After(p.random(3 * time.Second)):
		}
		p.gives(s)
		if err := s.Release(p.t.Context()); err != nil && !errors.Is(err, reentrant.ErrLost) {
			assert.ErrorIs(p.t, err, reentrant.ErrUnavailable)
		}
		assert.ErrorIs(p.t, s.Release(p.t.Context()), reentrant.ErrNotHeld)
		time.Sleep(p.random(time.Second))
	}
}

func (p *slotProgram) run(cuts bool, opts ...reentrant.Option) {
	b := memory.New(memory.WithFault(func(op memory.Op) memory.Verdict {
		if op.Verb == memory.Connect {
			return memory.Pass
		}
		return memory.Verdict{Delay: p.random(3 * time.Millisecond), Late: p.random(3 * time.Millisecond)}
	}))
	var players sync.WaitGroup
	var sessions []*reentrant.Session
	for range 3 {
		s := newSession(p.t, b, opts...)
		sessions = append(sessions, s)
		for range 2 {
			players.Go(func() { p.play(s.NewSemaphore("nodes", p.limit)) })
		}
	}
	done := make(chan struct{})
	go func() { players.Wait(); close(done) }()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		case <-time.After(p.random(10 * time.Second)):
		}
		if id := sessions[p.random(3)].ID(); cuts && !over {
			b.Partition(id, true)
			time.Sleep(p.random(15 * time.Second))
			b.Partition(id, false)
		}
	}
	time.Sleep(2 * reentrant.DefaultLease)
	assert.Empty(p.t, p.wrong)
	last := newSession(p.t, b).NewSemaphore("nodes", p.limit)
	var all []reentrant.Slot
	for i := range p.limit {
		ctx, cancel := context.WithTimeout(p.t.Context(), time.Second)
		s, err := last.AcquireSlot(ctx)
		cancel()
		require.NoError(p.t, err, "all are free")
		assert.Equal(p.t, i, s.Number())
		all = append(all, s)
	}
	for _, s := range all {
		require.NoError(p.t, s.Release(p.t.Context()))
	}
}

// Of slots that are not lost no two have the same number, tokens of a number rise, and at last all are free.
func TestNoTwoSlotsOfRandomProgramsHaveTheSameNumber(t *testing.T) {
	modes := map[string][]reentrant.Option{"plain": nil, "asynchronous": {reentrant.WithAsyncUnlock()}, "cohort": {reentrant.WithCohort()}}
	for name, mode := range modes {
		for _, cuts := range []bool{false, true} {
			t.Run(strings.Join([]string{name, fmt.Sprint("cuts ", cuts)}, ", "), func(t *testing.T) {
				for seed := range uint64(testsize.Of(300, 8)) {
					synctest.Test(t, func(t *testing.T) {
						p := &slotProgram{t: t, limit: 1 + int(seed%4), rnd: rand.New(rand.NewPCG(seed, 0)), has: map[int]reentrant.Slot{}, tokens: map[int]reentrant.Token{}}
						p.run(cuts, mode...)
					})
					if t.Failed() {
						t.Fatalf("seed %d", seed)
					}
				}
			})
		}
	}
}
