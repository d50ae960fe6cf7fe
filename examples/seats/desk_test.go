package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// A late session looks at a lock before it receives the message that the hold was resumed elsewhere.
type (
	late     struct{ backend.Backend }
	lateSink struct {
		backend.Sink
		looked <-chan struct{}
	}
	lateConn struct {
		backend.Conn
		look func()
	}
	lateRemote struct {
		backend.Remote
		look func()
	}
)

func (l late) Connect(ctx context.Context, session string, sink backend.Sink) (backend.Conn, error) {
	looked := make(chan struct{})
	conn, err := l.Backend.Connect(ctx, session, lateSink{sink, looked})
	return lateConn{conn, sync.OnceFunc(func() { close(looked) })}, err
}

func (s lateSink) Taken(name string, epoch uint64) {
	go func() {
		<-s.looked
		s.Sink.Taken(name, epoch)
	}()
}

func (c lateConn) Bind(name string) (backend.Remote, error) {
	remote, err := c.Conn.Bind(name)
	return lateRemote{remote, c.look}, err
}

func (r lateRemote) Inspect(ctx context.Context) (reentrant.State, error) {
	state, err := r.Remote.Inspect(ctx)
	r.look()
	return state, err
}

// The visitor has resumed the hold at the other server, and released the seat there. This server has not yet received the
// message about the Resume.
func TestASeatIsFreeBeforeTheServerHasHeardOfIt(t *testing.T) {
	t.Parallel()
	shared := redistest.Start(t).Backend()
	lock := func(b backend.Backend) *reentrant.Lock {
		session, err := reentrant.NewSession(b, reentrant.WithLease(time.Hour))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, session.Close(context.Background())) })
		return session.NewLock("seat", reentrant.WithFixedLease(time.Hour))
	}
	here, there := lock(late{shared}), lock(shared)
	ann, bob := as(t.Context(), "ann"), as(t.Context(), "bob")
	takes := func(visitor context.Context, lock *reentrant.Lock) {
		err := take(visitor, lock)
		for reentrant.OutcomeUnknown(err) { // on a busy machine
			err = take(visitor, lock)
		}
		require.NoError(t, err)
	}
	takes(ann, here)
	takes(ann, there)
	require.NoError(t, release(ann, there))
	takes(bob, here)
	require.NoError(t, release(bob, here))
}

// atDesks runs a test with the desks of two servers. Time is virtual, so no machine is too slow for the holds.
func atDesks(t *testing.T, hold time.Duration, test func(t *testing.T, desks [2]*desk)) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "seats.db")
	synctest.Test(t, func(t *testing.T) {
		src, err := parseSource(file)
		require.NoError(t, err)
		sales, err := openSales(t.Context(), src)
		require.NoError(t, err)
		defer func() { assert.NoError(t, sales.close()) }()
		require.NoError(t, sales.create(t.Context()))
		shared := memory.New()
		var desks [2]*desk
		for i := range desks {
			session, err := reentrant.NewSession(shared, reentrant.WithExplicitOwners(), reentrant.WithLease(leaseOf(hold)))
			require.NoError(t, err)
			defer func() { assert.NoError(t, session.Close(context.Background())) }()
			desks[i] = &desk{session: session, sales: sales, hold: hold}
		}
		test(t, desks)
	})
}

func TestPayingMayTakeLongerThanAHold(t *testing.T) {
	const hold = 10 * time.Minute
	atDesks(t, hold, func(t *testing.T, desks [2]*desk) {
		ann, bob := as(t.Context(), "ann"), as(t.Context(), "bob")
		require.NoError(t, desks[0].pick(ann, "ann", "A05"))
		desks[1].charge = waiting(3*hold + time.Second)
		paid := make(chan error)
		go func() { paid <- desks[1].pay(ann, "ann", "A05") }()
		hall := newBoard(desks[0].session, nil, desks[0].sales, hold, slog.New(slog.DiscardHandler))
		for range 6 {
			time.Sleep(hold / 2)
			require.ErrorIs(t, desks[0].pick(bob, "bob", "A05"), errTaken)
			seen, err := hall.read(t.Context())
			require.NoError(t, err)
			require.Equal(t, "ann", seen.held["A05"].visitor)
		}
		require.NoError(t, <-paid)
		assert.ErrorIs(t, desks[0].pick(bob, "bob", "A05"), errSold)
	})
}

func TestAPaymentThatFailsLeavesTheHoldToItsEnd(t *testing.T) {
	const hold = 10 * time.Minute
	atDesks(t, hold, func(t *testing.T, desks [2]*desk) {
		ann, bob := as(t.Context(), "ann"), as(t.Context(), "bob")
		noMoney := errors.New("no money")
		require.NoError(t, desks[0].pick(ann, "ann", "A05"))
		desks[0].charge = func(context.Context, string, int) error { return noMoney }
		require.ErrorIs(t, desks[0].pay(ann, "ann", "A05"), noMoney)
		time.Sleep(hold - time.Second)
		assert.ErrorIs(t, desks[1].pick(bob, "bob", "A05"), errTaken)
		time.Sleep(time.Minute) // by now the hold has ended: it was not renewed
		assert.NoError(t, desks[1].pick(bob, "bob", "A05"))
	})
}

// A visitor picks the same seat again just when the hold ends. The visitor gets a new hold, and no error about the old one.
func TestPickingAgainWhenAHoldEnds(t *testing.T) {
	atDesks(t, 5*time.Second, func(t *testing.T, desks [2]*desk) {
		d, ctx := desks[0], as(t.Context(), "ann")
		tokens := map[reentrant.Token]bool{}
		for len(tokens) < 3 {
			require.NoError(t, d.pick(ctx, "ann", "A05"))
			if token, err := d.timed("A05").Token(ctx); err == nil {
				tokens[token] = true
			}
			time.Sleep(time.Millisecond)
		}
	})
}
