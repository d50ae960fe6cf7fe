package reentrant

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/tier"
)

// ErrUpgrade is returned when an owner that has the read side of an RWLock asks for the write side: it would wait for
// itself for ever, as it does in Java. Its holds are unchanged. Goroutines that share an owner ([WithOwner]) get it also if
// one of them asks for the write side while another waits for the read side.
var ErrUpgrade = tier.ErrUpgrade

// An RWLock is a read-write lock for the whole deployment: at a time either any number of owners hold its read side, or
// one owner holds its write side. It behaves like java.util.concurrent.locks.ReentrantReadWriteLock in its fair mode,
// with one difference: an owner that has the read side and asks for the write side gets [ErrUpgrade] at once. The
// reverse is allowed: a writer can take the read side and then give up the write side, and no other writer comes in
// between.
//
// The readers of a session share one registration on the server. RLock and RUnlock send nothing while the session has
// it. The session keeps it for a heartbeat after the last RUnlock, unless another session wants to write.
//
// The order is fair. Sessions get the lock in the order in which their heads came, and the owners of a session first
// in, first out. An owner that has the read side can take it again even while a writer waits.
//
// Owners, contexts, errors and the loss of a hold are as for a [Lock], for both sides. Unlock and RUnlock send nothing
// themselves: the session releases in the background what its owners no longer need. What it cannot release expires with the
// lease. So a process that is about to exit calls [Session.Close], which waits until the backend has the release. A
// process that exits without Close delays others by its lease, though its owners have unlocked everything: writers by a read
// side that the session kept for the heartbeat, readers and writers by a write side whose release was under way. A process
// that dies while an owner has a side delays others by its lease as well.
//
// In the backend both sides belong to the session, so neither can be moved to another session: there is no Resume, a portable
// owner ([WithPortableOwner]) is an owner like any other, and [WithPortableHoldsLeft] leaves none of its holds.
//
// The name must not be that of a Lock or a Semaphore: a call that the server refuses for that reason returns
// [ErrWrongKind], and changes nothing.
//
// The write side has conditions: see [RWLock.NewCondition].
//
// An RWLock is a handle. The RWLocks of one session that have equal names share one queue and one registration. It is
// safe for concurrent use and must not be copied. It does not take part in [WithDeadlockDetection].
type RWLock struct{ sharedName }

// NewRWLock returns the read-write lock with the given name. It sends nothing. If the backend refuses the name, or has
// no shared holds ([errors.ErrUnsupported]), every call on the RWLock returns the error. An option that is nil has the same
// effect, and so have [WithFixedLease], [WithAtLeast] and WithFairness(false), since a read-write lock is fair and its lease is
// renewed.
func (s *Session) NewRWLock(name string, opts ...LockOption) *RWLock {
	l := &RWLock{s.newSharedName(name, backend.ReadWrite)}
	l.bind(opts)
	return l
}

// Name returns the lock's name.
func (l *RWLock) Name() string { return l.handle.Name }

// tier returns the handle of the session's part in the lock.
func (l *RWLock) tier() tier.RWLock { return tier.RWLock{Handle: &l.handle} }

// Lock takes the write side. It waits for its turn until ctx ends. An owner that has the write side takes it again at
// once. Lock returns [ErrUpgrade] if the owner has only the read side; other errors are those of [Lock.Lock].
func (l *RWLock) Lock(ctx context.Context) error {
	_, _, err := l.acquire(ctx, ModeWrite, tier.Try{Op: "lock", Waits: true})
	return err
}

// TryLock takes the write side if no other owner has either side or waits. If other sessions are registered, the server
// asks them whether their owners use the lock: TryLock returns when they have replied, two round trips in all, three if
// such a session has a command under way. If one does not reply, the server is asked once more, after a heartbeat. TryLock
// returns false and a nil error if another owner has the lock or waits, [ErrUpgrade] if the caller's owner has only the read
// side, and an error if the server could not be asked.
func (l *RWLock) TryLock(ctx context.Context) (bool, error) {
	_, ok, err := l.acquire(ctx, ModeWrite, tier.Try{Op: "try lock"})
	return ok, err
}

// TryLockFor takes the write side if its turn comes within wait. When the time is up it returns false, with a nil error
// if another owner has the lock or waits, and with an error if the server has not replied. With a wait of zero or less
// it is TryLock. However short the wait, TryLockFor asks the server once, if it must, and waits for the reply for at
// least an eighth of a command's time limit. A caller that stands in line when the time is up asks once more in the same way,
// since the message with its grant may be lost.
func (l *RWLock) TryLockFor(ctx context.Context, wait time.Duration) (bool, error) {
	_, ok, err := l.acquire(ctx, ModeWrite, tier.TryFor("try lock", wait))
	return ok, err
}

