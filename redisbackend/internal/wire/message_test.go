package wire

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPushIsReadStrictly(t *testing.T) {
	got, ok := ParseGrant("g 7 1800000000000001 1800000000000064 3000 1800000000000002 a name\n with \x00 and spaces")
	assert.True(t, ok)
	assert.Equal(t, GrantMessage{Epoch: 7, First: 1800000000000001, Last: 1800000000000064, TTL: 3 * time.Second,
		Stamp: 1800000000000002, Hold: "a name\n with \x00 and spaces"}, got)
	for _, message := range []string{
		"", "g", "g ", "x 7 1 2 3000 4 n", "G 7 1 2 3000 4 n", "g 7 1 2 3000 4", "g 7 1 2 3000 4 ", "g 7 1 2 3000 n",
		"g  7 1 2 3000 4 n", " g 7 1 2 3000 4 n", "g -7 1 2 3000 4 n", "g +7 1 2 3000 4 n", "g 7.0 1 2 3000 4 n",
		"g 7 1e3 2e3 3000 4 n", "g 7 0 2 3000 4 n", "g 7 3 2 3000 4 n", "g 7 1 2 0 4 n", "g 7 1 2 -1 4 n",
		"g 99999999999999999999 1 2 3000 4 n", "g 7 1 9223372036854775808 3000 4 n", "g 7 1 2 9000000000000000000 4 n",
		"g 7 1 2 3000 9000000000000000 n",
	} {
		_, ok := ParseGrant(message)
		assert.False(t, ok, "%q", message)
	}
}

func FuzzPush(f *testing.F) {
	f.Add("g 7 1 2 3000 4 name")
	f.Add("g 0 1 1 1 0  ")
	f.Fuzz(func(t *testing.T, message string) {
		if p, ok := ParseGrant(message); ok {
			assert.NotEmpty(t, p.Hold)
			assert.Positive(t, p.TTL)
			assert.GreaterOrEqual(t, p.Stamp, int64(0))
			assert.LessOrEqual(t, p.First, p.Last)
		}
	})
}
