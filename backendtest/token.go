package backendtest

import (
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/reentrant"
)

// Fencing tokens.
var tokenCases = []testCase{
	{"Token/RisesWithEveryHolder", tokenRises},
	{"Token/RisesOverExpiry", tokenRisesOverExpiry},
	{"Token/RisesAboveWhatTheSessionHasSeen", tokenRisesAboveSeen},
	{"Token/BlocksHaveTheirSizeAndDoNotOverlap", tokenBlocks},
	{"Token/AnUnusedTailIsGivenBack", tokenTail},
	{"Token/AForeignReleaseGivesNothingBack", tokenTailOfAnother},
}

func tokenRises(t *test) {
	a, b, c := t.connect3()
	var last reentrant.Token
	next := func(got reentrant.Token) {
		t.Helper()
		require.Greater(t, got, last)
		last = got
	}
	for e := uint64(1); e < 20; e += 4 {
		next(a.take(e).First)
		next(a.take(e + 1).First)
		b.wait(e)
		c.wait(e)
		a.wait(e+2, yield)
		next(b.has(e).Token)
		b.release(e)
		next(c.take(e, queue).First)
		c.force()
		next(a.take(e + 2).First)
		a.release(e + 2)
	}
}

func tokenRisesOverExpiry(t *test) {
	a, b, _ := t.connect3()
	got := a.brief(1, tokens(1000))
	a.expired()
	require.Greater(t, b.take(1).First, got.Last)
}

func tokenRisesAboveSeen(t *test) {
	a, b, _ := t.connect3()
	got := a.take(1)
	high := got.First + 1_000_000_000
	got = a.take(2, seen(high))
	require.Greater(t, got.First, high)
	a.release(2)
	low := a.take(3, seen(1))
	require.Greater(t, low.First, got.Last)
	high = low.First + 1_000_000_000
	b.wait(1, seen(high))
	a.release(3)
	require.Greater(t, b.take(1, queue).First, high, "after a grant")
}

func tokenBlocks(t *test) {
	const size = 1_000_000
	a, b, _ := t.connect3()
	var last reentrant.Token
	for e := uint64(1); e < 10; e += 3 {
		got := a.take(e, tokens(size))
		require.Equal(t, got.First+size-1, got.Last)
		require.Greater(t, got.First, last)
		require.Equal(t, got, a.take(e, tokens(size)), "a copy has the same block")
		next := a.take(e+1, tokens(size))
		require.Greater(t, next.First, got.Last)
		b.wait(e, tokens(size))
		a.release(e + 1)
		granted := b.take(e, tokens(size))
		require.Greater(t, granted.First, next.Last)
		require.Equal(t, granted.First+size-1, granted.Last)
		b.release(e)
		last = granted.Last
	}
}

func tokenTail(t *test) {
	const size = 1_000_000_000 // more than the clock goes on by in a case
	a, b, _ := t.connect3()
	got := a.take(1, tokens(size))
	used := got.First + 9
	a.send(reentrant.ReleaseRequest{Epoch: 1, Used: used})
	next := b.take(1, tokens(size))
	require.Greater(t, next.First, used)
	require.Less(t, next.First, got.Last, "the tail was not given back")
	a.wait(2)
	b.send(reentrant.ReleaseRequest{Epoch: 1, Used: next.Last})
	require.Greater(t, a.take(2, queue).First, next.Last, "all of it was used")
}

func tokenTailOfAnother(t *test) {
	const size = 1_000_000_000
	a, b, _ := t.connect3()
	a.take(1, tokens(size))
	second := a.take(2, tokens(size))
	a.send(reentrant.ReleaseRequest{Epoch: 1, Used: second.First + 9}) // late
	a.send(reentrant.ReleaseRequest{Epoch: 3, Used: second.First + 9}) // not the epoch of the block
	third := b.take(1)
	require.Greater(t, third.First, second.Last)
	b.release(1)
	a.send(reentrant.ReleaseRequest{Epoch: 3, Used: second.First + 9}) // a copy
	require.Greater(t, b.take(2).First, third.Last)
}