// RLock takes the read side. It waits for its turn until ctx ends. An owner that has either side takes it at once.
// Errors are those of [Lock.Lock].
func (l *RWLock) RLock(ctx context.Context) error {
	_, _, err := l.read(ctx, tier.Try{Op: "rlock", Waits: true})
	return err
}

// TryRLock takes the read side if no other owner has the write side or waits. It asks other sessions as TryLock does.
// It returns false and a nil error if another owner has the write side or waits, and an error if the server could not
// be asked.
func (l *RWLock) TryRLock(ctx context.Context) (bool, error) {
	_, ok, err := l.read(ctx, tier.Try{Op: "try rlock"})
	return ok, err
}

// TryRLockFor takes the read side if its turn comes within wait. When the time is up it returns false, and nil or an error as
// [RWLock.TryLockFor] does. With a wait of zero or less it is TryRLock. However short the wait, it asks the server once, as
// TryLockFor does.
func (l *RWLock) TryRLockFor(ctx context.Context, wait time.Duration) (bool, error) {
	_, ok, err := l.acquire(ctx, ModeRead, tier.TryFor("try rlock", wait))
	return ok, err
}

// Unlock gives up one hold of the write side. It works under a ctx that has ended. It returns [ErrNotHeld] if the
// caller's owner does not have the write side, and [ErrLost] if the owner had it and lost it. It sends nothing.
func (l *RWLock) Unlock(ctx context.Context) error {
	return l.exit(ctx, "unlock", ModeWrite)
}

// RUnlock gives up one hold of the read side. It works under a ctx that has ended. It returns [ErrNotHeld] if the
// caller's owner does not have the read side, and [ErrLost] if the owner had it and lost it. It sends nothing.
func (l *RWLock) RUnlock(ctx context.Context) error {
	if l.runlockFast(ctx) {
		return nil
	}
	return l.exit(ctx, "runlock", ModeRead)
}

// read takes the read side.
func (l *RWLock) read(ctx context.Context, t tier.Try) (g tier.Grant, ok bool, err error) {
	if g, ok = l.readFast(ctx); ok {
		return g, true, nil
	}
	return l.acquire(ctx, ModeRead, t)
}

// readFast takes the read side if the session has units for it. It is only for sessions that report no events.
func (l *RWLock) readFast(ctx context.Context) (g tier.Grant, ok bool) {
	n := l.handle.Recent()
	if n == nil || ctx == nil || l.session.core.Reporting || ctx.Err() != nil {
		return g, false
	}
	owner := core.CurrentOwner(ctx)
	if core.IsShared(owner) && core.CheckOwner(owner) != nil || l.session.core.Config.Explicit && !core.IsShared(owner) {
		return g, false
	}
	return tier.TryRead(ctx, n, owner)
}

// runlockFast gives up the read side if the caller has it. It is only for sessions that report no events.
func (l *RWLock) runlockFast(ctx context.Context) bool {
	n := l.handle.Recent()
	return n != nil && ctx != nil && !l.session.core.Reporting && tier.ExitRead(n, core.CurrentOwner(ctx))
}

// acquire takes a side. It is the common part of the exported methods that do so.
func (l *RWLock) acquire(ctx context.Context, mode Mode, t tier.Try) (g tier.Grant, ok bool, err error) {
	t.Begun = l.session.core.Now()
	g, ok, err = l.take(ctx, mode, t)
	err = l.explainWait(ctx, t.Op, err)
	if !ok {
		l.reportFailed(ctx, mode, 0, t, err)
	}
	return g, ok, err
}

// take checks the call, and goes through the local queue.
func (l *RWLock) take(ctx context.Context, mode Mode, t tier.Try) (g tier.Grant, ok bool, err error) {
	owner, err := l.session.core.Admit(ctx, l.invalid)
	if err != nil {
		return g, false, err
	}
	return l.tier().Take(ctx, owner, mode, t)
}

// exit gives up a hold of one side.
func (l *RWLock) exit(ctx context.Context, op string, mode Mode) error {
	owner, err := l.session.core.Caller(ctx, l.invalid)
	if err == nil {
		err = l.tier().Exit(ctx, owner, mode)
	}
	return l.error(op, err)
}

