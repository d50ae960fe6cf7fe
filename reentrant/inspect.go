package reentrant

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/exclusive"
)

// HoldCount returns how many times the caller's owner holds the lock; 0 if it does not.
func (l *Lock) HoldCount(ctx context.Context) int {
	owner, err := l.asker(ctx)
	if err != nil {
		return 0
	}
	return l.handle.HoldsOf(owner)
}

// IsHeldByCurrentOwner reports whether the caller's owner holds the lock, as far as this process can trust it. It
// sends nothing; see [Lock.Verify].
func (l *Lock) IsHeldByCurrentOwner(ctx context.Context) bool { return l.HoldCount(ctx) > 0 }

// Token returns the fencing token of the caller's hold. It returns ErrLost if the hold was lost and not yet unlocked,
// ErrNotHeld if there is none. It sends nothing.
func (l *Lock) Token(ctx context.Context) (Token, error) {
	h, err := l.currentHold(ctx)
	return h.Token, l.error("token", err)
}

// TrustedUntil returns the local time until which this process trusts the caller's hold: the end of its lease, less a
// margin for the clocks. Renewals extend it; [Lock.Lost] closes at that time. It is for work that needs time to stop. It
// returns [ErrNotHeld] or [ErrLost] as Token does.
func (l *Lock) TrustedUntil(ctx context.Context) (time.Time, error) {
	h, err := l.currentHold(ctx)
	return h.Lease.Until(), l.error("trusted until", err)
}

// currentHold returns the caller's hold.
func (l *Lock) currentHold(ctx context.Context) (h exclusive.Hold, err error) {
	owner, err := l.asker(ctx)
	if err != nil {
		return exclusive.Hold{}, err
	}
	return l.handle.OwnHold(owner)
}

// Verify asks Redis whether the caller's hold still exists: for use after a pause, before an access to the protected
// data. It returns nil if the hold exists, [ErrLost] if not (the hold then counts as lost), and [ErrNotHeld] if the
// caller has no hold. Any other error means that Redis refused or did not reply; it says nothing about the hold. If
// less is left of the lease than this process assumed, because a clock was stepped or another server took over,
// [Lock.TrustedUntil] comes earlier.
//
// While another goroutine of the same owner is in [Condition.Await], which gives the hold up, or in [Lock.Resume], which
// moves it, Verify asks again until that is settled.
//
// The hold can end the moment Verify returns; only a resource that checks the [Token] is safe from that.
func (l *Lock) Verify(ctx context.Context) error {
	var h exclusive.Hold
	return l.session.core.Repeat(ctx, core.Policy{
		Plain: true,
		Stop: func(last error) (err error) {
			h, err = l.currentHold(ctx)
			if err == nil && last != nil && ctx.Err() != nil {
				err = core.InterruptedBy(ctx, "while the hold was given up or moved", nil)
			}
			return l.error("verify", err)
		},
	}, func(ctx context.Context, c core.Copy) error {
		st, err := l.inspect(ctx, "verify", l.session.core.Ask)
		same := st.Locked && st.Session == l.session.core.ID && st.Epoch == h.Epoch
		switch {
		case err != nil:
			return core.Final(err)
		case same && check.Same(h.First, st.First):
			l.handle.Shorten(h.Epoch, c.Sent, st.TTL)
			return nil
		case l.handle.LoseIfCurrent(h.Epoch, same):
			return core.Final(l.error("verify", ErrLost))
		}
		return core.ErrUnsettled
	})
}

// IsFair reports whether owners get the lock in the order of their arrival ([WithFairness]).
func (l *Lock) IsFair() bool { return !l.handle.Unfair }

// HasQueuedOwners reports whether any owner of this process waits for the lock.
func (l *Lock) HasQueuedOwners() bool { return l.QueueLength() > 0 }

// HasQueuedOwner reports whether an owner of this process waits for the lock.
func (l *Lock) HasQueuedOwner(o Owner) bool { return slices.Contains(l.QueuedOwners(), o) }

// QueueLength returns how many owners of this process wait for the lock, including the head that waits in Redis. An owner
// counts until its Lock returns. The result is a snapshot.
func (l *Lock) QueueLength() int {
	return l.handle.Queued()
}

// QueuedOwners returns the owners of this process that wait for the lock, longest first.
func (l *Lock) QueuedOwners() []Owner { return l.handle.WaitingOwners() }

// String names the lock and its holder in this process, in the form of ReentrantLock.toString: "[Unlocked]" or
// "[Locked by owner X]". A lock that another process holds is "[Unlocked]" here; see [Lock.Inspect].
func (l *Lock) String() string {
	state := "[Unlocked]"
	if h := l.session.locks.HoldOf(l.handle.Name); h.Owned() {
		state = fmt.Sprintf("[Locked by owner %v]", h.Owner)
	}
	return fmt.Sprintf("reentrant.Lock(%q)%s", l.handle.Name, state)
}

// IsLocked asks Redis whether any session of the deployment holds the lock. In a session that is closed or closing it
// returns [ErrClosed].
func (l *Lock) IsLocked(ctx context.Context) (bool, error) {
	st, err := l.inspect(ctx, "is locked", l.session.core.Command)
	return st.Locked, err
}

// Inspect asks Redis for the lock's state. ctx bounds it. In a session that is closed or closing it returns
// [ErrClosed].
func (l *Lock) Inspect(ctx context.Context) (State, error) {
	return l.inspect(ctx, "inspect", l.session.core.Command)
}

func (l *Lock) inspect(ctx context.Context, op string, send sender) (State, error) {
	var st State
	err := l.command(ctx, op, send, func(ctx context.Context) (err error) {
		if st, err = l.handle.Remote.Inspect(ctx); err == nil {
			err = check.State(&st)
		}
		return err
	})
	return st, err
}

// ForceUnlock takes the lock from its holder, in any process, and gives it to the next waiter. The holder
// learns of it at its next command or renewal at the latest: until then two owners may believe that they have the lock,
// and only tokens distinguish them. It reports whether the lock was held. If the name is in use as an RWLock or a Semaphore,
// it returns [ErrWrongKind]. In a session that is closed or closing it returns [ErrClosed], and does nothing. After an error
// with an unknown outcome, inspect the lock before you try again: a second call would take it from the next holder. The command
// of the first call can arrive late, and take the lock until the earlier of the deadline of ctx and the end of the command's
// time limit, which is a third of the lease, at most 2 s.
func (l *Lock) ForceUnlock(ctx context.Context) (bool, error) {
	var had bool
	err := l.command(ctx, "force unlock", l.session.core.Command, func(ctx context.Context) (err error) {
		notAfter, _ := ctx.Deadline()
		had, err = l.handle.Remote.ForceUnlock(ctx, notAfter)
		return err
	})
	return had, err
}

// command sends one command that belongs to no hold.
func (l *Lock) command(ctx context.Context, op string, send sender, command func(ctx context.Context) error) error {
	if l.invalid != nil {
		return l.error(op, l.invalid)
	}
	err := send(ctx, 1, command)
	return l.error(op, l.session.core.ExplainKind(ctx, l.handle.Remote, core.ALock, err))
}

// A sender calls command, which sends n commands that belong to no hold. It is [core.Session.Command] or, for an owner that
// asks about its hold, [core.Session.Ask]: such an owner may ask while the session is closing.
type sender func(ctx context.Context, n uint64, command func(ctx context.Context) error) error
