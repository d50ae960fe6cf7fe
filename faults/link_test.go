package faults

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
)

// A link is a connection to a server over a proxy that can break it.
type link struct {
	t        *testing.T
	proxy    *toxiproxy.Proxy
	addr     string // stays the same when the proxy is redirected
	up, down *flow
}

func newLink(t *testing.T, upstream string) *link {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	addr := redisserver.KeepAddr(t) // the address stays this test's while the link is redirected, too
	p := toxiproxy.NewProxy(server, strings.ReplaceAll(t.Name(), "/", "-"), addr, upstream)
	l := &link{t: t, proxy: p, addr: addr, up: newFlow(t, p, "upstream"), down: newFlow(t, p, "downstream")}
	require.NoError(t, p.Start())
	t.Cleanup(p.Stop)
	return l
}

// dropReplies passes requests on and drops all replies, so commands are executed, but no client learns the result.
func (l *link) dropReplies() { l.down.turn(dropping) }

// dropRequests drops everything that clients send.
func (l *link) dropRequests() { l.up.turn(dropping) }

// delayReplies passes everything on, some of it late.
func (l *link) delayReplies() { l.down.turn(delaying) }

// cut closes each connection when a reply arrives on it.
func (l *link) cut() { l.down.turn(cutting) }

// mend passes everything on again.
func (l *link) mend() {
	l.up.turn(passing)
	l.down.turn(passing)
}

// redirect makes the link lead to another server, over new connections.
func (l *link) redirect(upstream string) {
	l.proxy.Stop()
	l.proxy.Upstream = upstream
	eventually(l.t, func() bool { return l.proxy.Start() == nil }, "the proxy's port is free") // elsewhere than on Linux another process may have taken it
}

// A flow is one direction of a link. It is a toxic that every connection has from its beginning, and that changes from one
// fault to another. Adding and removing toxics would be simpler, but the proxy hangs if a connection ends while its toxics
// change.
type flow struct {
	mu     sync.Mutex
	fault  fault         // guarded by mu
	turned chan struct{} // closed when the fault changes; guarded by mu
}

type fault int

const (
	passing fault = iota
	delaying
	dropping
	cutting
	holding // of a cable: everything arrives when this fault is over
)

// soonest and latest bound the delay of late chunks.
const soonest, latest = 50 * time.Millisecond, 250 * time.Millisecond

func init() { toxics.Register("flow", new(flow)) }

func newFlow(t *testing.T, p *toxiproxy.Proxy, direction string) *flow {
	t.Helper()
	toxic, err := p.Toxics.AddToxicJson(strings.NewReader(`{"type": "flow", "stream": "` + direction + `"}`))
	require.NoError(t, err)
	f := toxic.Toxic.(*flow)
	f.turned = make(chan struct{})
	return f
}

func (f *flow) turn(to fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = to
	close(f.turned)
	f.turned = make(chan struct{})
}

// now returns the fault, and a channel that is closed when the fault ends.
func (f *flow) now() (fault, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fault, f.turned
}

// Pipe passes on the data of one connection.
func (f *flow) Pipe(stub *toxics.ToxicStub) {
	for on, lost := true, false; on; {
		on, lost = f.next(stub, lost)
	}
	stub.Close()
	for range stub.Input { // until the sender has noticed that the connection is closed
	}
}

// next handles the next chunk. It returns whether the connection goes on, and whether data were lost. After a loss the
// connection ends with the fault, since no part of a stream can be left out.
func (f *flow) next(stub *toxics.ToxicStub, lost bool) (bool, bool) {
	is, turned := f.now()
	if lost && is != dropping {
		return false, lost
	}
	select {
	case <-turned:
		return true, lost
	case c := <-stub.Input:
		if c == nil {
			return false, lost
		}
		switch is = f.hold(c); {
		case is == dropping:
			return true, true
		case is == cutting || lost:
			return false, lost
		}
		stub.Output <- c
		return true, lost
	}
}

// hold delays a chunk, and returns the fault at the end of the delay.
func (f *flow) hold(c *stream.StreamChunk) fault {
	is, turned := f.now()
	if is != delaying {
		return is
	}
	select {
	case <-time.After(time.Until(c.Timestamp.Add(soonest + rand.N(latest-soonest)))): // the length of the delay
	case <-turned:
	}
	is, _ = f.now()
	return is
}

// GetBufferSize makes the buffer large enough that a late chunk does not delay the next ones.
func (f *flow) GetBufferSize() int { return 1024 }
