package condition

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
)

// A server is a backend whose commands the test receives and replies to.
type server struct {
	backend.Conn
	backend.Remote
	backend.Conditions
	acquires chan uint64 // the epochs
	replies  chan backend.AcquireReply
}

func (s *server) Bind(string) (backend.Remote, error) { return s, nil }

func (s *server) Name() string { return backend.ConditionsOf("x") }

func (s *server) Acquire(_ context.Context, req backend.AcquireRequest) (backend.AcquireReply, error) {
	s.acquires <- req.Epoch
	return <-s.replies, nil
}

// A message that grants the lock may arrive as well as the reply that grants it. The message must not wake the writer's next
// attempt.
func TestAGrantOfAnEarlierEpochWakesNoWriterThatAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{acquires: make(chan uint64, 1), replies: make(chan backend.AcquireReply)}
		session := core.NewSession(core.Config{
			Heartbeat: time.Second, CommandTimeout: 2 * time.Second, Logger: slog.New(slog.DiscardHandler),
			Jitter: func(time.Duration) time.Duration { return 0 },
		})
		session.Conn = s
		m, err := NewRoom(session).Monitor("x")
		require.NoError(t, err)
		acquire := func() {
			_, _, err := m.acquire(t.Context(), core.CurrentOwner(t.Context()))
			assert.NoError(t, err)
		}
		granted := backend.AcquireReply{Status: backend.Granted, First: 1, Last: 1}

		go acquire()
		require.True(t, m.granted(<-s.acquires))
		s.replies <- granted
		synctest.Wait()

		go acquire()
		<-s.acquires
		s.replies <- backend.AcquireReply{Status: backend.Waiting, TTL: time.Minute}
		asked := time.Now()
		<-s.acquires
		assert.Equal(t, time.Second, time.Since(asked), "a copy is sent at the heartbeat, and not before")
		s.replies <- granted
		synctest.Wait()
	})
}
