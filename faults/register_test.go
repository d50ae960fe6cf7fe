package faults

import (
	"net"
	"net/rpc"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A Register is what locks protect in these tests: a number of updates, kept where no fault reaches it. A client reads the
// value and writes the value plus one. So an update that another client made in between is lost, and the register counts the
// loss.
//
// A fenced register refuses tokens below the highest token that it has seen. It also sees the tokens of reads. Otherwise a
// holder that lost the lock could still write after the next holder has read.
type Register struct {
	mu     sync.Mutex
	fenced bool
	cells  map[string]*cell      // value by lock
	turns  map[string]int        // reads by client, and by client and side: a client that reads has the lock
	last   string                // the client that has read last: it has a lock, or has just had one
	read   func(string) bool     // set by watch; nil: reads are not watched
	conns  map[net.Conn]struct{} // open connections
	served sync.WaitGroup
}

type cell struct {
	highest  uint64 // highest token
	version  int
	updates  int
	lost     int
	refused  int
	versions map[uint64]int // the value that readers have read under each of their versions
	stale    int            // reads of another value under a version that was seen before
}

// A Claim is a client's request.
type Claim struct {
	Client, Lock string
	Token        uint64
	Version      int    // of Write: the value that was read
	Side         string // the side, "" for a lock
}

// A Value is the register's reply.
type Value struct {
	Version int
	Refused bool
}

// newRegister serves a register on a loopback port until the test ends.
func newRegister(t *testing.T, fenced bool) (*Register, string) {
	t.Helper()
	r := &Register{fenced: fenced, cells: make(map[string]*cell), turns: make(map[string]int), conns: make(map[net.Conn]struct{})}
	server := rpc.NewServer()
	require.NoError(t, server.Register(r))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r.served.Go(func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			r.mu.Lock()
			r.conns[conn] = struct{}{}
			r.mu.Unlock()
			r.served.Go(func() { server.ServeConn(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		r.mu.Lock()
		for conn := range r.conns {
			_ = conn.Close()
		}
		r.mu.Unlock()
		r.served.Wait()
	})
	return r, listener.Addr().String()
}

// Read returns the value.
func (r *Register) Read(c Claim, v *Value) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(c)
	cell := r.cell(c)
	v.Version, v.Refused = cell.version, r.refuses(cell, c)
	if c.Side == readSide && !v.Refused {
		cell.reads(c.Token, v.Version)
	}
	return nil
}

// reads records which value was read under a version of an RWLock. The value must be the same each time.
func (c *cell) reads(version uint64, value int) {
	if c.versions == nil {
		c.versions = make(map[uint64]int)
	}
	if before, ok := c.versions[version]; ok && before != value {
		c.stale++
	}
	c.versions[version] = value
}

// Turn records that a client has permits.
func (r *Register) Turn(c Claim, _ *Value) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(c)
	return nil
}

// turn records that a client has a lock. r.mu is held.
func (r *Register) turn(c Claim) {
	r.turns[c.Client]++
	r.turns[c.Client+c.Side]++
	r.last = c.Client
	if r.read != nil && r.read(c.Client) {
		r.read = nil
	}
}

// Write makes an update to the value that was read.
func (r *Register) Write(c Claim, v *Value) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	cell := r.cell(c)
	if v.Refused = r.refuses(cell, c); v.Refused {
		return nil
	}
	cell.lost += cell.version - c.Version
	cell.version = c.Version + 1
	cell.updates++
	return nil
}

// refuses reports whether a token is too old, and otherwise remembers it. r.mu is held.
func (r *Register) refuses(c *cell, claim Claim) bool {
	if r.fenced && claim.Token < c.highest {
		c.refused++
		return true
	}
	c.highest = max(c.highest, claim.Token)
	return false
}

func (r *Register) cell(c Claim) *cell {
	if r.cells[c.Lock] == nil {
		r.cells[c.Lock] = new(cell)
	}
	return r.cells[c.Lock]
}

// total returns the sums over all locks.
func (r *Register) total() cell {
	r.mu.Lock()
	defer r.mu.Unlock()
	var sum cell
	for _, c := range r.cells {
		sum.updates += c.updates
		sum.lost += c.lost
		sum.refused += c.refused
		sum.stale += c.stale
	}
	return sum
}

// turnsOf returns how often a client had a lock.
func (r *Register) turnsOf(client string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.turns[client]
}

// watch makes the register call f for every read from now on, before it replies, until f returns true. So a fault that f causes
// once is caused only once, even if the goroutine that called watch notices it late.
func (r *Register) watch(f func(client string) (enough bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read = f
}

// holder returns the client that has had a lock most recently.
func (r *Register) holder() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

func TestARegisterCountsLostUpdates(t *testing.T) {
	for _, fenced := range []bool{false, true} {
		r, addr := newRegister(t, fenced)
		c, err := rpc.Dial("tcp", addr)
		require.NoError(t, err)
		call := func(method string, token uint64, version int) (v Value) {
			require.NoError(t, c.Call("Register."+method, Claim{Client: "c", Lock: "l", Token: token, Version: version}, &v))
			return v
		}
		old := call("Read", 1, 0)
		assert.Zero(t, call("Read", 2, 0).Version)
		assert.Equal(t, fenced, call("Write", 1, old.Version).Refused, "the newer holder has read, and not written yet")
		assert.False(t, call("Write", 2, 0).Refused)
		if sum := r.total(); fenced {
			assert.Equal(t, [3]int{1, 0, 1}, [3]int{sum.updates, sum.lost, sum.refused})
		} else {
			assert.Equal(t, [3]int{2, 1, 0}, [3]int{sum.updates, sum.lost, sum.refused})
		}
		require.NoError(t, c.Close())
	}
}

func TestARegisterIsWatchedUntilItIsEnough(t *testing.T) {
	r := Register{cells: make(map[string]*cell), turns: make(map[string]int)}
	var seen []string
	r.watch(func(client string) bool {
		seen = append(seen, client)
		return client == "b"
	})
	for _, client := range []string{"a", "b", "c"} {
		require.NoError(t, r.Read(Claim{Client: client}, new(Value)))
	}
	assert.Equal(t, []string{"a", "b"}, seen)
}
