package faults

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend/redistest"
)

// A cable carries the connections of one process of a simulation to the server, and can break them as a link does: in
// virtual time, and without sockets.
type cable struct {
	server   *redistest.Server
	recorder *recorder // nil: nothing is traced; set before anything goes through
	busy     carriers  // of connections, and of late copies on their way

	mu       sync.Mutex
	random   *rand.Rand
	calm     bool // nothing is slow, and nothing arrives twice
	dead     bool // the process has died: copies of what it sent must not arrive any more, either
	brittle  bool // data take no time to pass, and every fault cuts the cable; set before anything goes through
	deaf     bool // published messages are lost while the cable is calm
	up, down fault
	turned   chan struct{} // closed when the faults change
	strands  map[*strand]struct{}
	scripts  int // sent so far
}

// carriers are goroutines that can be waited for. A WaitGroup cannot count them: while a process waits for the goroutines that
// its client has started, the client may still connect, and so start more.
type carriers struct {
	mu   sync.Mutex
	many int
	none chan struct{} // closed when there are no carriers; nil if no goroutine waits for that
}

// Go runs f in a goroutine.
func (c *carriers) Go(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.many++
	go func() {
		defer c.ends()
		f()
	}()
}

func (c *carriers) ends() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.many--; c.many == 0 && c.none != nil {
		close(c.none)
		c.none = nil
	}
}

// Wait waits until no goroutine is left.
func (c *carriers) Wait() {
	c.mu.Lock()
	if c.many > 0 && c.none == nil {
		c.none = make(chan struct{})
	}
	none := c.none
	c.mu.Unlock()
	if none != nil {
		<-none
	}
}

// A strand is one connection that goes through a cable.
type strand struct {
	client, server net.Conn // the cable's ends
	lost           bool     // something was dropped, so nothing more can pass; guarded by cable.mu
}

// A parcel is what one end has written at once, and when the other gets it.
type parcel struct {
	data  []byte
	due   time.Time
	twice bool // a copy of the parcel arrives, too, later by this time
	late  time.Duration
}

const (
	usual    = 20 * time.Millisecond
	slowest  = 3 * time.Second // longer than a session waits for a command
	slowOne  = 100             // one in so many parcels is slow, also without a fault
	lastCopy = simLease
	copyOne  = 20 // one in so many requests arrives a second time
	inFlight = 64
)

var errCut = errors.New("the cable is cut")

func newCable(server *redistest.Server, random *rand.Rand) *cable {
	return &cable{server: server, random: random, turned: make(chan struct{}), strands: make(map[*strand]struct{})}
}

// reach connects to the server.
func (c *cable) reach() (net.Conn, error) {
	conn, err := c.server.Dial()
	if err != nil || c.recorder == nil {
		return conn, err
	}
	return &recordedWire{Conn: conn, recorder: c.recorder}, nil
}

// dial is a DialCtxFn for rueidis.
func (c *cable) dial(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.up == cutting {
		return nil, errCut
	}
	server, err := c.reach()
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	conn := &strand{client: far, server: server}
	c.strands[conn] = struct{}{}
	c.busy.Go(func() { c.carry(conn, far, server, &c.up) })
	c.busy.Go(func() { c.carry(conn, server, far, &c.down) })
	return near, nil
}

// turn changes the faults. It closes the connections that have lost something, and all of them if the fault cuts the cable.
func (c *cable) turn(up, down fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.brittle && up+down != passing {
		up, down = cutting, cutting
	}
	c.up, c.down = up, down
	close(c.turned)
	c.turned = make(chan struct{})
	for conn := range c.strands {
		if conn.lost || up == cutting {
			c.shut(conn)
		}
	}
}

// reconnect closes all present connections.
func (c *cable) reconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.strands {
		c.shut(conn)
	}
}

// settle makes the cable calm, or ends the calm.
func (c *cable) settle(calm bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calm = calm
}

// deafen makes the cable lose published messages while it is calm.
func (c *cable) deafen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf = true
}

// dies breaks the cable of a process for good.
func (c *cable) dies(end fault) {
	c.mu.Lock()
	c.dead = true
	c.mu.Unlock()
	c.turn(end, end)
}

// sent returns how many scripts the process has sent.
func (c *cable) sent() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.scripts
}

// shut closes a connection. c.mu is held.
func (c *cable) shut(conn *strand) {
	delete(c.strands, conn)
	_ = conn.client.Close()
	_ = conn.server.Close()
}

