package main

import (
	"context"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend/redistest"

	"github.com/relock-go/relock/examples/internal/deployment"
)

// each runs a test on a packet in the embedded Redis and in a real one.
func each(t *testing.T, test func(t *testing.T, p packet)) {
	t.Run("embedded", func(t *testing.T) { test(t, packet{redistest.Start(t).Client()}) })
	t.Run("redis", func(t *testing.T) {
		redis, err := deployment.Open(t.Context(), redisserver.Start(t).URL())
		require.NoError(t, err)
		t.Cleanup(redis.Close)
		test(t, packet{redis.Client})
	})
}

func TestPartsAddUpAndNoPartIsEmpty(t *testing.T) {
	for _, test := range []struct{ cents, parts int }{{1, 1}, {20_000, 1}, {20_000, 100}, {7, 7}, {8, 7}, {1000, 999}} {
		for range 20 {
			amounts := draw(test.cents, test.parts)
			assert.Len(t, amounts, test.parts)
			assert.Equal(t, test.cents, sum(amounts))
			assert.NotContains(t, amounts, 0)
			assert.GreaterOrEqual(t, amounts[len(amounts)-1], 1)
		}
	}
	assert.NotEqual(t, draw(1_000_000, 100), draw(1_000_000, 100), "the largest part cannot be predicted")
}

// An interrupted client calls the function by after the first of several commands.
type interrupted struct {
	rueidis.Client
	by func()
}

func (i interrupted) DoMulti(ctx context.Context, commands ...rueidis.Completed) []rueidis.RedisResult {
	first := i.Do(ctx, commands[0])
	i.by()
	return append([]rueidis.RedisResult{first}, i.Client.DoMulti(ctx, commands[1:]...)...)
}

func TestAnOpenidThatGetsTheLastPartDuringALookIsNotLate(t *testing.T) {
	each(t, func(t *testing.T, p packet) {
		require.NoError(t, p.fill(t.Context(), []int{5}, 1))
		during := packet{interrupted{p.client, func() {
			got, err := p.move(t.Context(), 0)
			require.NoError(t, err)
			require.Equal(t, granted, got)
		}}}
		got, err := during.look(t.Context(), 0)
		require.NoError(t, err)
		assert.Equal(t, already, got)
	})
}

func TestAPartGoesFromThePacketToAnOpenid(t *testing.T) {
	each(t, func(t *testing.T, p packet) {
		ctx := t.Context()
		expect := func(want answer, openid int) {
			t.Helper()
			got, err := p.look(ctx, openid)
			require.NoError(t, err)
			assert.Equal(t, want, got)
		}
		move := func(want answer, openid int) {
			t.Helper()
			got, err := p.move(ctx, openid)
			require.NoError(t, err)
			assert.Equal(t, want, got)
		}
		require.NoError(t, p.fill(ctx, []int{5, 3, 9}, 2))
		expect(ask, 0)
		move(granted, 0)
		expect(already, 0)
		expect(ask, 1)
		r, err := p.remains(ctx, 2)
		require.NoError(t, err)
		assert.Equal(t, remains{got: [][]int{{5}, {}}, left: []int{3, 9}}, r)

		move(granted, 0) // move does not check whether the openid has a part: the lock is meant for that
		move(granted, 0)
		expect(late, 1)
		move(late, 1)
		expect(already, 0)
		r, err = p.remains(ctx, 2)
		require.NoError(t, err)
		assert.Equal(t, remains{got: [][]int{{5, 3, 9}, {}}, left: []int{}}, r)

		require.NoError(t, p.fill(ctx, []int{4}, 2))
		expect(ask, 0)
	})
}

func TestEachOpenidAsksSoOften(t *testing.T) {
	times := map[int]int{}
	for seat := 1; seat <= 5; seat++ {
		mine := requestsAt(seat, 5, 7, 12)
		assert.InDelta(t, 7*12/5, len(mine), 2, "each process has its share")
		for _, openid := range mine {
			times[openid]++
		}
	}
	assert.Len(t, times, 7)
	for openid, n := range times {
		assert.Equal(t, 12, n, "openid %d", openid)
	}
}
