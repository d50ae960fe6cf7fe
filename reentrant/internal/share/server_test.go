package share

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/keeper"
	"github.com/relock-go/relock/reentrant/internal/lease"
	"github.com/relock-go/relock/sharedqueue"
)

const (
	testLease     = 10 * time.Second
	testHeartbeat = time.Second
	testTurn      = 5 * time.Millisecond
)

// A session is a room with one name, over a real local tier. The test is its server: it receives every command, and
// decides when and what to reply. A command without a reply fails when its time is over.
type session[Q any] struct {
	t        *testing.T
	keeper   *keeper.Keeper
	room     *Room
	name     *Name
	queue    Q
	shares   chan *shareCall
	renewals chan *renewCall
	losses   chan time.Time // the times at which users learned of a loss
}

// newPermits returns the session of a semaphore with five permits.
func newPermits(t *testing.T) *session[permitTier] {
	s := &session[permitTier]{t: t}
	s.open(backend.Permits, func(now func() time.Duration) Tier {
		s.queue = permitTier{sharedqueue.NewPermits(now), s.losses}
		return s.queue
	})
	s.queue.Limit(5)
	return s
}

// keyOf returns no number for the owners of these tests.
func keyOf(owner string) (hash, number uint64) { return uint64(len(owner)), 0 }

// newReadWrite returns the session of a read-write lock.
func newReadWrite(t *testing.T) *session[*sharedqueue.RW[string]] {
	s := &session[*sharedqueue.RW[string]]{t: t}
	s.open(backend.ReadWrite, func(now func() time.Duration) Tier {
		s.queue = sharedqueue.NewRW(now, keyOf, nil)
		return rwTier{s.queue, s.losses}
	})
	return s
}

func (s *session[Q]) open(kind backend.ShareKind, tier func(now func() time.Duration) Tier) {
	s.shares, s.renewals, s.losses = make(chan *shareCall, 16), make(chan *renewCall, 16), make(chan time.Time, 16)
	session := core.NewSession(core.Config{
		Lease: testLease, Heartbeat: testHeartbeat, Patience: 30 * time.Second, GrantTTL: 3 * testHeartbeat, CommandTimeout: 2 * time.Second,
		Logger: slog.New(slog.DiscardHandler),
		Jitter: func(time.Duration) time.Duration { return 0 },
		Ahead:  func(time.Time) time.Duration { return 0 },
	})
	session.Conn = conn{renew: s.renew}
	s.keeper = keeper.New(session)
	s.room = NewRoom(session, s.keeper, testTurn)
	s.keeper.Start(s.room)
	s.name = s.room.Join("x", kind, remote{shares: s.shares}, func() Tier {
		return tier(func() time.Duration { return time.Since(session.Opened) })
	})
	s.t.Cleanup(func() {
		s.room.Close()
		s.room.Stop()
		s.keeper.Stop()
	})
}

// A conn passes renewals on to the test.
type conn struct {
	backend.Conn
	renew func(context.Context, []backend.Renewal)
}

func (c conn) Renew(ctx context.Context, batch []backend.Renewal) { c.renew(ctx, batch) }

// A remote passes the session's commands to the test.
type remote struct {
	backend.Remote
	shares chan<- *shareCall
}

type shareCall struct {
	req   backend.ShareRequest
	at    time.Time
	reply chan backend.ShareReply
	fail  chan error
}

func (r remote) Share(ctx context.Context, req backend.ShareRequest) (backend.ShareReply, error) {
	c := &shareCall{req, time.Now(), make(chan backend.ShareReply, 1), make(chan error, 1)}
	select {
	case r.shares <- c:
	case <-ctx.Done(): // the test has ended
	}
	select {
	case reply := <-c.reply:
		return reply, nil
	case err := <-c.fail:
		return backend.ShareReply{}, err
	case <-ctx.Done():
		return backend.ShareReply{}, backend.WithOutcomeUnknown(ctx.Err())
	}
}

func (remote) InspectShared(context.Context) (backend.SharedState, error) {
	return backend.SharedState{}, nil
}

func (remote) ForceShared(context.Context, backend.ShareKind, time.Time) (bool, error) {
	return false, nil
}

// grant replies that the session has n units, and that no other session waits.
func (c *shareCall) grant(units int) { c.reply <- settled(units) }

// refuse replies that the server does not carry out the command, and would not if it were sent again.
func (c *shareCall) refuse() { c.fail <- backend.WithRefused(errors.New("NOPERM")) }

