package single

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
	"github.com/relock-go/relock/redisbackend/internal/clock"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// A hearer is a session's sink that records the arguments of its calls.
type hearer struct {
	names  []string
	grants []backend.Grant // of a backend.ShareGrant it has the fields that a backend.Grant has, too
	units  []int
}

func (h *hearer) Granted(g backend.Grant) {
	h.names, h.grants = append(h.names, g.Name), append(h.grants, g)
}
func (h *hearer) Signalled(name string, _ uint64, _ bool) { h.names = append(h.names, name) }
func (h *hearer) Taken(name string, _ uint64)             { h.names = append(h.names, name) }
func (h *hearer) Wanted(name string, _ uint64)            { h.names = append(h.names, name) }
func (h *hearer) Reconnected()                            { h.names = append(h.names, "reconnected") }

func (h *hearer) Shared(g backend.ShareGrant) {
	h.units = append(h.units, g.Units, g.May)
	h.Granted(backend.Grant{Name: g.Name, Epoch: g.Epoch, First: g.First, Last: g.Last, TTL: g.TTL, NotBefore: g.NotBefore})
}

func (h *hearer) SharedWanted(name string, may int) {
	h.names, h.units = append(h.names, name), append(h.units, may)
}

// FuzzReceived checks that a message, whatever its text is, shows a session something about at most one lock with the prefix.
// No grant begins in the future, and a grant with tokens that no server issues has to be confirmed.
func FuzzReceived(f *testing.F) {
	for _, text := range []string{"g 7 1000 1002 3000 1000 app:name", "g 1 1000 1000 100000000000 1000 app:n", "g 1 9000000000000000 9000000000000000 9 1000 app:n",
		"s 3 1 app:n", "w 3 app:n", "t 0 app:n", "t 1 other:n", "f app:n", "h 3 1 1000 1000 0 9000 1000 app:n",
		"h 3 1 1000 1000 0 8999999999999999 1000 app:n", "x 0 app:n", "x 2147483647 app:", "probe app:n", "g 7 1 1 1 8999999999999999 app:n"} {
		f.Add(text, uint32(5000), false)
		f.Add(text, uint32(0), true)
	}
	f.Fuzz(func(t *testing.T, text string, server uint32, unknown bool) {
		h := &hearer{}
		c := &Conn{Deployment: &Deployment{Prefix: "app:"}, Sink: h, Probed: make(chan string, 1)}
		now := clock.InstantOf(time.Now())
		if !unknown {
			c.Clocks.One.Saw(clock.Sample{Sent: now, Received: now, Stamp: int64(server)})
		}
		c.Received(text)
		c.Received(text) // the network may deliver a message more than once
		assert.LessOrEqual(t, len(h.names), 2, "two calls")
		for _, name := range h.names {
			assert.True(t, name != "" && strings.HasSuffix(text, "app:"+name), "%q of %q", name, text)
		}
		for _, units := range h.units {
			assert.True(t, 0 <= units && units <= backend.Unlimited, "%d", units)
		}
		for _, g := range h.grants {
			assert.Positive(t, g.TTL)
			assert.True(t, 0 < g.First && g.First <= g.Last)
			if g.NotBefore.IsZero() {
				continue
			}
			assert.False(t, unknown, "the session does not know the server's time")
			assert.False(t, g.NotBefore.After(time.Now()))
			// The server sent the message no later than now.
			latest := time.Duration(server)*time.Microsecond + clock.InstantOf(time.Now()) - now + time.Millisecond
			assert.LessOrEqual(t, time.Duration(g.Last)*time.Microsecond, latest+protocol.Horizon)
		}
		if strings.HasPrefix(text, probeMark) {
			assert.Empty(t, h.names)
			return
		}
		if _, ok := wire.ParseMessage(text); !ok {
			assert.Empty(t, h.names)
		}
	})
}
