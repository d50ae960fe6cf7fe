package deadlock

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

type owner string

func (o owner) String() string { return string(o) }

// A session has one owner, which holds a lock, and notes what it publishes.
type session struct{ records []string }

func (*session) ID() string                                             { return "s" }
func (*session) Holder(string) (owner, bool)                            { return "", false }
func (*session) Held() map[owner][][]byte                               { return map[owner][][]byte{"o": {[]byte("held")}} }
func (*session) Inspect(context.Context, string) (backend.State, error) { return backend.State{}, nil }
func (*session) Registered(context.Context, string) (string, error)     { return "", nil }
func (s *session) Register(_ context.Context, text string) error {
	s.records = append(s.records, text)
	return nil
}

// Most waits are short, and cost no command.
func TestAWaitIsPublishedAtItsSecondHeartbeat(t *testing.T) {
	s := &session{}
	d := New(s, time.Second, time.Second)
	for range 3 {
		w, _ := d.Begin("o", "lock", nil)
		d.look()
		assert.Empty(t, s.records, "it was there at one heartbeat")
		d.End("o", w)
	}
	w, _ := d.Begin("o", "lock", nil)
	d.look()
	d.look()
	require.Len(t, s.records, 1)
	assert.NotEmpty(t, s.records[0])
	d.End("o", w)
	d.look()
	assert.Empty(t, s.records[1], "the record is removed")
}
