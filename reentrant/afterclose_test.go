package reentrant_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// A slowEnd is a backend whose connections take time to close.
type slowEnd struct {
	backend.Backend
	takes  time.Duration
	closed func()
}

type slowConn struct {
	backend.Conn
	slowEnd
}

func (b slowEnd) Connect(ctx context.Context, session string, sink backend.Sink) (backend.Conn, error) {
	conn, err := b.Backend.Connect(ctx, session, sink)
	return slowConn{conn, b}, err
}

func (c slowConn) Close() error {
	time.Sleep(c.takes)
	c.closed()
	return c.Conn.Close()
}

func TestAfterCloseComesOnceTheConnectionIsClosed(t *testing.T) {
	for name, takes := range map[string]time.Duration{"before Close returns": 0, "in the background": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var noted []string
				note := func(what string) func() {
					return func() {
						mu.Lock()
						defer mu.Unlock()
						noted = append(noted, what)
					}
				}
				calls := func() []string {
					mu.Lock()
					defer mu.Unlock()
					return slices.Clone(noted)
				}
				s := newSession(t, slowEnd{memory.New(), takes, note("connection")},
					reentrant.WithAfterClose(note("client")), reentrant.WithAfterClose(nil), reentrant.WithAfterClose(note("server")))
				require.NoError(t, s.NewLock("x").Lock(t.Context()))
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				require.ErrorIs(t, s.Close(ctx), context.DeadlineExceeded, "a hold was given up")
				if takes > 0 {
					assert.Empty(t, calls())
					time.Sleep(takes)
					synctest.Wait()
				}
				assert.Equal(t, []string{"connection", "client", "server"}, calls())
				assert.ErrorIs(t, s.Close(context.Background()), reentrant.ErrClosed)
				assert.Len(t, calls(), 3, "once")
			})
		})
	}
}

func TestAfterCloseIsNotCalledForASessionThatDidNotOpen(t *testing.T) {
	_, err := reentrant.NewSession(memory.New(), reentrant.WithAfterClose(func() { t.Error("called") }), reentrant.WithLease(-1))
	require.Error(t, err)
}
