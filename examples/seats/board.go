package main

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/reentrant"
)

// A board is one server's copy of the hall. The truth is in Redis and SQL, which the server reads again and again. So it also
// sees holds that end by themselves, and changes that a server made before it was killed. Servers notify each other of their
// changes, so that the others read sooner.
type board struct {
	session *reentrant.Session
	client  rueidis.Client
	sales   *sales
	hold    time.Duration
	log     *slog.Logger
	nudged  chan struct{} // holds one value while there is a reason to look

	mu      sync.Mutex
	hall    hall
	changed chan struct{} // closed, and replaced, when the hall changes
}

// A hall has the holder or buyer of each seat at one moment. It is immutable once it is on a board.
type hall struct {
	sold   map[seat]string // buyers
	held   map[seat]holder
	unread map[seat]bool // the seats whose locks cannot be read
	stale  bool          // it is older than it should be: Redis or SQL could not be asked
}

// A holder is the visitor that has a seat, the moment until which the seat is promised to the visitor, and the lock behind it.
type holder struct {
	visitor string
	until   time.Time
	token   reentrant.Token
	session string // of the server that has the hold
}

// lookEvery bounds how late a change without a message is seen: within a second, including the time for reading. While Redis or
// SQL does not reply, the pauses double, up to lookAtLeastEvery.
const (
	lookEvery        = 800 * time.Millisecond
	lookAtLeastEvery = 10 * time.Second
)

// longer returns the next pause after one more failure.
func longer(pause time.Duration) time.Duration {
	return min(2*pause, lookAtLeastEvery)
}

func newBoard(session *reentrant.Session, client rueidis.Client, sales *sales, hold time.Duration, log *slog.Logger) *board {
	return &board{
		session: session, client: client, sales: sales, hold: hold, log: log,
		nudged: make(chan struct{}, 1), changed: make(chan struct{}),
	}
}

// look returns the hall, and a channel that is closed when there is a newer one.
func (b *board) look() (hall, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hall, b.changed
}

// run keeps the board up to date until ctx ends.
func (b *board) run(ctx context.Context) {
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() { b.listen(ctx) })
	pause, nudged := lookEvery, b.nudged
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		case <-nudged:
		}
		if b.refresh(ctx) {
			pause, nudged = lookEvery, b.nudged
		} else {
			pause, nudged = longer(pause), nil // after a failure, requests of visitors do not shorten the pause
		}
	}
}

// refresh reads the hall, and puts it on the board if it has changed. It reports whether it could read the hall.
func (b *board) refresh(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	next, err := b.read(ctx)
	if errors.Is(err, context.Canceled) {
		return false
	}
	now, _ := b.look()
	if err != nil {
		next = now
		next.stale = true
	}
	switch { // one line when a failure begins, and one when it is over
	case next.stale && !now.stale:
		b.log.Warn("the hall could not be read; trying again", "error", err)
	case !next.stale && now.stale:
		b.log.Info("the hall is read again")
	}
	if !same(now, next) {
		b.put(next)
	}
	return err == nil
}

// put shows a new hall to all visitors.
func (b *board) put(next hall) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hall = next
	close(b.changed)
	b.changed = make(chan struct{})
}

// read reads Redis and SQL. It reads the holds first. If a seat is sold and its hold is given back between the two readings,
// the seat shows as sold. In the other order the seat would look free.
func (b *board) read(ctx context.Context) (hall, error) {
	held, unread, err := b.holders(ctx)
	if err != nil {
		return hall{}, err
	}
	sold, err := b.sales.sold(ctx)
	if err != nil {
		return hall{}, err
	}
	for s := range sold {
		delete(held, s)
	}
	return hall{sold: sold, held: held, unread: unread}, nil
}

// holders reads all locks at once. It returns the holders of the seats, and the seats whose locks cannot be read, because Redis
// may have other data there.
func (b *board) holders(ctx context.Context) (held map[seat]holder, unread map[seat]bool, err error) {
	names := make([]string, len(seats))
	for i, s := range seats {
		names[i] = s.lockName()
	}
	begun := time.Now()
	states, err := b.session.InspectAll(ctx, names...)
	if err != nil {
		return nil, nil, err
	}
	held, unread = map[seat]holder{}, map[seat]bool{}
	for i, state := range states {
		switch {
		case state.Err != nil:
			unread[seats[i]] = true
		case state.Locked:
			visitor := strings.TrimPrefix(state.Owner, "@") // the prefix marks a portable owner
			held[seats[i]] = holder{visitor, begun.Add(state.TTL - grace(b.hold)), state.Token, state.Session}
		}
	}
	return held, unread, nil
}

// same reports whether two halls look the same. Each look finds a slightly different time for the end of a hold, so a small
// difference does not count.
func same(a, b hall) bool {
	return a.stale == b.stale && maps.Equal(a.sold, b.sold) && maps.Equal(a.unread, b.unread) && maps.EqualFunc(a.held, b.held, func(a, b holder) bool {
		return a.visitor == b.visitor && a.token == b.token && a.session == b.session && a.until.Sub(b.until).Abs() < 500*time.Millisecond
	})
}

// channel is the channel on which servers publish that they have changed something.
const channel = "seats:changed"

// announce notifies this server and the other servers of a change. If that fails, the other servers see the change at their
// next look.
func (b *board) announce(ctx context.Context) {
	b.nudge()
	_ = b.client.Do(ctx, b.client.B().Publish().Channel(channel).Message("").Build()).Error()
}

func (b *board) nudge() {
	select {
	case b.nudged <- struct{}{}:
	default: // there already is a reason to look
	}
}

// listen makes the board read again whenever another server announces a change, until ctx ends.
func (b *board) listen(ctx context.Context) {
	for pause := lookEvery; ctx.Err() == nil; pause = longer(pause) {
		begun := time.Now()
		// The connection is not used for anything else: with RESP2 a connection that has subscribed can do nothing else.
		_ = b.client.Dedicated(func(c rueidis.DedicatedClient) error {
			return c.Receive(ctx, c.B().Subscribe().Channel(channel).Build(), func(rueidis.PubSubMessage) { b.nudge() })
		})
		if time.Since(begun) > lookAtLeastEvery { // the connection has worked for a while
			pause = lookEvery
		}
		select { // the connection ended, so the next one is not opened at once
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// holds returns how many seats a visitor holds.
func (h hall) holds(visitor string) int {
	n := 0
	for _, holder := range h.held {
		if holder.visitor == visitor {
			n++
		}
	}
	return n
}