// Do runs fn while holding the write side, as [Lock.Do] does for a Lock. As with Lock.Do, the goroutines that fn starts can ask
// about the holds of the owner that called Do, by [RWLock.Lost], [RWLock.Wanted], [RWLock.Token], [RWLock.Version],
// [RWLock.Verify], [RWLock.TrustedUntil], [RWLock.HoldCount], [RWLock.ReadHoldCount] and [RWLock.IsHeldByCurrentOwner].
func (l *RWLock) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	g, _, err := l.acquire(ctx, ModeWrite, tier.Try{Op: "lock", Waits: true})
	if err != nil {
		return err
	}
	return l.run(ctx, g, fn, l.Unlock)
}

// RDo runs fn while holding the read side, as [RWLock.Do] does with the write side.
func (l *RWLock) RDo(ctx context.Context, fn func(ctx context.Context) error) error {
	g, _, err := l.read(ctx, tier.Try{Op: "rlock", Waits: true})
	if err != nil {
		return err
	}
	return l.run(ctx, g, fn, l.RUnlock)
}

// run calls fn with the hold that the caller got, and then gives it up.
func (l *RWLock) run(ctx context.Context, g tier.Grant, fn func(ctx context.Context) error, unlock func(context.Context) error) (err error) {
	carried, end := core.Inside(ctx, l.bound())
	within, stop := core.UntilLost(carried, g.LossNotifier(core.CurrentOwner(ctx)))
	defer func() {
		stop()
		end()
		err = afterDo(ctx, within, err, unlock(ctx))
	}()
	return l.session.call(within, l.handle.Name, fn)
}

// Lost returns a channel that is closed when the caller's holds, of either side, are lost, as [Lock.Lost] does.
func (l *RWLock) Lost(ctx context.Context) <-chan struct{} {
	if owner, err := l.asker(ctx); err == nil {
		if notifier := l.tier().LossNotifier(owner); notifier != nil {
			return notifier.Lost
		}
	}
	return core.AlreadyLost
}

// Locker returns the write side as a sync.Locker for the owner of ctx. Its methods panic with the error where Lock and
// Unlock return one.
func (l *RWLock) Locker(ctx context.Context) sync.Locker { return locker{ctx, l.Lock, l.Unlock} }

// RLocker returns the read side as a sync.Locker for the owner of ctx. Its methods panic with the error where RLock and
// RUnlock return one.
func (l *RWLock) RLocker(ctx context.Context) sync.Locker { return locker{ctx, l.RLock, l.RUnlock} }

// holds returns the hold counts and the token of the owner that the caller asks about, as far as this process can trust the
// holds.
func (l *RWLock) holds(ctx context.Context) (reads, writes int, token Token, err error) {
	owner, err := l.asker(ctx)
	if err != nil {
		return 0, 0, 0, err
	}
	return l.tier().HoldsOf(owner)
}

// Token returns the fencing token of the caller's write hold. It returns [ErrLost] if the hold was lost and not yet
// unlocked, and [ErrNotHeld] if there is none. A reader has no token: see [RWLock.Version]. Token sends nothing.
func (l *RWLock) Token(ctx context.Context) (Token, error) {
	_, writes, token, err := l.holds(ctx)
	if err == nil && writes == 0 {
		err = ErrNotHeld
	}
	return token, l.error("token", err)
}

// Version identifies the last write before the caller's read hold. If two reads have the same version, no owner in the
// whole deployment had the write side in between, so what the first read is still true. Later versions are higher, and
// each is higher than the token of the write before it: a resource that remembers the highest token or version, and
// refuses lower tokens, is safe from the late writes of a writer that lost its hold.
//
// Version returns [ErrNotHeld] if the caller's owner does not have the read side, [ErrLost] if the owner has lost it, and
// another error if the owner has the write side: then use [RWLock.Token]. Version sends nothing.
func (l *RWLock) Version(ctx context.Context) (Token, error) {
	owner, err := l.asker(ctx)
	if err != nil {
		return 0, l.error("version", err)
	}
	version, err := l.tier().Version(owner)
	return version, l.error("version", err)
}

// TrustedUntil returns the local time until which this process trusts the caller's holds, as [Lock.TrustedUntil] does.
// Both sides and all owners of the session have one lease, so the result is the same for all of them. The lease is renewed
// for as long as an owner has a side, and may be older than the caller's hold. It returns [ErrNotHeld] or [ErrLost] if the
// caller has neither side. It sends nothing.
func (l *RWLock) TrustedUntil(ctx context.Context) (time.Time, error) {
	_, _, _, err := l.holds(ctx)
	n := l.handle.Find()
	if err == nil && n == nil {
		err = ErrNotHeld
	}
	if err != nil {
		return time.Time{}, l.error("trusted until", err)
	}
	return n.Until(), nil
}

