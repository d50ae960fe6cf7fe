package condition

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/core"
)

// A Monitor is a session's part in the conditions of one read-write lock. A backend has conditions for the holder of a
// lock, but a writer has units of a shared name instead. So a writer that takes a ticket or signals also takes a lock
// that goes with the name ([backend.ConditionsOf]), for that one command. That lock is not one of the session's Locks: the
// writer takes it while it has the write side, the session does not renew it, and no event reports it.
//
// When the server signals a session, it queues the session for that lock. The session does not need the place, and
// gives it back.
type Monitor struct {
	room       *Room
	remote     backend.Remote
	conditions backend.Conditions // remote, as a backend.Conditions
	turn       chan struct{}      // 1-buffered: a goroutine that has put a value in may use the lock
	grant      chan struct{}      // 1-buffered: the lock was granted to the epoch that asks
	refs       int                // guarded by Room.mu

	mu      sync.Mutex // taken before the locks of shared names and the workers' own
	epoch   uint64     // the epoch that asks for the lock or uses it, 0 if none does
	tickets Tickets
}

// A use says whether the session still has the lock of the conditions after the function given to withLock has used it.
type use int8

const (
	lockKept use = iota // the session still has it, as far as it knows
	lockLeft            // the command gave it up
	lockGone            // the server no longer had it, and did nothing
)

// withLock takes the lock of the conditions, calls f with its epoch, and gives the lock back in the background. If f
// returns lockGone, withLock does all this again. pendingUntil is the time after which no copy of the request for the lock
// is under way.
func (m *Monitor) withLock(ctx context.Context, owner core.Owner, f func(epoch uint64, pendingUntil time.Time) (use, error)) error {
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return core.InterruptedBy(ctx, "in this process's queue", nil)
	}
	defer func() { <-m.turn }()
	for try := 0; ; try++ {
		epoch, pendingUntil, err := m.acquire(ctx, owner)
		became := lockKept
		if err == nil {
			became, err = f(epoch, pendingUntil)
		}
		m.setEpoch(0)
		switch became {
		case lockKept:
			m.release(epoch, pendingUntil)
			return err
		case lockLeft:
			return err
		}
		core.Pause(ctx, core.RetryPause(try, m.room.core.Config.Heartbeat), nil)
	}
}

// lease returns the lease of the lock, which is as long as two commands may take: if the lock cannot be given back, others wait
// no longer than that.
func (m *Monitor) lease() time.Duration { return 2 * m.room.core.Config.CommandTimeout }

// grantTTL returns the lease of a grant of the lock, also of one that comes with a signal. A session that has died cannot give
// it back, and others must not wait for longer than a signal is tried.
func (m *Monitor) grantTTL() time.Duration { return min(m.room.core.Config.GrantTTL, m.lease()) }

// acquire asks for the lock until the session has it.
func (m *Monitor) acquire(ctx context.Context, owner core.Owner) (epoch uint64, pendingUntil time.Time, err error) {
	cfg := &m.room.core.Config
	req := backend.AcquireRequest{
		Epoch: m.nextEpoch(), Owner: owner.String(), Holds: 1, Lease: m.lease(), Queue: true, Barge: true, Tokens: 1,
		Seen: backend.Token(m.room.core.SeenToken.Load()), Patience: cfg.Patience, GrantTTL: m.grantTTL(),
	}
	for {
		var reply backend.AcquireReply
		err = m.room.core.Repeat(ctx, core.Policy{}, func(call context.Context, c core.Copy) (err error) {
			req.NotAfter, pendingUntil = c.Limit, c.Limit
			reply, err = m.remote.Acquire(call, req)
			if err == nil {
				err = check.Acquire(&reply)
			}
			return core.WrapUnavailable(ctx, err)
		})
		switch {
		case err != nil:
			return req.Epoch, pendingUntil, err
		case reply.Status == backend.Granted:
			return req.Epoch, pendingUntil, nil
		case reply.Status == backend.Stale:
			req.Epoch = m.nextEpoch()
		case !m.park(ctx, reply.TTL):
			return req.Epoch, pendingUntil, core.InterruptedBy(ctx, "waiting for the conditions", nil)
		}
	}
}

// nextEpoch returns a new epoch, which asks for the lock from here on.
func (m *Monitor) nextEpoch() uint64 {
	epoch := m.room.core.Epochs.Add(1)
	m.setEpoch(epoch)
	return epoch
}

// setEpoch sets the epoch whose grants are expected. Until the lock has been used, that is the epoch which asked for it: the
// message of its grant may come long after the reply, and must not give the lock back meanwhile.
func (m *Monitor) setEpoch(epoch uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch = epoch
	select {
	case <-m.grant: // of an earlier epoch
	default:
	}
}

// granted handles a grant of the lock to an epoch. It reports whether the monitor knows the epoch: as the one that
// asks for the lock or uses it, or as a ticket. A grant to a ticket means that the ticket was signalled. A grant to a later
// epoch than m.epoch is forged, and counts as known: giving it back would give back what m.epoch has.
func (m *Monitor) granted(epoch uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	used, t := m.epoch > 0 && epoch >= m.epoch, m.tickets.Find(epoch)
	if epoch == m.epoch {
		select {
		case m.grant <- struct{}{}: // sent with the mutex held, so that setEpoch takes it back before the next epoch
		default:
		}
	}
	if t != nil && !t.over {
		m.signalledLocked(epoch, true)
	}
	return used || t != nil
}

// park waits until the lock is granted, or it is time to ask again. It returns false if ctx ended first. ttl is the
// rest of the holder's lease, negative if that is not known.
func (m *Monitor) park(ctx context.Context, ttl time.Duration) bool {
	cfg := &m.room.core.Config
	wait := cfg.Heartbeat - cfg.Jitter(cfg.Heartbeat/8)
	if ttl >= 0 {
		wait = min(wait, ttl+time.Millisecond)
	}
	return core.Pause(ctx, wait, m.grant)
}

// release gives the lock, or a place in its queue, back in the background.
func (m *Monitor) release(epoch uint64, pendingUntil time.Time) {
	m.room.core.Cleaner.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), m.room.core.Config.ReleaseTime)
		defer cancel()
		err := m.room.core.Repeat(ctx, core.Policy{}, func(call context.Context, _ core.Copy) error {
			_, err := m.remote.Release(call, backend.ReleaseRequest{Epoch: epoch, Until: pendingUntil})
			return core.WrapUnavailable(ctx, err)
		})
		if err != nil {
			m.room.core.Log(slog.LevelWarn, "could not give back the lock of conditions; it expires", slog.String("lock", m.remote.Name()), slog.Any("error", err))
		}
	})
}
