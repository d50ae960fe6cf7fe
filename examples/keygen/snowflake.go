package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/reentrant"
)

// An id has a zero bit, 41 bits for the milliseconds since idEpoch (until 2089), 10 for the number of the node and 12 for
// the ids of a node in one millisecond.
const (
	nodeBits     = 10
	sequenceBits = 12
	maxNodes     = 1 << nodeBits
	lastSequence = 1<<sequenceBits - 1
)

var idEpoch = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

// nodesName is the semaphore's name; the node numbers are locks whose names begin with it.
const nodesName = "keygen-nodes"

// A node is a node number that a worker holds: either a [reentrant.Slot] or, in an everyNode, a number that all workers have.
type node interface {
	Number() int
	// Token returns the number's fencing token. It returns reentrant.ErrLost if another worker may have the number.
	Token() (reentrant.Token, error)
	Release(ctx context.Context) error
}

// A generator makes the ids of one node. It belongs to one goroutine.
//
// No id comes twice although a node number has one holder after another, on machines whose clocks differ, and although a
// holder may be paused at any point, since
//
//   - the time in an id is not this machine's but Redis's: the holder asks for it once it has the number, and adds the
//     local time since the reply. The sum is never ahead of Redis's present time, because the local part is counted a
//     thousandth too slow, which is more than quartzes and slewed clocks differ;
//   - an id is given out only if the number was trusted after the time was read. So the time in it lies before the end of
//     the lease, by Redis's clock. How late the id is used does not matter;
//   - the next holder asks after that end, or after the release. It begins with the millisecond after the reply, which
//     no earlier holder can have reached.
//
// (A token is no such time: it only rises from holder to holder.) The scheme relies on Redis's clock: if that is set
// back, or a replica with a clock that is behind takes over, by more than the time for which a number was free, times
// come again. Keep NTP slewing, as leases need it too.
type generator struct {
	node     node
	asked    int64     // Redis's time in microseconds when it was asked
	heard    time.Time // when the reply had arrived here
	last     int64     // millisecond of the last id
	sequence int64     // of the last id in its millisecond
}

// newGenerator returns a generator. asked is the time, in microseconds, that Redis has just returned. The generator begins with
// the millisecond after it.
func newGenerator(n node, asked int64) *generator {
	return &generator{node: n, asked: asked, heard: time.Now(), last: asked / 1000, sequence: lastSequence}
}

// draw returns the next id. It returns reentrant.ErrLost if another worker may have the node number.
func (g *generator) draw() (int64, error) {
	now := g.now()
	for now == g.last && g.sequence == lastSequence {
		time.Sleep(100 * time.Microsecond)
		now = g.now()
	}
	g.sequence++
	if now > g.last {
		g.last, g.sequence = now, 0
	}
	if _, err := g.node.Token(); err != nil {
		return 0, err
	}
	return (g.last-idEpoch)<<(nodeBits+sequenceBits) | int64(g.node.Number())<<sequenceBits | g.sequence, nil
}

// now returns a time in milliseconds that is never ahead of Redis's.
func (g *generator) now() int64 {
	passed := time.Since(g.heard)
	return (g.asked + (passed - passed/1000).Microseconds()) / 1000
}

// nodeOf returns the number of the node that made an id.
func nodeOf(id int64) int { return int(id >> sequenceBits & (maxNodes - 1)) }

// A drawer is a worker that draws ids and records them, until its context ends.
type drawer struct {
	server string
	join   func(ctx context.Context) (node, error)  // returns a node number that no other worker has
	time   func(ctx context.Context) (int64, error) // returns Redis's time in microseconds
	table  interface {
		record(ctx context.Context, r record) error
	}
	tally *tally
}

// idsPerHold is how many ids a worker makes with one node number. After that the worker gives the number back and takes
// another. A real program would keep its number for months; here a number changes its holder every few seconds.
const idsPerHold = 200

// run takes one node number after another.
func (d *drawer) run(ctx context.Context) error {
	for {
		n, err := d.join(ctx)
		if err != nil {
			return err
		}
		err = errors.Join(d.drawSome(ctx, n), n.Release(context.WithoutCancel(ctx)))
		switch {
		case errors.Is(err, reentrant.ErrLost):
			d.tally.lost.Add(1)
		case err != nil:
			return err
		}
	}
}

// drawSome draws and records ids. It stops early if the number is lost or ctx ends.
func (d *drawer) drawSome(ctx context.Context, n node) error {
	token, err := n.Token()
	if err != nil {
		return err
	}
	asked, err := d.time(ctx)
	if err != nil {
		return err
	}
	g, entry := newGenerator(n, asked), record{server: d.server, owner: "node " + strconv.Itoa(n.Number()), token: int64(token)}
	for range idsPerHold {
		if entry.key, err = g.draw(); err != nil {
			return err
		}
		if err := d.table.record(ctx, entry); err != nil {
			return err
		}
		d.tally.keys.Add(1)
	}
	return nil
}

// redisTime returns a function that asks for Redis's time. In a Cluster the nodes' clocks would have to agree.
func redisTime(client rueidis.Client) func(ctx context.Context) (int64, error) {
	return func(ctx context.Context) (int64, error) {
		parts, err := client.Do(ctx, client.B().Time().Build()).AsIntSlice()
		if err != nil {
			return 0, fmt.Errorf("ask Redis for its time: %w", err)
		}
		return time.Unix(parts[0], parts[1]*1000).UnixMicro(), nil
	}
}

// localTime returns the time for a worker without a Redis.
func localTime(context.Context) (int64, error) { return time.Now().UnixMicro(), nil }

// joinSlots returns a function that takes a node number from a semaphore.
func joinSlots(m *reentrant.Semaphore) func(ctx context.Context) (node, error) {
	return func(ctx context.Context) (node, error) { return m.AcquireSlot(ctx) }
}

// everyNode is node 0, which every worker takes as its own. It shows why node numbers are needed.
type everyNode struct{}

func joinNothing(context.Context) (node, error) { return everyNode{}, nil }

func (everyNode) Number() int                     { return 0 }
func (everyNode) Token() (reentrant.Token, error) { return 0, nil }
func (everyNode) Release(context.Context) error   { return nil }
