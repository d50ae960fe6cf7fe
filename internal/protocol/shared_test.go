package protocol_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
)

// permits is a semaphore of ten permits. Because of late copies, the semaphore remembers a session for a second.
type permits struct {
	*protocol.Shared
	t *testing.T
}

func newPermits(t *testing.T) permits {
	return permits{&protocol.Shared{Name: "permits", Keep: 10 * time.Second, Publish: func(string, protocol.Message) {}}, t}
}

func (p permits) say(now protocol.Instant, session string, epoch uint64, keep, want int) backend.ShareReply {
	p.t.Helper()
	req := backend.ShareRequest{Kind: backend.Permits, Epoch: epoch, Keep: keep, Want: want, Least: want, Limit: 10,
		Lease: 10 * time.Minute, GrantTTL: time.Minute, Patience: 3 * time.Second}
	if i := p.entry(session); i != nil {
		req.Under = i.Under
	}
	reply, err := p.Share(now, session, req, now+time.Second, now+time.Second)
	require.NoError(p.t, err)
	return reply
}

func (p permits) entry(session string) *protocol.Entry {
	for i := range p.Entries {
		if p.Entries[i].Session == session {
			return &p.Entries[i]
		}
	}
	return nil
}

// A name is free soon after its last units were given back, however long the lease of the units was.
func TestASharedNameIsFreeSoonAfterItsLastUse(t *testing.T) {
	p := newPermits(t)
	p.say(time.Second, "a", 1, 0, 3)
	assert.True(t, p.InUse(5*time.Minute))
	p.say(2*time.Second, "a", 2, 0, 0)
	assert.True(t, p.InUse(12*time.Second))
	assert.False(t, p.InUse(13*time.Second))
}

// The summary must agree with the entries, because the scripts read it in place of all entries.
func TestTheSummaryIsExact(t *testing.T) {
	p := newPermits(t)
	p.say(time.Second, "a", 1, 0, 7)
	assert.Equal(t, protocol.Summary{Units: 7, Holders: 1, Sessions: 1, First: 2, Soonest: 601 * time.Second}, p.Summary())
	p.say(2*time.Second, "b", 1, 0, 2)
	p.say(3*time.Second, "c", 1, 0, 4)
	p.say(4*time.Second, "d", 1, 0, 5)
	assert.Equal(t, protocol.Summary{Units: 9, Holders: 2, Sessions: 4, First: 3, Soonest: 6 * time.Second}, p.Summary(), "the first place ends")
	p.say(5*time.Second, "c", 2, 0, 0)
	assert.Equal(t, protocol.Summary{Units: 9, Holders: 2, Sessions: 3, First: 4, Soonest: 7 * time.Second}, p.Summary())
	p.say(6*time.Second, "d", 2, 0, 0)
	assert.Equal(t, protocol.Summary{Units: 9, Holders: 2, Sessions: 2, First: 5, Soonest: 11 * time.Second}, p.Summary(), "an entry ends")
}

func TestTheSummaryOfNothing(t *testing.T) {
	p := newPermits(t)
	assert.Equal(t, protocol.Summary{First: 1, Soonest: protocol.Never}, p.Summary())
	assert.Equal(t, int64(9007199254740991), protocol.Never.Microseconds())
}
