package tier

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/keeper"
	"github.com/relock-go/relock/reentrant/internal/share"
)

// A busy is a server that replies that other sessions have the permits, and after a while does not reply any more.
type busy struct {
	backend.Remote
	silentFrom time.Time
}

func (b busy) Share(ctx context.Context, req backend.ShareRequest) (backend.ShareReply, error) {
	if !time.Now().Before(b.silentFrom) {
		<-ctx.Done()
		return backend.ShareReply{}, ctx.Err()
	}
	return backend.ShareReply{Status: backend.Shared, Epoch: req.Epoch, Placed: req.Want > 0, May: backend.Unlimited, Share: 1}, nil
}

func (busy) InspectShared(context.Context) (st backend.SharedState, err error) { return st, nil }

func (busy) ForceShared(context.Context, backend.ShareKind, time.Time) (bool, error) {
	return false, nil
}

// newRoom returns a session and its room, in which nothing is sent again by itself for an hour.
func newRoom() (*core.Session, *share.Room) {
	session := core.NewSession(core.Config{
		Lease: time.Hour, Heartbeat: time.Hour, CommandTimeout: time.Hour, Patience: time.Hour, GrantTTL: time.Hour, Logger: slog.New(slog.DiscardHandler),
		Jitter: func(time.Duration) time.Duration { return 0 }, Ahead: func(time.Time) time.Duration { return 0 },
	})
	return session, share.NewRoom(session, keeper.New(session), time.Second)
}

// A call whose time is up asks once more. If its context ends before the reply, it leaves no goroutine behind.
func TestALastCallEndsWithItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const wait = time.Minute
		session, room := newRoom()
		s := Semaphore{&Handle{Session: session, Shared: room, Name: "x", Kind: backend.Permits, Remote: busy{silentFrom: time.Now().Add(wait)}}}
		ctx, cancel := context.WithCancel(t.Context())
		asks := func() bool {
			synctest.Wait()
			return onStack("(*waitLimit).end")
		}
		result := make(chan error, 1)
		go func() {
			_, _, err := s.Take(ctx, 1, 1, TryFor("acquire", wait))
			result <- err
		}()
		time.Sleep(wait)
		assert.True(t, asks(), "the server is asked once more")
		cancel()
		assert.ErrorIs(t, <-result, context.Canceled)
		assert.False(t, asks())
		room.Close()
		room.Stop()
	})
}
