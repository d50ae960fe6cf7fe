package redisserver

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAClockThatCanBeSet(t *testing.T) {
	t.Parallel()
	s := StartWithClock(t)
	clock := s.Clock()
	// off asserts that the server's clock is ahead by what the Clock says, as precisely as a reply can show it.
	off := func() {
		t.Helper()
		before := time.Now().Add(clock.Ahead())
		text, err := s.Command("EVAL", "return table.concat(redis.call('TIME'), ' ')", "0")
		require.NoError(t, err)
		after := time.Now().Add(clock.Ahead())
		sec, micro, _ := strings.Cut(text, " ")
		seconds, err := strconv.ParseInt(sec, 10, 64)
		require.NoError(t, err)
		micros, err := strconv.ParseInt(micro, 10, 64)
		require.NoError(t, err)
		shown := time.UnixMicro(seconds*1e6 + micros)
		const rounding = 10 * time.Millisecond // Redis may use the time of its last reading
		assert.False(t, shown.Before(before.Add(-rounding)) || shown.After(after.Add(rounding)), "%v: not within %v and %v", shown, before, after)
	}
	off()
	clock.Step(time.Hour)
	off()
	clock.Slew(80_000)
	_, err := s.Command("SET", "a", "b", "PX", "1000")
	require.NoError(t, err)
	begun := time.Now()
	require.Eventually(t, func() bool {
		n, err := s.Command("EXISTS", "a")
		return err == nil && n == "0"
	}, time.Minute, time.Millisecond)
	assert.Less(t, time.Since(begun), time.Minute)
	off()
	clock.Slew(0)
	assert.InDelta(t, float64(time.Hour), float64(clock.Ahead()), float64(10*time.Second))
	clock.Step(-2 * time.Hour)
	off()
	s.Restart(t)
	off()
}
