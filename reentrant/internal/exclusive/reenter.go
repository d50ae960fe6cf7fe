package exclusive

import (
	"context"
	"fmt"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/localqueue"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive/machine"
)

// reenter takes the lock once more for its owner, or adds the holds that a wait for a condition gave up to those that the owner
// has. It returns false for a Fresh try, which wants a lock that the owner does not hold yet. It is called with the baton,
// which goes back to the owner, or to the next owner if the hold is lost meanwhile.
func (st *State) reenter(ctx context.Context, t *Try) (bool, error) {
	had := st.Queue.HoldCount(t.Owner)
	if t.Fresh {
		_ = st.finish(had, had, nil) // if the hold was lost, the owner's next call returns ErrLost
		return false, nil
	}
	until := t.Deadline
	if !t.Waits { // a try that does not wait sends its command only once
		until = time.Now()
	}
	has, more, err := had, max(t.Holds, 1), core.ErrTooManyHolds
	if has <= localqueue.MaxHolds-more {
		err = st.setRemoteHolds(ctx, t.Owner, has+more, until)
	}
	if err == nil {
		has += more
		st.shareNotifier(t.notifier)
		if t.Holds == 0 {
			st.s.core.Counts.Reentries.Add(1)
		}
	}
	if lost := st.finishAcquire(ctx, core.EventReentered, t, has, had, err); lost != nil {
		return false, lost
	}
	return err == nil, err
}

// setRemoteHolds sets the hold count in Redis. The command has the whole count, so a copy that arrives twice or late changes
// nothing, and if the command is lost, the next operation corrects the count. If until is not zero, no copy but the first is
// sent after that time. The caller has the baton.
func (st *State) setRemoteHolds(ctx context.Context, owner core.Owner, holds int, until time.Time) error {
	st.mu.Lock()
	if st.m.Hold().Cohort {
		if !st.trust("the lease ended while it was held") {
			return core.ErrLost
		}
		return nil
	}
	st.mu.Unlock()
	return st.operate(ctx, until, func(ctx context.Context, h machine.Hold[core.Owner]) (gone bool, err error) {
		req := backend.ReenterRequest{Epoch: h.Epoch, Owner: st.ownerField(owner), Op: h.Op, Holds: holds}
		if !h.Lease.Fixed() {
			req.Lease = h.Span
		}
		reply, err := st.remote.Reenter(ctx, req)
		if err == nil {
			err = check.Reenter(&reply)
		}
		return reply.Gone || !check.Same(h.First, reply.First), err
	})
}

// operate sends a command for the current hold, and sends it again after each failure that is no refusal, while the hold is
// trusted. If until is not zero, no copy but the first is sent after that time. Each operation has a number that rises within
// the epoch, so that Redis carries the operation out only once. If Redis no longer has the hold (gone), the hold is lost. The
// caller has the baton.
func (st *State) operate(ctx context.Context, until time.Time, command func(context.Context, machine.Hold[core.Owner]) (gone bool, err error)) error {
	st.mu.Lock()
	st.m.Operate()
	st.mu.Unlock()
	var h machine.Hold[core.Owner]
	gone := false
	err := st.s.core.Repeat(ctx, core.Policy{
		Until: until,
		Stop: func(last error) error {
			if last != nil && ctx.Err() != nil {
				return core.InterruptedBy(ctx, "while Redis was asked", last)
			}
			return st.stillTrusted(&h, last)
		},
		Limit: func(now time.Time) time.Time {
			limit := core.Earlier(now.Add(st.s.core.Config.CommandTimeout), h.Lease.Until())
			if until.After(now) {
				limit = core.Earlier(limit, core.Later(until, now.Add(st.s.core.Config.CommandTimeout/8)))
			}
			return limit
		},
		Shorten: func(pause time.Duration) time.Duration { return min(pause, max(h.Lease.Remaining(time.Now()), 0)) },
	}, func(call context.Context, _ core.Copy) (err error) {
		gone, err = command(call, h)
		return core.WrapUnavailable(ctx, err)
	})
	st.mu.Lock()
	st.carryOutLoss(st.m.Operated(err == nil, err == nil && gone))
	if err == nil && gone {
		err = core.ErrLost
	}
	return err
}

// stillTrusted brings h up to date, since the keeper may have renewed the hold, or found it lost. If the hold is not trusted
// any more, it is lost, and stillTrusted returns an error that wraps ErrLost and last. last is the error of the command that is
// being repeated, nil if there is none. The caller has the baton.
func (st *State) stillTrusted(h *machine.Hold[core.Owner], last error) error {
	st.mu.Lock()
	*h = st.m.Hold()
	switch {
	case st.trust("the lease ended while Redis was asked"):
		return nil
	case last != nil:
		return fmt.Errorf("%w: %w", core.ErrLost, last)
	}
	return core.ErrLost
}
