package reentrant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/share"
	"github.com/relock-go/relock/sharedqueue"
)

// ErrUpgrade is returned when an owner that has the read side of an RWLock asks for the write side: it would wait for
// itself, as in Java it does, for ever. Its holds are unchanged.
var ErrUpgrade = errors.New("the read lock is held: give it up before asking for the write lock")

// errVersionOfWriter is returned by Version to a writer.
var errVersionOfWriter = errors.New("a writer has no version: what it reads before it writes is not what comes after")

// An RWLock is a lock that many owners can read under at a time, or one write, in the whole deployment. It behaves like
// java.util.concurrent.locks.ReentrantReadWriteLock in its fair mode, with one difference: an owner that reads and asks
// to write gets [ErrUpgrade] at once. The reverse is allowed: a writer can take the read side and then give up the write
// side, and goes on reading without another writer in between.
//
// The readers of a session have one registration on the server: RLock and RUnlock send nothing while the session has it.
// It keeps it for a heartbeat after the last RUnlock, unless another session wants to write.
//
// Order is fair: sessions get in as their heads came, and the owners of a session first in, first out. An owner that reads
// can take the read side again also past a waiting writer.
//
// What Lock says about owners, contexts, errors and the loss of a hold is true of an RWLock too, for both sides. Unlock and
// RUnlock send nothing themselves: what no owner of the session needs any more is given back in the background, and
// expires with the lease if that fails. The name must not be that of a Lock or a Semaphore: calls that find out return
// [ErrWrongKind], and change nothing.
//
// The write side has conditions: see [RWLock.NewCondition].
//
// An RWLock is a handle. Equal names of one session share one queue and one registration. It is safe for concurrent use
// and must not be copied. It does not take part in [WithDeadlockDetection].
type RWLock struct{ sharedName }

// NewRWLock returns the read-write lock with a name. It sends nothing; a name that the backend refuses, an option that
// read-write locks do not have (any of today's: they are fair, and their lease is renewed) and a backend without shared
// holds ([errors.ErrUnsupported]) are the error of every call.
func (s *Session) NewRWLock(name string, opts ...LockOption) *RWLock {
	l := &RWLock{sharedName{session: s, name: name, kind: backend.ReadWrite}}
	l.bind(opts)
	return l
}

// Name is the lock's name.
func (l *RWLock) Name() string { return l.name }

// Lock takes the write side, waiting in turn for as long as ctx lasts. An owner that writes takes it once more. It returns
// [ErrUpgrade] if the owner only reads, and otherwise what [Lock.Lock] returns.
func (l *RWLock) Lock(ctx context.Context) error {
	_, _, err := l.acquire(ctx, sharedqueue.Write, try{op: "lock", waits: true})
	return err
}

// TryLock takes the write side if no other owner has either side or waits, with one attempt. It returns false and no error
// if another has it; an error if the server could not be asked, and [ErrUpgrade].
func (l *RWLock) TryLock(ctx context.Context) (bool, error) {
	_, ok, err := l.acquire(ctx, sharedqueue.Write, try{op: "try lock"})
	return ok, err
}

// TryLockFor takes the write side if its turn comes within wait. With a wait of zero or less it is TryLock. However short the
// wait, the server is asked once if it has to be, for an eighth of a command's time at least.
func (l *RWLock) TryLockFor(ctx context.Context, wait time.Duration) (bool, error) {
	_, ok, err := l.acquireFor(ctx, sharedqueue.Write, "try lock", wait)
	return ok, err
}

// RLock takes the read side, waiting in turn for as long as ctx lasts. An owner that reads or writes takes it at once. Its
// errors are those of [Lock.Lock].
func (l *RWLock) RLock(ctx context.Context) error {
	_, _, err := l.read(ctx, try{op: "rlock", waits: true})
	return err
}

// TryRLock takes the read side if no other owner writes or waits, with one attempt. It returns false and no error if the
// lock is another's; an error if the server could not be asked.
func (l *RWLock) TryRLock(ctx context.Context) (bool, error) {
	_, ok, err := l.read(ctx, try{op: "try rlock"})
	return ok, err
}

// TryRLockFor takes the read side if its turn comes within wait. With a wait of zero or less it is TryRLock. However short the
// wait, the server is asked once, as in TryLockFor.
func (l *RWLock) TryRLockFor(ctx context.Context, wait time.Duration) (bool, error) {
	_, ok, err := l.acquireFor(ctx, sharedqueue.Read, "try rlock", wait)
	return ok, err
}

