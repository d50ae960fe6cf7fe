package wire

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/relock-go/relock/backend"
)

func TestMalformedMessagesAreRefused(t *testing.T) {
	got, ok := ParseMessage("g 7 1800000000000001 1800000000000064 3000 1800000000000002 a name\n with \x00 and spaces")
	assert.True(t, ok)
	assert.Equal(t, Message{Kind: Granted, Epoch: 7, First: 1800000000000001, Last: 1800000000000064, TTL: 3 * time.Second,
		Stamp: 1800000000000002, Hold: "a name\n with \x00 and spaces"}, got)
	for _, message := range []string{
		"", "g", "g ", "y 7 1 2 3000 4 n", "G 7 1 2 3000 4 n", "g 7 1 2 3000 4", "g 7 1 2 3000 4 ", "g 7 1 2 3000 n",
		"g  7 1 2 3000 4 n", " g 7 1 2 3000 4 n", "g -7 1 2 3000 4 n", "g +7 1 2 3000 4 n", "g 7.0 1 2 3000 4 n",
		"g 7 1e3 2e3 3000 4 n", "g 7 0 2 3000 4 n", "g 7 3 2 3000 4 n", "g 7 1 2 0 4 n", "g 7 1 2 -1 4 n",
		"g 99999999999999999999 1 2 3000 4 n", "g 7 1 9223372036854775808 3000 4 n", "g 7 1 2 9000000000000000000 4 n",
		"g 7 1 2 3000 9000000000000000 n",
	} {
		_, ok := ParseMessage(message)
		assert.False(t, ok, "%q", message)
	}
}

func TestMessagesOfEachKind(t *testing.T) {
	for text, want := range map[string]Message{
		"s 3 1 a b":                    {Kind: Signalled, Epoch: 3, Placed: true, Hold: "a b"},
		"s 3 0 n":                      {Kind: Signalled, Epoch: 3, Hold: "n"},
		"w 3 n":                        {Kind: Wanted, Epoch: 3, Hold: "n"},
		"t 0 a b":                      {Kind: Taken, Hold: "a b"},
		"f  a ":                        {Kind: Freed, Hold: " a "},
		"x 5 0 a b":                    {Kind: ShareWanted, May: 5, Hold: "a b"},
		"x 5 9 a b":                    {Kind: ShareWanted, May: 5, Try: 9, Hold: "a b"},
		"h 3 0 0 0 5 1000 1000 n":      {Kind: ShareGranted, Epoch: 3, May: 5, Stamp: 1000, Hold: "n"},
		"h 3 1 10 14 5 2001000 1000 n": {Kind: ShareGranted, Epoch: 3, Units: 1, First: 10, Last: 14, May: 5, TTL: 2 * time.Second, Stamp: 1000, Hold: "n"},
	} {
		got, ok := ParseMessage(text)
		assert.True(t, ok, "%q", text)
		assert.Equal(t, want, got)
		assert.Equal(t, text, got.String())
	}
	for _, text := range []string{
		"s 0 1 n", "s 3 2 n", "s 3 n", "s 3 1", "s 3 1 ", "w", "w ", "w n", "w 3", "w 3 ", "w -3 n", "t n", "t 3", "f", "f ", "F n",
		"x", "x 1", "x 1 ", "x 1 n", "x 1 0", "x 1 0 ", "x -1 0 n", "x 1 -1 n", "x 2147483648 0 n", "xx 1 0 n",
		"h", "h 1", "h 3 1 10 10 0 2000 1000", "h 3 1 10 10 0 2000 1000 ", "h 3 0 10 10 0 2000 1000 n", "h 3 0 0 0 0 2000 1000 n",
		"h 3 2147483648 10 10 0 2000 1000 n", "h 3 1 0 0 0 2000 1000 n", "h 3 1 11 10 0 2000 1000 n",
		"h 3 1 10 10 2147483648 2000 1000 n", "h 3 1 10 10 0 1000 1000 n", "h 3 1 10 10 0 9000000000000001 1000 n",
		"h -3 1 10 10 0 2000 1000 n", "h 3 1 10 10 0 2000 9223372036854775808 n", "h 3  10 10 0 2000 1000 n",
	} {
		_, ok := ParseMessage(text)
		assert.False(t, ok, "%q", text)
	}
}

// FuzzPush checks that a message that ParseMessage accepts can be formatted, and that ParseMessage returns the same message for
// the new text.
func FuzzPush(f *testing.F) {
	for _, text := range []string{"g 7 1 2 3000 4 name", "g 0 1 1 1 0  ", "s 3 1 n", "w 3 n", "t 0 n", "f n", "h 3 1 10 10 0 2000 1000 n", "x 0 0 n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, ok := ParseMessage(text)
		if !ok {
			return
		}
		again, ok := ParseMessage(m.String())
		assert.True(t, ok)
		assert.Equal(t, m, again)
		assert.NotEmpty(t, m.Hold)
		assert.GreaterOrEqual(t, m.Stamp, int64(0))
		assert.LessOrEqual(t, m.First, m.Last)
		assert.Equal(t, m.Kind == Granted || m.Kind == ShareGranted && m.Units > 0, m.TTL > 0)
		assert.True(t, 0 <= m.May && m.May <= backend.Unlimited)
	})
}
