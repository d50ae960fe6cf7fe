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
// These clients do not grant the lock. So the listener of every waiting session offers the lock to the first waiter of any
// session. The messages are hints: a waiter asks again at every heartbeat anyway.
//
//	acquire: waiting ── Want ── Opened ──┐
//	                            Received ─┴─▶ offer ─▶ granted, over the session's channel ── Arrived
//
// Close, Waits and Arrived of a nil Listener do nothing: a session has no Listener unless Redisson's clients use its locks.
type Listener struct {
	channels *push.Channels
	ctx      context.Context // of the offers; ended by Close
	cancel   context.CancelFunc
	offers   sync.WaitGroup

	mu    sync.Mutex         // may be taken while the mutex of channels is held, never the other way round
	locks map[string]*shared // by channel
}

// A shared is a lock that the session waits for, or waited for a short time ago. Listener.mu guards its fields.
type shared struct {
	lock       Lock
	waiting    bool          // as far as this session knows
	heard      time.Duration // since clock.Started: when the last message came
	busy       bool          // an offer is under way
	offerAgain bool          // another offer is to follow it
}

const (
	// channelIdle is how long a channel stays open after it was last wanted. It is well above a heartbeat, at which a session
	// that still waits wants its channel again.
	channelIdle = time.Minute
	// offerTimeout bounds one offer. If an offer fails, the waiter gets the free lock at its next heartbeat.
	offerTimeout = 3 * time.Second
)

// NewListener returns a listener that listens to no channel yet.
func NewListener(client rueidis.Client) *Listener {
	l := &Listener{locks: make(map[string]*shared)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.channels = push.NewChannels(client, channelIdle, l)
	return l
}

// Close ends the connection and the offers under way, and waits for their goroutines.
func (l *Listener) Close() {
	if l == nil {
		return
	}
	l.channels.Close()
	l.mu.Lock()
	l.cancel() // under the mutex, so that no offer begins afterwards
	l.mu.Unlock()
	l.offers.Wait()
}

// Waits notes that an attempt has to wait for lock. hold is the lock's key, and sent the moment at which the attempt was sent,
// counted from clock.Started. If a message has come after that moment, the lock may be free already, and Waits offers it.
func (l *Listener) Waits(hold string, lock Lock, sent time.Duration) {
	if l == nil {
		return
	}
	channel := wire.RedissonChannel(hold)
	l.mu.Lock()
	sh := l.locks[channel]
	if sh == nil {
		sh = &shared{lock: lock}
		l.locks[channel] = sh
	}
	if !sh.waiting && sh.heard > sent {
		l.offer(sh)
	}
	sh.waiting = true
	l.mu.Unlock()
	l.channels.Want(channel)
}

// Arrived notes that the session no longer waits for the lock whose key is hold.
func (l *Listener) Arrived(hold string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if sh := l.locks[wire.RedissonChannel(hold)]; sh != nil {
		sh.waiting = false
	}
}

// Opened implements push.ChannelListener.
func (l *Listener) Opened(channel string) { l.Received(channel) }

// Received implements push.ChannelListener.
func (l *Listener) Received(channel string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sh := l.locks[channel]
	if sh == nil {
		return
	}
	sh.heard = clock.InstantOf(time.Now())
	if sh.waiting {
		l.offer(sh)
	}
}

// Closed implements push.ChannelListener.
func (l *Listener) Closed(channel string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.locks, channel)
}

// offer begins an offer; if one is under way, another follows it. The caller holds l.mu.
func (l *Listener) offer(sh *shared) {
	sh.offerAgain = true
	if sh.busy || l.ctx.Err() != nil {
		return
	}
	sh.busy = true
	l.offers.Go(func() {
		for l.next(sh) {
			l.send(sh.lock)
		}
	})
}

// next reports whether an offer is to be sent.
func (l *Listener) next(sh *shared) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	sh.busy, sh.offerAgain = sh.offerAgain, false
	return sh.busy
}

// send makes one offer.
func (l *Listener) send(lock Lock) {
	ctx, cancel := context.WithTimeout(l.ctx, offerTimeout)
	defer cancel()
	lock.Offer(ctx)
}
