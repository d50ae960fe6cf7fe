package faults

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/relock-go/relock/reentrant"
)

// Three sessions want a lock again and again, and each holder keeps it until it is notified that another session waits, while
// connections are killed and scripts flushed. Every holder is notified, although messages are lost, and although the request
// for notices uses the same connections. A waiter that is not reported would wait for ever.
func TestEveryWaiterIsReportedWhileConnectionsAreKilled(t *testing.T) {
	srv := server(t)
	c := client(t, srv.Addr())
	turns := int64(rounds(100))
	var sessions []*reentrant.Session
	for range 3 {
		sessions = append(sessions, session(t, srv.Addr(), enduring()...))
	}
	var s section
	nemesis, stop := context.WithCancel(t.Context())
	var nemeses, players sync.WaitGroup
	nemeses.Go(func() { disturb(nemesis, c, &s) })
	over := make(chan struct{}) // closed when each session has had the lock often enough
	var once sync.Once
	for _, session := range sessions {
		players.Go(func() {
			l := session.NewLock("wanted")
			for s.passed.Load() < turns && !t.Failed() {
				if !assert.NoError(t, l.Lock(t.Context())) {
					return
				}
				token, err := l.Token(t.Context())
				assert.NoError(t, err)
				s.run(token)
				if s.passed.Load() >= turns {
					once.Do(func() { close(over) })
				}
				told := true
				select {
				case <-l.Wanted(t.Context()):
				case <-over:
				case <-time.After(limit):
					told = false
				}
				_ = l.Unlock(t.Context()) // what Unlock cannot release now is released in the background
				if !assert.True(t, told, "the holder is notified that others wait") {
					once.Do(func() { close(over) })
					return
				}
			}
		})
	}
	players.Wait()
	stop()
	nemeses.Wait()
	s.verify(t)
}
