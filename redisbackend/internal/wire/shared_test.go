package wire

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/relock-go/relock/backend"
)

func TestShareMessages(t *testing.T) {
	want := ShareMessage{Epoch: 3, Units: backend.AllUnits, First: 10, Last: 14, May: 5, TTL: 2 * time.Second, Stamp: 1000, Hold: "a b c"}
	got, ok := ParseShare(want.String())
	assert.True(t, ok)
	assert.Equal(t, want, got)
	may, hold, ok := ParseSharedWanted("x 5 a b")
	assert.True(t, ok)
	assert.Equal(t, 5, may)
	assert.Equal(t, "a b", hold)
}

func TestShareMessagesThatAreNone(t *testing.T) {
	for _, text := range []string{
		"", "h", "h 1", "g 3 1 10 10 0 2000 1000 n", "h 3 1 10 10 0 2000 1000", "h 3 1 10 10 0 2000 1000 ",
		"h 3 0 10 10 0 2000 1000 n", "h 3 2147483648 10 10 0 2000 1000 n", "h 3 1 0 0 0 2000 1000 n", "h 3 1 11 10 0 2000 1000 n",
		"h 3 1 10 10 2147483648 2000 1000 n", "h 3 1 10 10 0 1000 1000 n", "h 3 1 10 10 0 9000000000000001 1000 n", "h -3 1 10 10 0 2000 1000 n",
		"h 3 1 10 10 0 2000 9223372036854775808 n", "h 3  10 10 0 2000 1000 n",
	} {
		_, ok := ParseShare(text)
		assert.False(t, ok, "%q", text)
	}
	for _, text := range []string{"", "x", "x 1", "x 1 ", "x -1 n", "x 2147483648 n", "w 1 n", "xx 1 n"} {
		_, _, ok := ParseSharedWanted(text)
		assert.False(t, ok, "%q", text)
	}
}

func FuzzShareMessages(f *testing.F) {
	f.Add("h 3 1 10 10 0 2000 1000 n")
	f.Add("x 0 n")
	f.Fuzz(func(t *testing.T, text string) {
		if p, ok := ParseShare(text); ok {
			again, ok := ParseShare(p.String())
			assert.True(t, ok)
			assert.Equal(t, p, again)
			assert.Positive(t, p.TTL)
		}
		if may, hold, ok := ParseSharedWanted(text); ok {
			assert.True(t, 0 <= may && may <= backend.Unlimited && hold != "")
		}
	})
}
