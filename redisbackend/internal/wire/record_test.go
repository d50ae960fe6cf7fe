package wire

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/relock-go/relock/internal/protocol"
)

func TestRecordIsReadAndWrittenAlike(t *testing.T) {
	for text, want := range map[string]Record{
		"0 0 - 0 0 h 300": {Session: "-", Keep: 300 * time.Second},
		"1800000000000001 1800000000000064 a 7 2 g 7200": {First: 1800000000000001, Last: 1800000000000064, Session: "a", Epoch: 7, Op: 2, Pushed: true, Keep: 2 * time.Hour},
		"5 5 b.c-d_e 9007199254740991 0 w 301":           {First: 5, Last: 5, Session: "b.c-d_e", Epoch: 1<<53 - 1, Watched: true, Keep: 301 * time.Second},
		"5 5 a 1 0 h 300 b:2:1800000000000003 c:0:9": {First: 5, Last: 5, Session: "a", Epoch: 1, Keep: 300 * time.Second, Tombs: []protocol.Tombstone{
			{Session: "b", Epoch: 2, Until: 1800000000000003 * time.Microsecond}, {Session: "c", Until: 9 * time.Microsecond}}},
	} {
		got, ok := ParseRecord(text)
		assert.True(t, ok, "%q", text)
		assert.Equal(t, want, got)
		assert.Equal(t, text, got.Format())
	}
	assert.Equal(t, "0 0 - 0 0 h 1", (&Record{Keep: time.Millisecond}).Format(), "of a lock that no session has had")
	for _, text := range []string{
		"", "1", "1 1 a", "1 1 a 1 0 h", "1 1 a 1 0 h ", "1 1 a 1 0 h x", "x 1 a 1 0 h 300", "-1 1 a 1 0 h 300", "1 1 a x 0 h 300",
		"1.5 1.5 a 1 0 h 300", "2 1 a 1 0 h 300", "1 1 a 1 0 h 99999999999", "1 1 a 99999999999999999 0 h 300", "1 1 a 1 0 hh 300",
		"1\x001 a 1 0 h 300", " 1 1 a 1 0 h 300", "1 1 a b 1 0 h 300", "1 1 a 1 0 h 300s",
	} {
		_, ok := ParseRecord(text)
		assert.False(t, ok, "%q", text)
	}
}
