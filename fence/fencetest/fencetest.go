// Package fencetest tests implementations of [fence.Resource], as testing/fstest does for file systems.
package fencetest

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/fence"
)

// A Fixture is a resource for one test, which was never read or written.
type Fixture struct {
	// Open opens the resource. Each call stands for a process of its own, which knows nothing of the others, or for one
	// that has started again.
	Open func(t testing.TB) fence.Resource
	// Break makes all writes of data fail until mend is called. It may be nil: then the suite does not test such a write.
	Break func(t testing.TB) (mend func())
	_     struct{}
}

// A Case is one test of the suite.
type Case struct {
	Name string // what must hold
	// Func tests a resource. It reports failures to t only, and ends its goroutine after one.
	Func func(t testing.TB, f Fixture)
	_    struct{}
}

// Run runs the suite, each case as a subtest with a fixture of its own.
func Run(t *testing.T, newFixture func(t *testing.T) Fixture) {
	t.Helper()
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) { c.Func(t, newFixture(t)) })
	}
}

// Cases returns the cases of the suite.
func Cases() []Case {
	return []Case{
		{Name: "AnyTokenIsTheFirst", Func: anyTokenIsTheFirst},
		{Name: "TokensThatDoNotFallAreAccepted", Func: tokensThatDoNotFall},
		{Name: "OlderTokensAreRefused", Func: olderTokens},
		{Name: "ReadingIsEnoughToRefuseOlderTokens", Func: readingIsEnough},
		{Name: "TokensKeepAllTheirDigits", Func: allDigits},
		{Name: "TheLastTokenIsKeptOverARestart", Func: restart},
		{Name: "DataAreBytes", Func: dataAreBytes},
		{Name: "WhatIsNoTokenIsRefused", Func: noTokens},
		{Name: "ACallThatIsCancelledChangesNothing", Func: cancelled},
		{Name: "AWriteThatFailsShowsNoToken", Func: failingWrite},
		{Name: "NoUpdateIsLostWithoutAnyLock", Func: noUpdateIsLost},
	}
}

func read(t testing.TB, r fence.Resource, token fence.Token) string {
	t.Helper()
	data, err := r.Read(t.Context(), token)
	require.NoError(t, err, "read with token %d", token)
	return string(data)
}

func write(t testing.TB, r fence.Resource, token fence.Token, data string) {
	t.Helper()
	require.NoError(t, r.Write(t.Context(), token, []byte(data)), "write with token %d", token)
}

// refused checks that an error is the refusal of a token.
func refused(t testing.TB, err error, token, highest fence.Token) {
	t.Helper()
	require.ErrorIs(t, err, fence.ErrStale)
	var stale *fence.StaleError
	require.ErrorAs(t, err, &stale)
	assert.Equal(t, token, stale.Token, "the token that was refused")
	assert.Equal(t, highest, stale.Highest, "the highest token")
	assert.NotEmpty(t, stale.Resource)
}

// refuses checks that a resource refuses a token to a reader and to a writer, and stays as it is.
func refuses(t testing.TB, r fence.Resource, token, highest fence.Token) {
	t.Helper()
	refused(t, r.Write(t.Context(), token, []byte("too late")), token, highest)
	data, err := r.Read(t.Context(), token)
	refused(t, err, token, highest)
	assert.Empty(t, data)
}

func anyTokenIsTheFirst(t testing.TB, f Fixture) {
	r := f.Open(t)
	write(t, r, 1, "one")
	assert.Equal(t, "one", read(t, r, 1))
}

func tokensThatDoNotFall(t testing.TB, f Fixture) {
	r := f.Open(t)
	assert.Empty(t, read(t, r, 5), "nothing was written yet")
	write(t, r, 5, "five")
	write(t, r, 5, "five")
	assert.Equal(t, "five", read(t, r, 5), "the same token again")
	write(t, r, 5, "again")
	assert.Equal(t, "again", read(t, r, 5))
	write(t, r, 7, "seven") // without a read before it
	assert.Equal(t, "seven", read(t, r, 9))
}

func olderTokens(t testing.TB, f Fixture) {
	r := f.Open(t)
	write(t, r, 8, "eight")
	refuses(t, r, 7, 8)
	refuses(t, r, 1, 8)
	assert.Equal(t, "eight", read(t, r, 8), "nothing was changed")
	write(t, r, 8, "still eight")
}