// Unlock gives up one hold of the write side. It works under a ctx that has ended. It returns [ErrNotHeld] if the caller's
// owner does not have it, and [ErrLost] if it had it and lost it on the way. It sends nothing.
func (l *RWLock) Unlock(ctx context.Context) error {
	return l.exit(ctx, "unlock", writeSide, func(q *rwTier, owner Owner) (int, bool, bool) { return q.ExitWrite(owner) })
}

// RUnlock gives up one hold of the read side. It works under a ctx that has ended. It returns [ErrNotHeld] if the caller's
// owner does not have it, and [ErrLost] if it had it and lost it on the way. It sends nothing.
func (l *RWLock) RUnlock(ctx context.Context) error {
	if l.leaveAtOnce(ctx) {
		return nil
	}
	return l.exit(ctx, "runlock", readSide, func(q *rwTier, owner Owner) (int, bool, bool) { return q.ExitRead(owner) })
}

// read takes the read side.
func (l *RWLock) read(ctx context.Context, t try) (g rwGrant, ok bool, err error) {
	if g, ok = l.readAtOnce(ctx); ok {
		return g, true, nil
	}
	return l.acquire(ctx, sharedqueue.Read, t)
}

// readAtOnce takes the read side if the session has units for it, and no observer is to be told.
func (l *RWLock) readAtOnce(ctx context.Context) (g rwGrant, ok bool) {
	n := l.latest.Load()
	if n == nil || ctx == nil || l.session.reporting || ctx.Err() != nil {
		return g, false
	}
	owner := CurrentOwner(ctx)
	if owner.shared() && owner.check() != nil || l.session.config.explicit && !owner.shared() {
		return g, false
	}
	o, life, look := n.Tier().(*rwTier).TryRead(owner)
	if look {
		n.Wake()
	}
	return rwGrant{n, life}, o == sharedqueue.Admitted || o == sharedqueue.Reentered
}

// leaveAtOnce gives up the read side if the caller has it, and no observer is to be told.
func (l *RWLock) leaveAtOnce(ctx context.Context) bool {
	n := l.latest.Load()
	if n == nil || ctx == nil || l.session.reporting {
		return false
	}
	n.Check()
	_, ok, look := n.Tier().(*rwTier).ExitRead(CurrentOwner(ctx))
	if look {
		n.Wake()
	}
	return ok
}

// acquireFor is acquire with a time limit.
func (l *RWLock) acquireFor(ctx context.Context, side sharedqueue.Mode, op string, wait time.Duration) (rwGrant, bool, error) {
	t := try{op: op, waits: wait > 0}
	if t.waits {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		t.timeout = timer.C
	}
	return l.acquire(ctx, side, t)
}

// acquire is every way to take a side.
func (l *RWLock) acquire(ctx context.Context, side sharedqueue.Mode, t try) (g rwGrant, ok bool, err error) {
	t.begun = l.session.now()
	g, ok, err = l.take(ctx, side, t)
	err = l.error(t.op, l.explainKind(ctx, err))
	l.reportTaken(ctx, side, t, ok, err)
	return g, ok, err
}

// take checks the call, and goes through the local queue.
func (l *RWLock) take(ctx context.Context, side sharedqueue.Mode, t try) (g rwGrant, ok bool, err error) {
	owner, err := l.caller(ctx)
	if err == nil && ctx.Err() != nil {
		err = interruptedBy(ctx, "before the call", nil)
	}
	if err != nil {
		return g, false, err
	}
	n, err := l.join(l.newTier)
	if err != nil {
		return g, false, err
	}
	defer n.Leave()
	n.Check()
	if owner.shared() {
		side |= sharedqueue.Shared
	}
	life, ok, err := passQueue(ctx, &l.sharedName, n, n.Tier().(*rwTier), owner, side, t)
	return rwGrant{n, life}, ok, err
}

// exit gives up a hold of one side.
func (l *RWLock) exit(ctx context.Context, op string, side side, leave func(*rwTier, Owner) (int, bool, bool)) error {
	owner, err := l.caller(ctx)
	if err != nil {
		return l.error(op, err)
	}
	if n := l.find(); n != nil {
		n.Check()
		q := n.Tier().(*rwTier)
		token := q.tokenOf(owner, side)
		left, ok, look := leave(q, owner)
		if look {
			n.Wake()
		}
		if ok {
			if left == 0 && l.session.reporting {
				l.session.report(ctx, Event{Kind: EventReleased, Lock: l.name, Mode: side.mode(), Owner: owner, Token: token})
			}
			return nil
		}
		q.mu.Lock() // a loss is on record before the mutex is free
		defer q.mu.Unlock()
	}
	if l.session.lostHolds.TakeOwed(side.debt(l.name), owner) {
		return l.error(op, ErrLost)
	}
	return l.error(op, ErrNotHeld)
}

