package wire

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestArgWriterWritesNumbers(t *testing.T) {
	var d ArgWriter
	for range maxNumbers - 2 {
		d.Add(math.MaxUint64)
	}
	d.Add(0)
	d.Add(9007199254740993)
	n := d.Strings()
	assert.Equal(t, "18446744073709551615", n[0])
	assert.Equal(t, "18446744073709551615", n[maxNumbers-3])
	assert.Equal(t, []string{"0", "9007199254740993"}, n[maxNumbers-2:])
}

func TestDurationsAreRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]uint64{
		-time.Second: 0, 0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, 10 * time.Second: 10000,
		math.MaxInt64: math.MaxInt64/1_000_000 + 1,
	} {
		assert.Equal(t, want, Millis(d), d)
	}
}

func TestRecordOutlivesTheLease(t *testing.T) {
	assert.Equal(t, uint64(300), KeepFor(0))
	assert.Equal(t, uint64(300), KeepFor(10*time.Second))
	assert.Equal(t, uint64(7200), KeepFor(time.Hour))
}
