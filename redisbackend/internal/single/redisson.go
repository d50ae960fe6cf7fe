package single

import (
	"context"
	"sync"
	"time"

	"github.com/relock-go/relock/redisbackend/internal/clock"
	"github.com/relock-go/relock/redisbackend/internal/push"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// A redisson listens, for a session that waits, to the messages that Redisson's clients publish when they free a lock.
// They do not grant it, so the redisson offers the lock to the first waiter, of any session, as every waiting session
// does. The messages are hints: a waiter asks again at every heartbeat anyway.
//
//	acquire: waiting ── Want ── Opened ──┐
//	                            Received ─┴─▶ offer ─▶ granted, over the session's channel ── arrived
//
// Its methods do nothing for a session that has none.
type redisson struct {
	conn     *Conn
	channels *push.Channels
	ctx      context.Context // of the offers; ended by close
	cancel   context.CancelFunc
	offers   sync.WaitGroup

	mu    sync.Mutex         // taken under that of channels, and never the other way round
	locks map[string]*shared // by channel
}

// A shared is a lock that the session waits for, or waited for a short time ago. Its fields are redisson.mu's.
type shared struct {
	remote  *Remote
	waiting bool          // as far as this session knows
	heard   time.Duration // since clock.Started: when the last message came
	busy    bool          // an offer is under way
	again   bool          // and another is to follow it
}

const (
	// channelIdle is well above a heartbeat: a session that still waits has asked again by then.
	channelIdle = time.Minute
	// offerTimeout bounds one offer. The waiter's next heartbeat does the same.
	offerTimeout = 3 * time.Second
)

func newRedisson(c *Conn) *redisson {
	s := &redisson{conn: c, locks: make(map[string]*shared)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.channels = push.NewChannels(c.Deployment.Client, channelIdle, s)
	return s
}

// close waits for the goroutines.
func (s *redisson) close() {
	s.channels.Close()
	s.mu.Lock()
	s.cancel() // under the mutex: no offer begins after it
	s.mu.Unlock()
	s.offers.Wait()
}

// waits notes that an acquire, sent at that moment since clock.Started, has to wait. If a message has come since then,
// the lock may have been freed before the reply came.
func (s *redisson) waits(r *Remote, sent time.Duration) {
	if s == nil {
		return
	}
	channel := wire.RedissonChannel(r.Keys.Hold())
	s.mu.Lock()
	l := s.locks[channel]
	if l == nil {
		l = &shared{remote: r}
		s.locks[channel] = l
	}
	if !l.waiting && l.heard > sent {
		s.offer(l)
	}
	l.waiting = true
	s.mu.Unlock()
	s.channels.Want(channel)
}

// arrived notes that the session no longer waits for a lock.
func (s *redisson) arrived(hold string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.locks[wire.RedissonChannel(hold)]; l != nil {
		l.waiting = false
	}
}

// Opened implements push.ChannelListener.
func (s *redisson) Opened(channel string) { s.Received(channel) }

// Received implements push.ChannelListener.
func (s *redisson) Received(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.locks[channel]
	if l == nil {
		return
	}
	l.heard = clock.InstantOf(time.Now())
	if l.waiting {
		s.offer(l)
	}
}

// Closed implements push.ChannelListener.
func (s *redisson) Closed(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.locks, channel)
}

// offer begins an offer, or requests another one after the present one. s.mu is held.
func (s *redisson) offer(l *shared) {
	l.again = true
	if l.busy || s.ctx.Err() != nil {
		return
	}
	l.busy = true
	s.offers.Go(func() {
		for s.next(l) {
			s.send(l.remote)
		}
	})
}

// next reports whether an offer is to be sent.
func (s *redisson) next(l *shared) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.busy, l.again = l.again, false
	return l.busy
}

// send offers a free lock to the first waiter. Errors are ignored: the waiter asks again.
func (s *redisson) send(r *Remote) {
	ctx, cancel := context.WithTimeout(s.ctx, offerTimeout)
	defer cancel()
	args := [...]string{s.conn.Deployment.Channels}
	_, _ = r.Run(ctx, &s.conn.Deployment.scripts.Offer, r.Keys[:], args[:], 0)
}