// A holder was paused between its read and its write. Another holder has read meanwhile, but not written yet.
func readingIsEnough(t testing.TB, f Fixture) {
	first, second := f.Open(t), f.Open(t)
	write(t, first, 6, "six")
	assert.Equal(t, "six", read(t, first, 7))
	assert.Equal(t, "six", read(t, second, 8))
	refused(t, first.Write(t.Context(), 7, []byte("seven")), 7, 8)
	refused(t, first.Write(t.Context(), 7, []byte("six")), 7, 8)
	write(t, second, 8, "eight")
	assert.Equal(t, "eight", read(t, second, 8))
}

func allDigits(t testing.TB, f Fixture) {
	r := f.Open(t)
	for _, token := range []fence.Token{1795249693077999, 1<<53 - 1} { // microseconds since 1970, as Relock's are; the last
		read(t, r, token)
		refuses(t, r, token-1, token)
		write(t, r, token, "new")
	}
}

func restart(t testing.TB, f Fixture) {
	write(t, f.Open(t), 8, "eight")
	read(t, f.Open(t), 10)
	after := f.Open(t)
	refuses(t, after, 9, 10)
	assert.Equal(t, "eight", read(t, after, 10))
}

func dataAreBytes(t testing.TB, f Fixture) {
	r := f.Open(t)
	var every []byte
	for b := range 256 {
		every = append(every, byte(b))
	}
	for i, data := range []string{string(every), "\n", "0", "17\n", "", "x"} {
		write(t, r, fence.Token(i+1), data)
		assert.Equal(t, data, read(t, r, fence.Token(i+1)))
		assert.Equal(t, data, read(t, r, fence.Token(i+2)))
	}
}

func noTokens(t testing.TB, f Fixture) {
	r := f.Open(t)
	write(t, r, 3, "three")
	for _, token := range []fence.Token{0, 1 << 53, 1<<64 - 1} {
		_, err := r.Read(t.Context(), token)
		require.Error(t, err)
		require.NotErrorIs(t, err, fence.ErrStale)
		err = r.Write(t.Context(), token, []byte("no"))
		require.Error(t, err)
		require.NotErrorIs(t, err, fence.ErrStale)
	}
	assert.Equal(t, "three", read(t, r, 3))
}

func cancelled(t testing.TB, f Fixture) {
	r := f.Open(t)
	write(t, r, 3, "three")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.Read(ctx, 9)
	require.ErrorIs(t, err, context.Canceled)
	err = r.Write(ctx, 9, []byte("nine"))
	require.ErrorIs(t, err, context.Canceled)
	assert.NotErrorIs(t, err, fence.ErrStale)
	assert.Equal(t, "three", read(t, r, 3))
}

func failingWrite(t testing.TB, f Fixture) {
	if f.Break == nil {
		t.Skip("the fixture cannot make a write fail")
	}
	r := f.Open(t)
	write(t, r, 3, "three")
	mend := f.Break(t)
	err := r.Write(t.Context(), 9, []byte("nine"))
	mend()
	require.Error(t, err)
	require.NotErrorIs(t, err, fence.ErrStale)
	assert.Equal(t, "three", read(t, r, 3))
	write(t, r, 4, "four")
	assert.Equal(t, "four", read(t, r, 4))
}

// Many writers have a token each and no lock, which is the worst case for a resource: a write that succeeds replaces only
// what its writer has read.
func noUpdateIsLost(t testing.TB, f Fixture) {
	const writers, rounds = 8, 10
	var tokens, accepted atomic.Int64
	var wg sync.WaitGroup
	for range writers {
		r := f.Open(t)
		wg.Go(func() {
			for range rounds {
				err := increment(t.Context(), r, fence.Token(tokens.Add(1)))
				if err == nil {
					accepted.Add(1)
				} else if !errors.Is(err, fence.ErrStale) {
					t.Errorf("increment: %v", err)
				}
			}
		})
	}
	wg.Wait()
	n, err := strconv.ParseInt(read(t, f.Open(t), fence.Token(tokens.Load())), 10, 64)
	require.NoError(t, err)
	assert.Equal(t, accepted.Load(), n)
	assert.Positive(t, n, "the highest token is accepted")
}

// increment reads a number and writes it back plus one.
func increment(ctx context.Context, r fence.Resource, token fence.Token) error {
	data, err := r.Read(ctx, token)
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(string(data)) // empty data stand for 0
	return r.Write(ctx, token, []byte(strconv.Itoa(n+1)))
}
