package main

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	inmemory "github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// idsOf returns the ids that a generator draws until there are n, or until draw fails.
func idsOf(t *testing.T, g *generator, n int) (ids []int64) {
	t.Helper()
	for range n {
		id, err := g.draw()
		require.NoError(t, err)
		ids = append(ids, id)
	}
	return ids
}

func openNodes(t *testing.T, b *inmemory.Backend, limit int) (*reentrant.Session, *reentrant.Semaphore) {
	t.Helper()
	s, err := reentrant.NewSession(b)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s, s.NewSemaphore(nodesName, limit)
}

func TestIDsRiseAndCarryTheirNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGenerator(fixedNode{number: 5}, time.Now().UnixMicro())
		ids := idsOf(t, g, 3*(lastSequence+1)) // more ids than a millisecond has
		for i, id := range ids {
			require.Equal(t, 5, nodeOf(id))
			require.True(t, i == 0 || id > ids[i-1])
		}
	})
}

// When a node number is released, another holder may get it within the same millisecond.
func TestTheNextHolderOfANodeNumberBeginsAboveTheLastID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New()
		last := int64(math.MinInt64) // a bubble begins in 2000
		for range 3 {
			_, m := openNodes(t, b, 1)
			n, err := joinSlots(m)(t.Context())
			require.NoError(t, err)
			ids := idsOf(t, newGenerator(n, time.Now().UnixMicro()), 10)
			assert.Greater(t, ids[0], last)
			last = ids[9]
			require.NoError(t, n.Release(t.Context()))
		}
	})
}

// A holder that gets no reply from Redis draws ids until it loses its number. The next holder begins with higher ids.
func TestAGeneratorThatLostItsNumberDrawsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := inmemory.New()
		dead, m := openNodes(t, b, 1)
		n, err := joinSlots(m)(t.Context())
		require.NoError(t, err)
		g := newGenerator(n, time.Now().UnixMicro())
		b.Partition(dead.ID(), true)
		defer b.Partition(dead.ID(), false)
		last, start := int64(0), time.Now()
		for {
			id, err := g.draw()
			if err != nil {
				require.ErrorIs(t, err, reentrant.ErrLost)
				break
			}
			last = id
			require.Less(t, time.Since(start), reentrant.DefaultLease, "the lease ends")
			time.Sleep(10 * time.Millisecond)
		}
		_, other := openNodes(t, b, 1)
		next, err := joinSlots(other)(t.Context())
		require.NoError(t, err)
		assert.Zero(t, next.Number())
		after := newGenerator(next, time.Now().UnixMicro())
		assert.Greater(t, idsOf(t, after, 1)[0], last)
		_, err = g.draw()
		assert.ErrorIs(t, err, reentrant.ErrLost)
	})
}

// A holder can be paused for longer than its lease at any point. So it must not read its clock after it has checked
// that the number is still trusted.
func TestAPauseDoesNotMoveTheTimeOfAnID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGenerator(pausedNode{}, time.Now().UnixMicro())
		time.Sleep(time.Second)
		trusted := time.Now().UnixMilli()
		at := idsOf(t, g, 1)[0]>>(nodeBits+sequenceBits) + idEpoch
		assert.LessOrEqual(t, at, trusted)
	})
}

// For a holder that keeps its number for long, the times in ids are behind Redis's clock and never ahead of it, even if
// this machine's clock is fast.
func TestTheTimeInAnIDIsNotThatOfThisMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC) // the server's clock is years away from this machine's
		g := newGenerator(fixedNode{}, asked.UnixMicro())
		const day = 24 * time.Hour
		time.Sleep(day)
		at := time.UnixMilli(idsOf(t, g, 1)[0]>>(nodeBits+sequenceBits) + idEpoch)
		assert.Less(t, at.Sub(asked), day-day/1100)
		assert.Greater(t, at.Sub(asked), day-day/900)
	})
}

func TestAGeneratorTakesAnotherNumberAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		numbers := 0
		join := func(context.Context) (node, error) {
			if numbers++; numbers == 3 {
				cancel()
				return nil, context.Canceled
			}
			return fixedNode{err: reentrant.ErrLost}, nil
		}
		counts := &tally{}
		d := drawer{join: join, tally: counts}
		require.ErrorIs(t, d.run(ctx), context.Canceled)
		assert.EqualValues(t, 2, counts.lost.Load())
	})
}

// A fixedNode is a node number whose loss a test controls.
type fixedNode struct {
	number int
	err    error
}

func (n fixedNode) Number() int                     { return n.number }
func (n fixedNode) Token() (reentrant.Token, error) { return 0, n.err }
func (fixedNode) Release(context.Context) error     { return nil }

// A pausedNode is a node number whose holder is paused right after the check that it is trusted.
type pausedNode struct{ fixedNode }

func (n pausedNode) Token() (reentrant.Token, error) {
	time.Sleep(time.Minute)
	return 0, nil
}