// Verify asks the server whether the caller's holds still exist, as [Lock.Verify] does. Errors are the same. The server knows
// what the session has, not which of its owners has which side. So Verify asks whether the session still has all that it
// counts on: for its readers the read side, for a writer the whole lock. If not, all owners of the session have lost what they
// held. While the session asks for more or gives some back, Verify asks again until that is settled or ctx ends.
func (l *RWLock) Verify(ctx context.Context) error {
	return l.verify(ctx, func() error {
		_, _, _, err := l.holds(ctx)
		return err
	})
}

// HoldCount returns how many times the caller's owner holds the write side; 0 if it does not hold it, or has lost it.
// It sends nothing.
func (l *RWLock) HoldCount(ctx context.Context) int {
	_, writes, _, _ := l.holds(ctx)
	return writes
}

// IsHeldByCurrentOwner reports whether the caller's owner has the write side. It sends nothing.
func (l *RWLock) IsHeldByCurrentOwner(ctx context.Context) bool { return l.HoldCount(ctx) > 0 }

// ReadHoldCount returns how many times the caller's owner holds the read side; 0 if it does not hold it, or has lost
// it. It sends nothing.
func (l *RWLock) ReadHoldCount(ctx context.Context) int {
	reads, _, _, _ := l.holds(ctx)
	return reads
}

// ReadLockCount returns how many read holds the owners of this session have together.
func (l *RWLock) ReadLockCount() int {
	return l.tier().Readers()
}

// IsWriteLocked asks the server whether a session of the deployment has the write side. Another session may keep the write
// side for a moment after its owner's Unlock. If the name is in use as a Lock or a Semaphore, it returns [ErrWrongKind]. In a
// session that is closed or closing it returns [ErrClosed]. ctx bounds the call.
func (l *RWLock) IsWriteLocked(ctx context.Context) (bool, error) {
	st, err := l.inspect(ctx, "is write locked")
	for _, h := range st.Holders {
		if h.Units == backend.AllUnits && (h.Session != l.session.ID() || l.writing()) {
			return true, err
		}
	}
	return false, err
}

// writing reports whether an owner of this session writes.
func (l *RWLock) writing() bool { return l.tier().Writing() > 0 }

// Inspect asks the server which sessions have the lock and which wait for it. Holders with [backend.AllUnits] have the
// write side, others the read side. Errors are those of IsWriteLocked. ctx bounds the call.
func (l *RWLock) Inspect(ctx context.Context) (SharedState, error) { return l.inspect(ctx, "inspect") }

// ForceUnlock takes both sides from all sessions that have one, and gives the lock to the sessions that wait. It works
// as [Lock.ForceUnlock] does: the owners learn of their loss at the next command or renewal of their sessions at the
// latest. Until then only tokens and versions distinguish them from the next owners, and their Unlocks return nil. A
// session that keeps the read side after its last RUnlock loses that too. ForceUnlock reports whether a session had a
// side. In a session that is closed or closing it returns [ErrClosed], and does nothing. After an error with an unknown
// outcome, inspect the lock before you try again.
func (l *RWLock) ForceUnlock(ctx context.Context) (bool, error) { return l.force(ctx, "force unlock") }

// QueuedOwners returns the owners of this session that wait for either side, longest first.
func (l *RWLock) QueuedOwners() []Owner {
	return l.tier().Waiting()
}

// QueueLength returns how many owners of this session wait for either side.
func (l *RWLock) QueueLength() int { return len(l.QueuedOwners()) }

// HasQueuedOwners reports whether any owner of this session waits for either side.
func (l *RWLock) HasQueuedOwners() bool { return l.QueueLength() > 0 }

// HasQueuedOwner reports whether o waits for either side in this session.
func (l *RWLock) HasQueuedOwner(o Owner) bool { return slices.Contains(l.QueuedOwners(), o) }

// String returns the lock's name and its hold counts in this session, in the form of ReentrantReadWriteLock.toString.
func (l *RWLock) String() string {
	return fmt.Sprintf("reentrant.RWLock(%q)[Write locks = %d, Read locks = %d]", l.handle.Name, l.tier().Writing(), l.tier().Readers())
}
