package redisson

import (
	"context"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/redisbackend/internal/clock"
	"github.com/relock-go/relock/redisbackend/internal/push"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// A Lock is one lock, as a session knows it.
type Lock interface {
	// Offer gives the lock, if it is free, to the first waiter of any session. Errors are ignored: the waiter asks again.
	Offer(ctx context.Context)
}

// A Listener listens, for a session that waits, to the messages that Redisson's clients publish when they free a lock.
// They do not grant it, so the listener offers the lock to the first waiter, of any session, as every waiting session
// does. The messages are hints: a waiter asks again at every heartbeat anyway.
//
//	acquire: waiting ── Want ── Opened ──┐
//	                            Received ─┴─▶ offer ─▶ granted, over the session's channel ── Arrived
//
// The methods of a nil Listener do nothing: a session has none unless Redisson's clients use the same locks.
type Listener struct {
	channels *push.Channels
	ctx      context.Context // of the offers; ended by Close
	cancel   context.CancelFunc
	offers   sync.WaitGroup

	mu    sync.Mutex         // taken under that of channels, and never the other way round
	locks map[string]*shared // by channel
}

// A shared is a lock that the session waits for, or waited for a short time ago. Its fields are Listener.mu's.
type shared struct {
	lock    Lock
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

// NewListener returns a listener that listens to no channel yet.
func NewListener(client rueidis.Client) *Listener {
	s := &Listener{locks: make(map[string]*shared)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.channels = push.NewChannels(client, channelIdle, s)
	return s
}

// Close ends the connection and the offers under way, and waits for their goroutines.
func (s *Listener) Close() {
	if s == nil {
		return
	}
	s.channels.Close()
	s.mu.Lock()
	s.cancel() // under the mutex: no offer begins after it
	s.mu.Unlock()
	s.offers.Wait()
}

// Waits notes that an attempt, sent at that moment since clock.Started, has to wait for the lock with that key. If a
// message has come since then, the lock may have been freed before the reply came.
func (s *Listener) Waits(hold string, lock Lock, sent time.Duration) {
	if s == nil {
		return
	}
	channel := wire.RedissonChannel(hold)
	s.mu.Lock()
	l := s.locks[channel]
	if l == nil {
		l = &shared{lock: lock}
		s.locks[channel] = l
	}
	if !l.waiting && l.heard > sent {
		s.offer(l)
	}
	l.waiting = true
	s.mu.Unlock()
	s.channels.Want(channel)
}

// Arrived notes that the session no longer waits for the lock with that key.
func (s *Listener) Arrived(hold string) {
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
func (s *Listener) Opened(channel string) { s.Received(channel) }

// Received implements push.ChannelListener.
func (s *Listener) Received(channel string) {
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
func (s *Listener) Closed(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.locks, channel)
}

// offer begins an offer, or requests another one after the present one. s.mu is held.
func (s *Listener) offer(l *shared) {
	l.again = true
	if l.busy || s.ctx.Err() != nil {
		return
	}
	l.busy = true
	s.offers.Go(func() {
		for s.next(l) {
			s.send(l.lock)
		}
	})
}

// next reports whether an offer is to be sent.
func (s *Listener) next(l *shared) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.busy, l.again = l.again, false
	return l.busy
}

// send makes one offer.
func (s *Listener) send(lock Lock) {
	ctx, cancel := context.WithTimeout(s.ctx, offerTimeout)
	defer cancel()
	lock.Offer(ctx)
}