// reportTaken reports how a call ended that asked for a side.
func (l *RWLock) reportTaken(ctx context.Context, side sharedqueue.Mode, t try, ok bool, err error) {
	if !l.session.reporting {
		return
	}
	if ctx == nil {
		ctx = context.Background()
	}
	e := Event{Kind: EventAcquired, Lock: l.name, Owner: CurrentOwner(ctx), Wait: time.Since(t.begun), Err: err, Mode: ModeRead}
	if side == sharedqueue.Write {
		e.Mode = ModeWrite
	}
	if !ok {
		e.Kind = EventFailed
	} else if n := l.find(); n != nil {
		reads, writes, token := n.Tier().(*rwTier).Holds(e.Owner)
		if e.Token = Token(token); reads+writes > 1 {
			e.Kind = EventReentered
		}
	}
	l.session.report(ctx, e)
}

// A side is one of the two sides of a read-write lock.
type side string

const (
	readSide  side = "read"
	writeSide side = "write"
)

// debt is the name under which losses of the side are on record. No lock has a name like it.
func (s side) debt(name string) string { return "\x00" + string(s) + "\x00" + name }

// mode is what events say of the side.
func (s side) mode() Mode {
	if s == writeSide {
		return ModeWrite
	}
	return ModeRead
}

// An rwTier is the local tier of a read-write lock.
type rwTier struct {
	*sharedqueue.RW[Owner]
	alarm
}

func (l *RWLock) newTier() share.Tier {
	s := l.session.session
	return &rwTier{RW: sharedqueue.NewRW(s.sinceOpened, Owner.key, numbered), alarm: alarm{s: s, name: l.name}}
}

// Keep takes what is not kept out of use.
func (q *rwTier) Keep(units int) (int, Token) {
	kept, used := q.RW.Keep(units)
	return kept, Token(used)
}

// Lose takes all holds from their owners, and puts on record how many Unlocks they owe.
func (q *rwTier) Lose(why string) (tell func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	writer, writes := q.Writer()
	_, _, token := q.Holds(writer)
	for _, x := range q.RW.Lose() {
		if x.Reads > 0 {
			q.s.lostHolds.Add(readSide.debt(q.name), x.Owner, x.Reads)
		}
		lost, mode := Token(0), ModeRead
		if x.Writes > 0 {
			mode = ModeWrite
			q.s.lostHolds.Add(writeSide.debt(q.name), x.Owner, x.Writes)
			if writes && writer == x.Owner {
				lost = Token(token)
			}
		}
		q.report(x.Owner, mode, lost, why)
	}
	return q.tripLocked()
}

// tokenOf is the token of a writer that is about to leave, for its event.
func (q *rwTier) tokenOf(owner Owner, side side) Token {
	if !q.s.reporting || side == readSide {
		return 0
	}
	_, _, token := q.Holds(owner)
	return Token(token)
}

// Do runs fn while holding the write side, as [Lock.Do] does.
func (l *RWLock) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	g, _, err := l.acquire(ctx, sharedqueue.Write, try{op: "lock", waits: true})
	if err != nil {
		return err
	}
	return l.run(ctx, g, fn, l.Unlock)
}

// RDo runs fn while holding the read side, as [Lock.Do] does.
func (l *RWLock) RDo(ctx context.Context, fn func(ctx context.Context) error) error {
	g, _, err := l.read(ctx, try{op: "rlock", waits: true})
	if err != nil {
		return err
	}
	return l.run(ctx, g, fn, l.RUnlock)
}

// run calls fn with the hold that the caller got, and gives that up.
func (l *RWLock) run(ctx context.Context, g rwGrant, fn func(ctx context.Context) error, unlock func(context.Context) error) (err error) {
	within, stop := until(ctx, g.signal(CurrentOwner(ctx)))
	defer func() {
		stop()
		err = errors.Join(err, unlock(ctx))
	}()
	return l.session.call(within, l.name, fn)
}

