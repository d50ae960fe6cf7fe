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
)

// A link is a way to a server that can be broken.
type link struct {
	t        *testing.T
	proxy    *toxiproxy.Proxy
	addr     string // stays; the proxy writes its own when it is redirected
	up, down *flow
}

func newLink(t *testing.T, upstream string) *link {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := toxiproxy.NewProxy(server, strings.ReplaceAll(t.Name(), "/", "-"), "127.0.0.1:0", upstream)
	l := &link{t: t, proxy: p, up: newFlow(t, p, "upstream"), down: newFlow(t, p, "downstream")}
	require.NoError(t, p.Start())
	t.Cleanup(p.Stop)
	l.addr = p.Listen
	return l
}

// dropReplies lets requests through and nothing back: what is sent is executed, and no client hears of it.
func (l *link) dropReplies() { l.down.turn(dropping) }

// dropRequests lets nothing through.
func (l *link) dropRequests() { l.up.turn(dropping) }

// delayReplies lets everything through, some of it late.
func (l *link) delayReplies() { l.down.turn(delaying) }

// cut closes the connections on which something is answered.
func (l *link) cut() { l.down.turn(cutting) }

// mend lets everything through again.
func (l *link) mend() {
	l.up.turn(passing)
	l.down.turn(passing)
}

// redirect has the link lead elsewhere, over new connections.
func (l *link) redirect(upstream string) {
	l.proxy.Stop()
	l.proxy.Upstream = upstream
	eventually(l.t, func() bool { return l.proxy.Start() == nil }, "its port is free") // a connection may have taken it meanwhile
}

// A flow is one direction of a link: a toxic that every connection has from its beginning, and that turns from one fault
// to another. Toxics that come and go would be simpler, but the proxy hangs if a connection ends while it changes them.
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
)

// The delays of a chunk that is delayed.
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

// now is the fault, and what is closed when it is over.
func (f *flow) now() (fault, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fault, f.turned
}

// Pipe is what the flow does with one connection.
func (f *flow) Pipe(stub *toxics.ToxicStub) {
	for on, lost := true, false; on; {
		on, lost = f.next(stub, lost)
	}
	stub.Close()
	for range stub.Input { // until the sender has noticed
	}
}

// next deals with what comes next, and reports whether the connection goes on, and whether something was lost: then it ends
// with the fault, since nothing can be left out of a stream.
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

// hold keeps a chunk for as long as it is late, and gives the fault that it meets then.
func (f *flow) hold(c *stream.StreamChunk) fault {
	is, turned := f.now()
	if is != delaying {
		return is
	}
	select {
	case <-time.After(time.Until(c.Timestamp.Add(soonest + rand.N(latest-soonest)))): // how late it is
	case <-turned:
	}
	is, _ = f.now()
	return is
}

// GetBufferSize has a late chunk not hold the next ones up.
func (f *flow) GetBufferSize() int { return 1024 }