// carry passes on what is written in one direction, until the connection is closed.
func (c *cable) carry(conn *strand, from, to net.Conn, f *fault) {
	parcels := make(chan parcel, inFlight)
	go c.collect(from, parcels, f)
	for p := range parcels {
		time.Sleep(time.Until(p.due))
		if c.passes(conn, f) {
			_, _ = to.Write(p.data) // if an end is closed, both directions end
		}
		if p.twice { // never before the first copy: the client knows about everything that it sends again itself
			c.busy.Go(func() { c.copy(p.data, p.late) })
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shut(conn)
}

// collect reads what is written.
func (c *cable) collect(from net.Conn, parcels chan<- parcel, f *fault) {
	defer close(parcels)
	buffer := make([]byte, 1<<12)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if c.hears(buffer[:n]) {
			parcels <- c.parcel(bytes.Clone(buffer[:n]), f)
		}
	}
}

// hears reports whether data may pass. Only published messages may be stopped: if the cable loses them, they do not pass. A
// published message always comes alone.
func (c *cable) hears(data []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.deaf || !c.calm || !bytes.HasPrefix(data, []byte("*3\r\n$7\r\nmessage\r\n"))
}

func (c *cable) parcel(data []byte, f *fault) parcel {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := usual
	if *f == delaying || !c.calm && c.random.IntN(slowOne) == 0 {
		most = slowest
	}
	if c.brittle {
		most = 1
	}
	scripts := 0
	if f == &c.up {
		scripts = bytes.Count(data, []byte("EVALSHA"))
	}
	c.scripts += scripts
	return parcel{
		data:  data,
		due:   time.Now().Add(time.Duration(c.random.Int64N(int64(most)))),
		twice: !c.calm && !c.dead && scripts > 0 && c.random.IntN(copyOne) == 0 && data[0] == '*', // the data begin with a command
		late:  time.Duration(c.random.Int64N(int64(lastCopy))),
	}
}

// copy sends a request a second time, over a connection of its own. The reply is read by no client.
func (c *cable) copy(data []byte, late time.Duration) {
	time.Sleep(late)
	conn, err := c.reach()
	if err != nil {
		return
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	_, _ = conn.Write(data)
	time.Sleep(time.Second) // until the copy has been executed
	_ = conn.Close()
}

// passes reports whether the next parcel arrives. While the cable holds everything back, passes waits.
func (c *cable) passes(conn *strand, f *fault) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for *f == holding {
		turned := c.turned
		c.mu.Unlock()
		<-turned
		c.mu.Lock()
	}
	conn.lost = conn.lost || *f == dropping
	return !conn.lost
}

// A cable without its faults would make every simulation succeed, so this test checks the faults.
func TestACableBreaks(t *testing.T) {
	for name, test := range map[string]struct {
		up, down         fault
		arrives, replies bool
	}{
		"passing":           {passing, passing, true, true},
		"slow":              {delaying, delaying, true, true},
		"requests are lost": {dropping, passing, false, false},
		"replies are lost":  {passing, dropping, true, false},
		"cut":               {cutting, cutting, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := redistest.InBubble(t)
				c := newCable(server, rand.New(rand.NewPCG(1, 1)))
				conn, err := c.dial(t.Context(), "", nil, nil)
				require.NoError(t, err)
				c.turn(test.up, test.down)
				start := time.Now()
				_, _ = conn.Write([]byte("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n"))
				_ = conn.SetDeadline(start.Add(2 * slowest))
				n, _ := conn.Read(make([]byte, len("+OK\r\n")))
				assert.Equal(t, test.replies, n > 0)
				if test.up == delaying {
					assert.Greater(t, time.Since(start), 2*usual)
				}
				is, err := server.Client().Do(t.Context(), server.Client().B().Exists().Key("k").Build()).AsBool()
				require.NoError(t, err)
				assert.Equal(t, test.arrives, is)
				c.turn(passing, passing)
				_, err = conn.Write([]byte("*1\r\n$4\r\nPING\r\n"))
				assert.Equal(t, test.replies, err == nil, "a connection that has lost something is closed")
				_ = conn.Close()
				c.busy.Wait()
			})
		})
	}
}

func TestACableLosesWhatIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redistest.InBubble(t)
		c := newCable(server, rand.New(rand.NewPCG(1, 1)))
		conn, err := c.dial(t.Context(), "", nil, nil)
		require.NoError(t, err)
		_, err = conn.Write([]byte("*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n"))
		require.NoError(t, err)
		reads := func() string {
			buffer := make([]byte, 1<<10)
			_ = conn.SetReadDeadline(time.Now().Add(2 * slowest))
			n, _ := conn.Read(buffer)
			return string(buffer[:n])
		}
		publish := server.Client().B().Publish().Channel("c").Message("m").Build().Pin()
		c.deafen()
		for _, calm := range []bool{true, false} {
			c.settle(calm)
			if calm {
				assert.Contains(t, reads(), "subscribe")
			}
			require.NoError(t, server.Client().Do(t.Context(), publish).Error())
			assert.Equal(t, !calm, strings.Contains(reads(), "message"))
		}
		_ = conn.Close()
		c.busy.Wait()
	})
}

func TestACableHoldsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redistest.InBubble(t)
		c := newCable(server, rand.New(rand.NewPCG(1, 1)))
		conn, err := c.dial(t.Context(), "", nil, nil)
		require.NoError(t, err)
		c.turn(holding, holding)
		time.AfterFunc(time.Minute, func() { c.turn(passing, passing) })
		start := time.Now()
		_, err = conn.Write([]byte("*1\r\n$4\r\nPING\r\n"))
		require.NoError(t, err)
		_, err = conn.Read(make([]byte, len("+PONG\r\n")))
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Since(start), time.Minute)
		c.reconnect()
		_, err = conn.Read(make([]byte, 1))
		require.Error(t, err)
		c.busy.Wait()
	})
}

func TestACableRepeatsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redistest.InBubble(t)
		c := newCable(server, rand.New(rand.NewPCG(1, 1)))
		option := server.ClientOption()
		option.DialCtxFn = c.dial
		client, err := rueidis.NewClient(option)
		require.NoError(t, err)
		defer c.busy.Wait()
		defer client.Close()
		const times = 10 * copyOne
		add := rueidis.NewLuaScript("return redis.call('INCR', KEYS[1])")
		for range times {
			require.NoError(t, add.Exec(t.Context(), client, []string{"sum"}, nil).Error())
		}
		time.Sleep(2 * lastCopy)
		sum, err := client.Do(t.Context(), client.B().Get().Key("sum").Build()).AsInt64()
		require.NoError(t, err)
		assert.Greater(t, sum, int64(times))
	})
}