// An rwGrant is what one call got: a hold of one side. It remembers the life of that hold: another goroutine of the same owner
// may have a new one by the time this one goes on.
type rwGrant struct {
	name *share.Name
	life uint64
}

// signal is what tells of the loss of the hold, nil if it is lost already.
func (g rwGrant) signal(owner Owner) *lossNotifier {
	g.name.Check()
	q := g.name.Tier().(*rwTier)
	q.mu.Lock()
	defer q.mu.Unlock()
	if reads, writes, _ := q.Holds(owner); reads+writes == 0 || q.Life() != g.life {
		return nil
	}
	return q.signalLocked()
}

// signal is what tells of the loss of the caller's holds, nil if it has none.
func (l *RWLock) signal(ctx context.Context) *lossNotifier {
	owner, err := l.caller(ctx)
	n := l.find()
	if err != nil || n == nil {
		return nil
	}
	n.Check()
	q := n.Tier().(*rwTier)
	q.mu.Lock()
	defer q.mu.Unlock()
	if reads, writes, _ := q.Holds(owner); reads+writes == 0 {
		return nil
	}
	return q.signalLocked()
}

// Lost returns a channel that is closed when the caller's holds, of either side, are lost, as [Lock.Lost] does.
func (l *RWLock) Lost(ctx context.Context) <-chan struct{} {
	if sig := l.signal(ctx); sig != nil {
		return sig.lost
	}
	return alreadyLost
}

// Locker returns the write side as a sync.Locker for the owner of ctx. Its methods panic with the error where Lock and
// Unlock return one.
func (l *RWLock) Locker(ctx context.Context) sync.Locker {
	return sides{ctx, l.Lock, l.Unlock}
}

// RLocker returns the read side as a sync.Locker for the owner of ctx. Its methods panic with the error where RLock and
// RUnlock return one.
func (l *RWLock) RLocker(ctx context.Context) sync.Locker {
	return sides{ctx, l.RLock, l.RUnlock}
}

type sides struct {
	ctx          context.Context
	lock, unlock func(context.Context) error
}

func (k sides) Lock()   { must(k.lock(k.ctx)) }
func (k sides) Unlock() { must(k.unlock(k.ctx)) }

// holds are what the caller has, as far as this process can trust it.
func (l *RWLock) holds(ctx context.Context) (reads, writes int, token Token, err error) {
	owner, err := l.caller(ctx)
	if err != nil {
		return 0, 0, 0, err
	}
	n := l.find()
	if n == nil {
		return 0, 0, 0, l.lostOr(owner, ErrNotHeld)
	}
	n.Check()
	q := n.Tier().(*rwTier)
	q.mu.Lock()
	defer q.mu.Unlock()
	reads, writes, t := q.Holds(owner)
	if reads+writes == 0 {
		err = l.lostOr(owner, ErrNotHeld)
	}
	return reads, writes, Token(t), err
}

// lostOr is ErrLost if the owner lost a hold that it has not given up yet, else another error.
func (l *RWLock) lostOr(owner Owner, other error) error {
	if l.session.lostHolds.IsOwed(writeSide.debt(l.name), owner) || l.session.lostHolds.IsOwed(readSide.debt(l.name), owner) {
		return ErrLost
	}
	return other
}

// Token is the fencing token of the caller's write hold. It returns [ErrLost] if that was lost and not yet unlocked, and
// [ErrNotHeld] if there is none. A reader has none: see [RWLock.Version]. It sends nothing.
func (l *RWLock) Token(ctx context.Context) (Token, error) {
	_, writes, token, err := l.holds(ctx)
	if err == nil && writes == 0 {
		err = ErrNotHeld
	}
	return token, l.error("token", err)
}

// Version identifies the last write before the caller's read hold: while two reads have the same version, nothing was
// written in between, in the whole deployment. What was cached under the first is still true. A later version is a higher
// number, and each is above the token of the write before it: a resource that remembers the highest of both refuses what
// a lost writer does late.
//
// It returns [ErrNotHeld] if the caller does not read, [ErrLost] if it has lost the read side, and an error for a writer,
// which has a [RWLock.Token]. It sends nothing.
func (l *RWLock) Version(ctx context.Context) (Token, error) {
	reads, writes, _, err := l.holds(ctx)
	switch {
	case err != nil:
	case writes > 0:
		err = errVersionOfWriter
	case reads == 0:
		err = ErrNotHeld
	default:
		return l.version(CurrentOwner(ctx))
	}
	return 0, l.error("version", err)
}