// place replies that the session waits, and has n units meanwhile.
func (c *shareCall) place(units int) {
	r := settled(units)
	r.Placed = true
	c.reply <- r
}

func settled(units int) backend.ShareReply {
	r := backend.ShareReply{Status: backend.Shared, Units: units, May: backend.Unlimited}
	if units > 0 {
		r.First, r.Last = 2, 2
	}
	return r
}

type renewCall struct {
	batch []backend.Renewal
	at    time.Time
	reply chan backend.Renewal
}

func (s *session[Q]) renew(ctx context.Context, batch []backend.Renewal) {
	c := &renewCall{batch, time.Now(), make(chan backend.Renewal, 1)}
	select {
	case s.renewals <- c:
	case <-ctx.Done(): // the test has ended
	}
	select {
	case r := <-c.reply:
		batch[0].Units, batch[0].Gone = r.Units, r.Gone
	case <-ctx.Done():
		batch[0].Err = backend.WithOutcomeUnknown(ctx.Err())
	}
}

// reconnected says that the channel was closed for a while.
func (s *session[Q]) reconnected() {
	s.room.Reconnected()
	s.keeper.Refresh()
}

// command returns the next command of the session, which must have the given epoch.
func (s *session[Q]) command(epoch uint64) *shareCall {
	s.t.Helper()
	c := next(s, s.shares)
	require.Equal(s.t, epoch, c.req.Epoch)
	return c
}

// next waits for an event that must come soon.
func next[Q, T any](s *session[Q], from <-chan T) (v T) {
	s.t.Helper()
	select {
	case v = <-from:
	case <-time.After(time.Minute):
		require.Fail(s.t, "no event came")
	}
	return v
}

// push sends the session the message of a grant that was made a while ago.
func (s *session[Q]) push(epoch uint64, units int, ago, ttl time.Duration) {
	s.room.Granted(backend.ShareGrant{
		Name: "x", Epoch: epoch, Units: units, First: 2, Last: 2, May: backend.Unlimited, TTL: ttl, NotBefore: time.Now().Add(-ago),
	})
}

// until returns the end of the trust in a lease that began at a certain time.
func until(sent time.Time, length time.Duration) time.Time {
	return lease.New(sent, 0, length, false).Until()
}

// A user is a caller that waits for units.
type user struct {
	outcome chan sharedqueue.Outcome
	leave   context.CancelFunc // cancels the wait
}

// enter makes a user enter the local queue.
func enter[Q interface {
	Enter(claim K, mode sharedqueue.Mode) (sharedqueue.Outcome, *sharedqueue.Waiter[O], uint64, bool)
	Wait(w *sharedqueue.Waiter[O], done <-chan struct{}, timeout <-chan time.Time) (sharedqueue.Outcome, uint64, bool)
}, K any, O comparable](s *session[Q], claim K, mode sharedqueue.Mode) user {
	ctx, cancel := context.WithCancel(s.t.Context())
	u := user{make(chan sharedqueue.Outcome, 1), cancel}
	o, w, _, look := s.queue.Enter(claim, mode)
	if look {
		s.name.Wake()
	}
	if o != sharedqueue.Waiting {
		u.outcome <- o
		return u
	}
	go func() {
		o, _, look := s.queue.Wait(w, ctx.Done(), nil)
		if look {
			s.name.Wake()
		}
		u.outcome <- o
	}()
	return u
}

// A permitTier is the local tier of a semaphore.
type permitTier struct {
	*sharedqueue.Permits
	losses chan<- time.Time
}

func (t permitTier) Keep(units int) (int, backend.Token) { return t.Permits.Keep(units), 0 }

func (t permitTier) Note() string { return "" }

func (t permitTier) Lose(string) (notify func()) { return notifyOf(t.losses, t.Permits.Lose() > 0) }

// An rwTier is the local tier of a read-write lock.
type rwTier struct {
	*sharedqueue.RW[string]
	losses chan<- time.Time
}

func (t rwTier) Note() string { return "" }

func (t rwTier) Keep(units int) (int, backend.Token) {
	kept, used := t.RW.Keep(units)
	return kept, backend.Token(used)
}

func (t rwTier) Lose(string) (notify func()) { return notifyOf(t.losses, len(t.RW.Lose()) > 0) }

func notifyOf(losses chan<- time.Time, lost bool) (notify func()) {
	return func() {
		if lost {
			losses <- time.Now()
		}
	}
}
