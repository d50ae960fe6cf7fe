package backendtest

import (
	"math"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases about fencing tokens.
var tokenCases = []testCase{
	{"Token/RisesWithEveryHolder", tokenRises},
	{"Token/RisesOverExpiry", tokenRisesOverExpiry},
	{"Token/RisesAboveWhatTheSessionHasSeen", tokenRisesAboveSeen},
	{"Token/BlocksHaveTheirSizeAndDoNotOverlap", tokenBlocks},
	{"Token/AnUnusedTailIsGivenBack", tokenTail},
	{"Token/AForeignReleaseGivesNothingBack", tokenTailOfAnother},
	{"Token/BlocksDoNotRunAwayFromTheClock", tokenBlocksEnd},
	{"Token/AForgedTokenIsRefused", tokenForged},
	{"Token/RepliesSayWhichHoldTheyAreAbout", tokenOfReplies},
}

func tokenRises(t *test) {
	a, b, c := t.connect3()
	var last backend.Token
	next := func(got backend.Token) {
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
	const size = 257
	a, b, _ := t.connect3()
	var last backend.Token
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
	const size = 1000
	a, b, _ := t.connect3()
	for e := uint64(1); ; e += 3 {
		began := time.Now()
		high := a.take(e).First + 3_000_000 // the clock reaches it in three seconds
		got := a.take(e+1, tokens(size), seen(high))
		used := got.First + 9
		a.send(backend.ReleaseRequest{Epoch: e + 1, Used: used})
		next := b.take(e, tokens(size))
		slow := time.Since(began) > 2*time.Second
		require.Greater(t, next.First, used)
		if !slow {
			require.Less(t, next.First, got.Last, "the unused tail was not given back")
		}
		a.wait(e + 2)
		b.send(backend.ReleaseRequest{Epoch: e, Used: next.Last})
		require.Greater(t, a.take(e+2, queue).First, next.Last, "all of the block was used")
		if !slow {
			return
		}
	}
}

func tokenTailOfAnother(t *test) {
	const size = 1000
	a, b, _ := t.connect3()
	first := a.take(1, tokens(size))
	second := a.take(2, tokens(size), seen(first.Last+3_000_000))
	a.send(backend.ReleaseRequest{Epoch: 1, Used: second.First + 9}) // this release is late
	a.send(backend.ReleaseRequest{Epoch: 3, Used: second.First + 9}) // a release of another epoch than the block's
	third := b.take(1)
	require.Greater(t, third.First, second.Last)
	b.release(1)
	a.send(backend.ReleaseRequest{Epoch: 3, Used: second.First + 9}) // a copy
	require.Greater(t, b.take(2).First, third.Last)
}

// A server that forgot everything has only its clock. So blocks of tokens must not reach far beyond the clock, even if many are
// taken in a short time.
func tokenBlocksEnd(t *test) {
	const size, most = 1 << 16, 10_000_000 // a number of tokens, and a number of microseconds: ten seconds
	a := t.connect()
	began := time.Now()
	first := a.take(1, tokens(size))
	last := first.Last
	for e := uint64(2); e < 300; e++ {
		got := a.take(e, tokens(size))
		require.Greater(t, got.First, last)
		require.LessOrEqual(t, got.First, got.Last, "a block has one token at least")
		last = got.Last
	}
	require.LessOrEqual(t, last-first.First, backend.Token(most+time.Since(began).Microseconds()))
}

// A session claims to have seen a token. The server accepts the claim only if the token is near the clock. Otherwise one forged
// message could use up all tokens.
func tokenForged(t *test) {
	a, b, _ := t.connect3()
	before := a.take(1).First
	a.release(1)
	for _, high := range []backend.Token{before + 2*366*86400*1_000_000, 1 << 53, 1<<53 + 1, 1<<63 - 1, 1 << 63, math.MaxUint64} {
		for _, change := range []with{queue, barge} {
			refusedFor(t, a, 2, change, seen(high))
		}
		a.free()
		a.waiting()
	}
	b.take(1)
	refusedFor(t, a, 2, queue, seen(1<<53))
	b.waiting()
	b.release(1)
	after := b.take(2).First
	require.Less(t, after, before+backend.Token(time.Hour.Microseconds()))
}

// refusedFor sends an acquire that the server refuses for good.
func refusedFor(t *test, s *session, epoch uint64, changes ...with) {
	t.Helper()
	ctx, cancel := s.command()
	defer cancel()
	_, err := s.raw.Acquire(ctx, request(epoch, changes))
	require.Error(t, err)
	require.True(t, backend.Refused(err), "%v", err)
}

// A reply about a hold has either the first token of the hold's block, or no token.
func tokenOfReplies(t *test) {
	a := t.connect()
	for epoch := uint64(1); epoch <= 3; epoch++ {
		of := []backend.Token{0, a.take(epoch, tokens(5)).First}
		one := []backend.Renewal{{Remote: a.raw, Epoch: epoch, Lease: long}}
		a.renewAll(one)
		require.Contains(t, of, one[0].First, "a renewal")
		require.Contains(t, of, a.reenter(backend.ReenterRequest{Epoch: epoch, Op: 1, Holds: 2}).First, "a re-entry")
		require.Contains(t, of, a.reenter(backend.ReenterRequest{Epoch: epoch, Op: 1, Holds: 2}).First, "its copy")
		require.Contains(t, of, a.has(epoch).First, "the state")
	}
}
