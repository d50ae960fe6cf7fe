package redisbackend

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// A listener is told what comes over a channel: one call at a time, none after close has returned.
type listener interface {
	opened()                 // the subscription has been confirmed; whatever was said before is lost
	received(message string) // never called before opened
}

// A subscription listens to one channel for as long as it is open, over one connection after another. Each is taken
// from the client with Dedicate: subscribing on a connection that carries commands would make rueidis serve those
// in its slower, concurrent mode for good.
//
//	dedicate ── SUBSCRIBE ── confirmed: opened ── received, received … ── connection lost
//	    ▲            │ failed                                                │
//	    └─ pause ◀───┴───────────────────────────────────────────────────────┘
type subscription struct {
	client  rueidis.Client
	channel string

	ctx    context.Context // ended by close
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended

	mu       sync.Mutex // held while the listener is called: it never blocks
	listener listener   // nil while nothing may be told
}

const (
	// minRetry and maxRetry bound the pause before the channel is opened again. All sessions lose their channel
	// when a server restarts, so pauses are spread; while one lasts, waiters live on heartbeats.
	minRetry = 20 * time.Millisecond
	maxRetry = time.Second
	// subscribeTimeout bounds one try.
	subscribeTimeout = 5 * time.Second
)

// subscribe opens a channel. It returns when the subscription is confirmed, or with the error of the first try.
func subscribe(ctx context.Context, client rueidis.Client, channel string, l listener) (*subscription, error) {
	s := &subscription{client: client, channel: channel, done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	first := make(chan error, 1)
	go s.run(l, first)
	select {
	case err := <-first:
		if err != nil {
			s.close()
			return nil, fail(ctx, "subscribe", err)
		}
		return s, nil
	case <-ctx.Done():
		s.close()
		return nil, fail(ctx, "subscribe", ctx.Err())
	}
}

// close ends the subscription and waits for its goroutine.
func (s *subscription) close() {
	s.cancel()
	<-s.done
}

// run keeps the channel open. It tells first how the first try went, and ends if that failed.
func (s *subscription) run(l listener, first chan<- error) {
	defer close(s.done)
	failures := 0
	for s.ctx.Err() == nil {
		line, err := s.open(l)
		if first != nil {
			if first <- err; err != nil {
				return
			}
			first = nil
		}
		if err != nil {
			failures++
		} else {
			failures = 0
			line.wait(s.ctx)
			s.shut(line)
		}
		s.pause(failures)
	}
}

// pause waits before the next try: at least half of a time that doubles with each failure.
func (s *subscription) pause(failures int) {
	d := min(minRetry<<min(failures, 10), maxRetry)
	timer := time.NewTimer(d/2 + rand.N(d/2))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
	}
}

// A line is one connection with the channel open.
type line struct {
	client rueidis.DedicatedClient
	ended  <-chan error // closed when the connection is lost or given up
}

func (l line) wait(ctx context.Context) {
	select {
	case <-l.ended:
	case <-ctx.Done():
	}
}

// open takes a connection and subscribes. It returns with the subscription confirmed, or an error and nothing open.
func (s *subscription) open(l listener) (line, error) {
	client, err := dedicate(s.ctx, s.client)
	if err != nil {
		return line{}, err
	}
	confirmed := make(chan struct{})
	ended := client.SetPubSubHooks(rueidis.PubSubHooks{
		OnSubscription: func(sub rueidis.PubSubSubscription) {
			if sub.Kind == "subscribe" && sub.Channel == s.channel && s.enter(l) {
				close(confirmed)
			}
		},
		OnMessage: func(m rueidis.PubSubMessage) {
			if m.Channel == s.channel {
				s.deliver(m.Message)
			}
		},
	})
	opened := line{client: client, ended: ended}
	if err := s.request(opened, confirmed); err != nil {
		s.shut(opened)
		return line{}, err
	}
	return opened, nil
}

// request sends SUBSCRIBE and waits for the confirmation. It arrives at the hooks, and not only as an answer: with
// RESP2 rueidis subscribes on a second connection, and after an error on yet another one without the hooks.
func (s *subscription) request(l line, confirmed <-chan struct{}) error {
	select {
	case err := <-l.ended:
		return lost(err)
	default:
	}
	ctx, cancel := context.WithTimeout(s.ctx, subscribeTimeout)
	defer cancel()
	if err := l.client.Do(ctx, l.client.B().Subscribe().Channel(s.channel).Build()).Error(); err != nil {
		return err
	}
	select {
	case <-confirmed:
		return nil
	case err := <-l.ended:
		return lost(err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func lost(err error) error {
	if err == nil {
		return errors.New("the connection was lost")
	}
	return err
}

// shut ends a connection. After it the listener hears nothing more from it.
func (s *subscription) shut(l line) {
	s.leave()
	l.client.Close()
}

// enter begins to tell the listener; false if it had begun on this connection.
func (s *subscription) enter(l listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil || s.ctx.Err() != nil {
		return false
	}
	s.listener = l
	l.opened()
	return true
}

func (s *subscription) deliver(message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		s.listener.received(message)
	}
}

func (s *subscription) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener = nil
}

// dedicate takes a connection of the client. Dedicate itself knows no context: it dials, or waits for a place in the
// client's pool, for as long as that takes. If ctx ends first, the connection is closed when it comes.
func dedicate(ctx context.Context, client rueidis.Client) (rueidis.DedicatedClient, error) {
	taken := make(chan rueidis.DedicatedClient, 1)
	go func() {
		dedicated, _ := client.Dedicate() // given back by its Close
		taken <- dedicated
	}()
	select {
	case dedicated := <-taken:
		return dedicated, nil
	case <-ctx.Done():
		go func() { (<-taken).Close() }()
		return nil, ctx.Err()
	}
}
