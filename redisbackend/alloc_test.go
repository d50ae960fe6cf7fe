//go:build !race

// Under the race detector a sync.Pool drops what it is given at random, so these counts are for plain builds.

package redisbackend_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A call may allocate as much as rueidis does for a script with as many keys and arguments, and one string that has all the
// call's numbers. Garbage collections and the client's own goroutines can only add to a count, so the test compares the
// smallest of several counts.
func TestAllocationsOfACall(t *testing.T) {
	s := newBench(t)
	calls := []func() error{s.lock, s.unlock}
	bares := []func() error{func() error { return s.acquire.call(s.ctx) }, func() error { return s.release.call(s.ctx) }}
	for i, call := range calls {
		require.NoError(t, call())
		require.NoError(t, bares[i]())
	}
	assert.LessOrEqual(t, fewestAllocs(t, calls), fewestAllocs(t, bares)+2)
}

// The first call for a name may also allocate a Remote, and one string for the name's keys.
func TestAllocationsOfAFreshName(t *testing.T) {
	s := newBench(t)
	names := make([]string, 2_000) // more names than the test counts
	for i := range names {
		names[i] = "order:" + text(int64(i))
	}
	lock := func() error {
		s.req.Epoch++
		remote, err := s.conn.Bind(names[s.req.Epoch])
		if err == nil {
			_, err = remote.Acquire(s.ctx, s.req)
		}
		return err
	}
	bare := func() error { return s.acquire.call(s.ctx) }
	require.NoError(t, lock())
	require.NoError(t, bare())
	assert.LessOrEqual(t, fewestAllocs(t, []func() error{lock}), fewestAllocs(t, []func() error{bare})+2)
}

func fewestAllocs(t *testing.T, calls []func() error) float64 {
	fewest := math.Inf(1)
	for range 10 {
		fewest = min(fewest, testing.AllocsPerRun(100, func() {
			for _, call := range calls {
				if err := call(); err != nil {
					t.Error(err)
				}
			}
		}))
	}
	return fewest
}
