package redistest_test

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/redisbackend/redistest"
)

type sink struct{}

func (sink) Granted(backend.Grant)          {}
func (sink) Signalled(string, uint64, bool) {}
func (sink) Wanted(string, uint64)          {}
func (sink) Taken(string, uint64)           {}
func (sink) Reconnected()                   {}

func do(t *testing.T, s *redistest.Server, words ...string) (int64, error) {
	return s.Client().Do(t.Context(), s.Client().B().Arbitrary(words...).Build()).AsInt64()
}

func clock(t *testing.T, s *redistest.Server) time.Time {
	parts, err := s.Client().Do(t.Context(), s.Client().B().Time().Build()).AsIntSlice()
	require.NoError(t, err)
	return time.Unix(parts[0], parts[1]*1000)
}

func TestTheClockRuns(t *testing.T) {
	s := redistest.Start(t)
	before := time.Now().Truncate(time.Microsecond)
	now := clock(t, s)
	assert.WithinRange(t, now, before, time.Now())
	for _, key := range []string{"soon", "later"} {
		require.NoError(t, s.Client().Do(t.Context(), s.Client().B().Set().Key(key).Value("v").Px(time.Hour).Build()).Error())
	}
	_, err := do(t, s, "PEXPIRE", "soon", "30")
	require.NoError(t, err)
	assert.Eventually(t, func() bool {
		n, err := do(t, s, "EXISTS", "soon")
		return err == nil && n == 0
	}, time.Minute, time.Millisecond, "keys expire by the clock")
	n, err := do(t, s, "EXISTS", "later")
	require.NoError(t, err)
	assert.Equal(t, int64(1), n)
}

// The time in each reply lies between the sending of the command and the arrival of the reply, even with many clients.
func TestStressClock(t *testing.T) {
	s := redistest.Start(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				sent := time.Now().Truncate(time.Microsecond)
				n, err := do(t, s, "EVAL", "local t = redis.call('TIME'); return t[1] * 1000000 + t[2]", "0")
				assert.NoError(t, err)
				assert.WithinRange(t, time.UnixMicro(n), sent, time.Now())
			}
		})
	}
	all.Wait()
}

func TestTheClockStandsStillWithinAScript(t *testing.T) {
	s := redistest.Start(t)
	list, err := s.Client().Do(t.Context(), s.Client().B().Eval().Script(`
		local first = redis.call('TIME')[2]
		redis.call('SET', 'k', 'v', 'PX', '1')
		for _ = 1, 2000 do redis.call('GET', 'k') end
		return {redis.call('TIME')[2] - first, redis.call('EXISTS', 'k')}`).Numkeys(0).Build()).AsIntSlice()
	require.NoError(t, err)
	assert.Equal(t, []int64{0, 1}, list)
}

func TestAnotherClientSharesTheServer(t *testing.T) {
	s := redistest.Start(t)
	for _, parameters := range []string{"", "?protocol=2", "/3"} {
		b, err := redisbackend.Open(t.Context(), "redis://"+s.Addr()+parameters)
		require.NoError(t, err)
		conn, err := b.Connect(t.Context(), "other"+strconv.Itoa(len(parameters)), sink{})
		require.NoError(t, err, parameters)
		require.NoError(t, conn.Close())
		b.Close()
	}
}

func TestCloseTwice(t *testing.T) {
	s, err := redistest.New()
	require.NoError(t, err)
	s.Close()
	s.Close()
	assert.Error(t, s.Client().Do(t.Context(), s.Client().B().Ping().Build()).Error())
}