// version is the version of those who read now.
func (l *RWLock) version(owner Owner) (Token, error) {
	n := l.find()
	if n == nil {
		return 0, l.error("version", ErrNotHeld)
	}
	used, ok := n.Tier().(*rwTier).ReadToken(owner)
	if !ok {
		return 0, l.error("version", ErrNotHeld)
	}
	return Token(used) + 1, nil
}

// TrustedUntil is the local moment up to which this process believes in the caller's holds as things stand, as
// [Lock.TrustedUntil] is.
func (l *RWLock) TrustedUntil(ctx context.Context) (time.Time, error) {
	_, _, _, err := l.holds(ctx)
	n := l.find()
	if err == nil && n == nil {
		err = ErrNotHeld
	}
	if err != nil {
		return time.Time{}, l.error("trusted until", err)
	}
	return n.Until(), nil
}

// Verify asks the server whether the caller's holds are still there, as [Lock.Verify] does.
func (l *RWLock) Verify(ctx context.Context) error {
	return l.verify(ctx, func() error {
		_, _, _, err := l.holds(ctx)
		return err
	})
}

// HoldCount is how often the caller's owner has the write side, 0 if it does not or has lost it. It sends nothing.
func (l *RWLock) HoldCount(ctx context.Context) int {
	_, writes, _, _ := l.holds(ctx)
	return writes
}

// IsHeldByCurrentOwner reports whether the caller's owner has the write side. It sends nothing.
func (l *RWLock) IsHeldByCurrentOwner(ctx context.Context) bool { return l.HoldCount(ctx) > 0 }

// ReadHoldCount is how often the caller's owner has the read side, 0 if it does not or has lost it. It sends nothing.
func (l *RWLock) ReadHoldCount(ctx context.Context) int {
	reads, _, _, _ := l.holds(ctx)
	return reads
}

// ReadLockCount is how many read holds the owners of this process have together.
func (l *RWLock) ReadLockCount() int {
	if n := l.find(); n != nil {
		return n.Tier().(*rwTier).Readers()
	}
	return 0
}

// IsWriteLocked asks the server whether a session of the deployment has the write side. Another session may have it for a
// moment longer than an owner there writes.
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
func (l *RWLock) writing() bool {
	n := l.find()
	if n == nil {
		return false
	}
	_, ok := n.Tier().(*rwTier).Writer()
	return ok
}

// Inspect asks the server which sessions have the lock, and which wait for it. Holders with [backend.AllUnits] have the
// write side, others the read side. ctx bounds it.
func (l *RWLock) Inspect(ctx context.Context) (SharedState, error) { return l.inspect(ctx, "inspect") }

// ForceUnlock takes both sides from all sessions that have one, and gives the lock to those who wait. It works as
// [Lock.ForceUnlock] does: the owners learn of their loss at the next command or renewal of their sessions at the latest, and
// until then only tokens and versions tell them from the next ones, and an Unlock returns nil. A session that keeps the read
// side after its last RUnlock loses that, too. It returns whether a session had a side. After an error with an unknown outcome
// look before trying again.
func (l *RWLock) ForceUnlock(ctx context.Context) (bool, error) { return l.force(ctx, "force unlock") }

// QueuedOwners are the owners of this process that wait for either side, longest first.
func (l *RWLock) QueuedOwners() []Owner {
	if n := l.find(); n != nil {
		_, _, all := n.Tier().(*rwTier).Waiters()
		return all
	}
	return nil
}

// QueueLength is how many owners of this process wait for either side.
func (l *RWLock) QueueLength() int { return len(l.QueuedOwners()) }

// HasQueuedOwners reports whether any owner of this process waits.
func (l *RWLock) HasQueuedOwners() bool { return l.QueueLength() > 0 }

// HasQueuedOwner reports whether an owner of this process waits for either side.
func (l *RWLock) HasQueuedOwner(o Owner) bool { return slices.Contains(l.QueuedOwners(), o) }

// String names the lock and who has it in this process, in the form of ReentrantReadWriteLock.toString.
func (l *RWLock) String() string {
	writes, reads := 0, 0
	if n := l.find(); n != nil {
		q := n.Tier().(*rwTier)
		owner, _ := q.Writer()
		_, writes, _ = q.Holds(owner)
		reads = q.Readers()
	}
	return fmt.Sprintf("reentrant.RWLock(%q)[Write locks = %d, Read locks = %d]", l.name, writes, reads)
}
