package reentrant

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/lease"
)

// Defaults of the session's options.
const (
	DefaultLease     = 10 * time.Second
	DefaultHeartbeat = time.Second
	DefaultTurnTime  = 50 * time.Millisecond
)

// These are how many times a session hands a lock to its own goroutines before the turn of another process.
//
// Without a cohort each hand-over is one command, and the turn of another process costs a push and a wake-up as well.
// With 5 processes of 20 goroutines turns of 64 give a sixth more sections/s than turns of 32. The longest waits are half as
// long again as with turns of 32, and a fifteenth of those of a lock that polls. Longer turns give no more
// (docs/performance.md). WithTurn sets another number.
//
// In cohort mode a hand-over costs Redis nothing, so the cost of a turn is spread over more of them: 512. On a busy machine
// that gives a quarter more sections/s than 256, on an idle machine as many, with longest waits that are a fifth to seven
// tenths longer.
//
// A count says nothing about how long the sections are, so there are time limits too. With sections so long that a turn takes
// more than core.GenerationTime, the turn ends when each owner that was in the local queue when it began has had the lock
// once: other sessions do not wait longer than they would in one queue for all. A shorter turn would serve a part of these
// owners, and the rest would wait for all other sessions once more. DefaultTurnTime ends every turn.
const (
	registeredTurn = 64
	cohortTurn     = 512
)

// maxCohortTurn is the most hand-overs that a cohort's turn can have: the most tokens that an AcquireRequest can ask for,
// less one for the first owner.
const maxCohortTurn = 1<<16 - 1

// An Option sets a property of a session. Zero always means the default.
type Option func(*config)

type config = core.Config

// WithLease sets how long Redis keeps a lock whose session has gone silent, and so how long others wait after a
// crash. While the lock is held, the lease is renewed every third of its length. A shorter lease frees a dead holder's locks
// sooner, a longer one rides out longer outages. Default 10 s; at least 20 ms and more than twice the heartbeat, and at most
// ten years. A lock that is pushed to a waiter has a shorter lease until its first renewal: see [WithHeartbeat].
func WithLease(d time.Duration) Option { return func(c *config) { c.Lease = d } }

// WithHeartbeat sets how often a waiting session shows that it is alive. A session that was silent for three heartbeats
// is skipped. A waiter whose wake-up was lost waits for one heartbeat longer. A lock that is pushed to a waiting session
// has a lease of three heartbeats, or that of [WithLease] if it is less, until its first renewal, a third of a heartbeat
// later: a process that stops for longer just then loses it, however long the lease of [WithLease] is. At least 1 ms. Default
// 1 s, or a third of the lease if that is less.
func WithHeartbeat(d time.Duration) Option { return func(c *config) { c.Heartbeat = d } }

// WithTurn limits a session's turn: it may hand a lock from one of its owners to the next n times in a row, and for d,
// before another waiting session gets it. The limit that is reached first ends the turn. After 5 ms only owners that waited
// when the turn began get the lock. An n of 0 is the default, 64, or 512 with [WithCohort], which allows 65,535 at most.
// A d of 0 is the default, 50 ms but never more than a quarter of the lease; d must be less than half the lease.
func WithTurn(n int, d time.Duration) Option {
	return func(c *config) { c.Handoffs, c.HandoffTime = n, d }
}

// WithSpin sets how many times the head of a queue tries again at once before it parks. Default 0: a freed lock
// is pushed to the session that waits, so a try in between finds it free only while no session waits.
func WithSpin(n int) Option { return func(c *config) { c.Spin = n } }

// WithCohort makes the session, and not one of its owners, the holder of a lock in Redis ([backend.CohortOwner]): the owners of
// the session hand the lock to each other and re-enter it without a command, each with a fencing token of its own from a block
// that the session took. In return Redis, and so [Lock.Inspect], knows the session that holds a lock, but not the owner, the
// hold count and the note. Tokens may run up to five seconds ahead of Redis's clock, since a block can be used up faster than
// one token in a microsecond. So if Redis forgets the lock, the tokens of its first five seconds afterwards may be lower than
// those before; and the tokens that are left of the session's block may be lower than those of other sessions, until the
// session learns of the loss, within a third of the lease. Locks with a fixed lease are handed over in Redis all the same.
func WithCohort() Option { return func(c *config) { c.Cohort = true } }

// WithLinger lets the session keep a lock for at most d after its last owner's Unlock, in case the next owner is of this
// session too: a lock that no other process wants costs Redis next to nothing. Another session that wants the lock asks for
// it, and gets it immediately or, if that message is lost, within a heartbeat. A TryLock of another session asks for the
// lock, and asks again about a round trip later: it takes a lock that this session keeps idle, and otherwise returns false
// after two attempts. If commands take longer than a quarter of a heartbeat, it makes one attempt. Default: zero, which keeps
// no lock.
//
// The session begins to keep a lock when it has had the lock three times in a row while no other session waited, or more
// times if other sessions asked for the lock too soon when it was kept before. It keeps the lock for two heartbeats at most,
// before it asks Redis again. Should this process die while no owner has the lock, others wait for three heartbeats at most.
// An owner that takes a kept lock has a lease of three heartbeats at most too, until the first renewal, one and a half
// heartbeats after Redis was asked. While the session keeps a lock, and while an owner has a lock that was kept,
// [Lock.Inspect] shows the session and not the owner ([backend.LingeringOwner]), [Lock.IsLocked] returns true, and the tokens
// are of a block, as with [WithCohort]. Fixed leases, [WithAtLeast], portable owners and owners with a note get holds of their
// own. Nothing is kept where commands take longer than a quarter of a heartbeat. A lock of a quorum of masters is kept only
// with [WithAsyncUnlock].
//
// With [WithCohort] every lock is kept, for d and with the lease renewed: should this process die meanwhile, others wait for
// the lease.
func WithLinger(d time.Duration) Option { return func(c *config) { c.Linger = d } }

// WithAsyncUnlock makes the [Lock.Unlock] of a last hold return without waiting for Redis, and so [Lock.Do] and its kin: a
// goroutine of the session releases the lock. A section then costs one round trip instead of two. Unlocks of read-write locks
// and Releases of semaphores never wait for Redis.
//
// What Unlock promises changes. It still returns [ErrLost] if this process can no longer trust the hold's lease. After nil
// Redis may have the lock for a moment still, so that Inspect and other sessions see it, and until the lease ends if this
// process ends without [Session.Close]. What goes wrong later is in the Err of the [EventReleased], which comes when Redis has
// replied, and a warning in the log; a hold that Redis no longer had although its lease was not over is an [EventLost] too.
// The session goes on trying to release as it does without this option; it takes the lock anew only after that, and Close
// waits for it. A Lock call of this session that comes before the release is sent takes the hold over, as if it had waited,
// within a turn ([WithTurn]). A single goroutine that takes a new lock each time gains nothing if Redis is on the same
// machine. Default: Unlock waits for Redis.
func WithAsyncUnlock() Option { return func(c *config) { c.AsyncUnlock = true } }

// WithDeadlockDetection ends a Lock that would wait for ever with a [*DeadlockError]. It finds what Java's ThreadMXBean
// finds. Within the session it finds a cycle at once, and the error goes to the owner whose wait closes the cycle. Over
// several sessions, all of which must have this option, it finds cycles of up to 16 owners after three to six heartbeats,
// at the cost of a few commands per heartbeat while an owner that holds a lock waits; one of the owners gets the error.
//
// It looks at locks, not at read-write locks and semaphores.
//
// It does not look at waits with a time limit (TryLockFor, TryAnyFor), at waits for conditions or for the lock on the way
// back from [Condition.Await], nor at holds with a fixed lease, which end by themselves. It does look at a Lock whose ctx has a
// deadline: such a wait would end too, but the caller learns of the deadlock sooner than at the deadline. Goroutines that
// share an owner count as one: if one of them waits, the owner waits.
func WithDeadlockDetection() Option { return func(c *config) { c.Deadlocks = true } }

// WithPortableHoldsLeft makes [Session.Close] leave the holds of portable owners ([WithPortableOwner]) in the backend
// when its context ends, instead of giving them up. Another session can take them up with [Lock.Resume], with their
// hold counts and tokens, for as long as their leases last: nothing renews them meanwhile. Close a session with a
// context that has ended to leave them at once. Sides of an [RWLock] and permits of a [Semaphore] belong to the session, and
// are never left. Default: portable holds are given up like the others.
func WithPortableHoldsLeft() Option { return func(c *config) { c.LeavesPortable = true } }

// WithProfilerLabels makes Do, TryDo and TryDoFor, and for the read side of an RWLock RDo, TryRDo and TryRDoFor, run their
// functions with the label relock.lock (see [runtime/pprof.Do]), whose value is the name of the lock, or for [MultiLock.Do]
// "NAME and N more": profiles of the processor and of goroutines then show the work under each lock separately. Goroutines
// that the function starts have the label too. Default: no label, which costs nothing.
func WithProfilerLabels() Option { return func(c *config) { c.Profiled = true } }

// WithExplicitOwners makes the session refuse calls whose context carries no owner ([WithOwner]) with ErrNoOwner,
// and skips the check of goroutine ids.
func WithExplicitOwners() Option { return func(c *config) { c.Explicit = true } }

// WithName names the session. Its id begins with the name, so people see the name wherever they see the session: in
// [Lock.Inspect] and the relock command, in log lines, errors and deadlock reports. Letters, digits, hyphens, underscores and
// dots stay, all else becomes a hyphen, and the name is cut after 48 bytes. Sessions may have the same name; with the host in
// it, people know which of many processes it is. Default: the host's name and the process id, as in web-4711.
//
// CLIENT LIST shows connections, whose names the client sets: redisbackend.Open takes client_name from the URL, as in
// redis://localhost:6379?client_name=billing, and gives host and process id without it; for a client of your own set
// rueidis.ClientOption.ClientName.
func WithName(name string) Option { return func(c *config) { c.Name = name } }

// WithLogger sets the logger for events that concern an operator: locks lost (as errors; as information if a fixed lease
// ended, or a hold is left to be resumed), renewals failing and recovered, for each lock the beginning of an outage and its
// end with counts, waits longer than a lease with the holder (in this process's queue too), locks left behind, settings of
// the server that endanger locks ([backend.Adviser]), and sessions and Locks that were dropped while they held
// something, when they are garbage-collected (as warnings; no hold is taken away: its owner may be at work); at the
// level of debugging, if that is enabled when the session is opened, every event of an [Observer]. Records are written
// in order, in a goroutine of their own. While a handler hangs, a thousand records wait for it; later ones are dropped. A
// handler that panics costs the record. records_dropped in the next one says how many are missing. Default: no logger.
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.Logger = l } }

// WithObserver sets an observer of the session's locks, which is called in order and in a goroutine of its own.
// Default: none, which costs nothing.
func WithObserver(o Observer) Option { return func(c *config) { c.Observer = o } }

// WithAfterClose makes the session call f once, when it has ended and needs its backend no more: to close a backend, or the
// client below it, that only this session uses. f is called before [Session.Close] returns, unless the session ends in the
// background, because the context of Close ended first. With several such options each f is called, in the order given. No f
// is called if NewSession fails. Default: nothing is called.
func WithAfterClose(f func()) Option {
	return func(c *config) {
		if f != nil {
			c.AfterClose = append(c.AfterClose, f)
		}
	}
}

// newConfig applies the options, and checks each of them and their relations.
func newConfig(opts []Option) (config, error) {
	c := config{Jitter: rand.N[time.Duration], Ahead: lease.Ahead}
	for i, opt := range opts {
		if opt == nil {
			return c, fmt.Errorf("reentrant: NewSession: option %d is nil", i+1)
		}
		opt(&c)
	}
	if err := errors.Join(
		notNegative("WithLease", c.Lease), notNegative("WithHeartbeat", c.Heartbeat),
		notNegative("WithTurn", c.Handoffs), notNegative("WithTurn", c.HandoffTime),
		notNegative("WithSpin", c.Spin), notNegative("WithLinger", c.Linger)); err != nil {
		return c, err
	}
	c.Name = backend.PlainName(cmp.Or(c.Name, backend.ProcessName()))
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	c.Heartbeat = cmp.Or(c.Heartbeat, min(DefaultHeartbeat, c.Lease/3))
	c.Patience, c.GrantTTL = 3*c.Heartbeat, max(2*c.Heartbeat, min(3*c.Heartbeat, c.Lease))
	c.CommandTimeout = min(c.Lease/3, 2*time.Second)
	c.ReleaseTime = core.ReleaseTries * c.CommandTimeout // no more than a lease
	c.HandoffTime = cmp.Or(c.HandoffTime, min(DefaultTurnTime, c.Lease/4))
	if c.Handoffs == 0 {
		c.Handoffs = registeredTurn
		if c.Cohort {
			c.Handoffs = cohortTurn
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, relations(c)
}

// relations checks the options against each other.
func relations(c config) error {
	if c.Lease < lease.Min {
		return fmt.Errorf("reentrant: WithLease(%v): at least %v", c.Lease, lease.Min)
	}
	if c.Lease > maxLease {
		return fmt.Errorf("reentrant: WithLease(%v): at most %v", c.Lease, maxLease)
	}
	if c.Heartbeat < minHeartbeat {
		return fmt.Errorf("reentrant: WithHeartbeat(%v): at least %v", c.Heartbeat, minHeartbeat)
	}
	if c.Lease-c.Heartbeat <= c.Heartbeat { // twice the heartbeat may be too large a number
		return fmt.Errorf("reentrant: WithLease(%v) must be more than twice the heartbeat of %v (WithHeartbeat)", c.Lease, c.Heartbeat)
	}
	if c.HandoffTime >= c.Lease/2 {
		return fmt.Errorf("reentrant: WithTurn: a time of %v must be less than half the lease of %v (WithLease)", c.HandoffTime, c.Lease)
	}
	if c.Cohort && c.Handoffs > maxCohortTurn {
		return fmt.Errorf("reentrant: WithTurn: %d hand-overs: at most %d with WithCohort", c.Handoffs, maxCohortTurn)
	}
	return nil
}

// maxLease, ten years, keeps sums of leases and moments within what a server's script can count in microseconds. minHeartbeat,
// one millisecond, is the shortest time that the server distinguishes.
const (
	maxLease     = 10 * 365 * 24 * time.Hour
	minHeartbeat = time.Millisecond
)

func notNegative[T int | time.Duration](option string, v T) error {
	if v < 0 {
		return fmt.Errorf("reentrant: %s(%v): must not be negative", option, v)
	}
	return nil
}

// A LockOption sets a property of one Lock, which is a handle: Locks of equal name may differ in their options. The lease
// belongs to the hold. The Lock of the outermost acquire decides whether it is fixed, and how long; re-entry and
// [Condition.Await] through another Lock keep it, and only [Lock.Resume] changes it. Fairness belongs to the wait: the Lock
// that waits decides. A [MultiLock] refuses two Locks of one name with different options.
type LockOption func(*Lock)

// WithFixedLease makes every hold that is taken through this Lock end d after it began, whatever its holder does: it is
// not renewed. Re-entry does not extend it, and does not make a renewed lease fixed. A hold that Await gave up comes
// back with the whole of d. Zero means the session's lease, renewed.
//
// Such a hold may be left to expire. The session therefore does not remember each of them until it is unlocked: of the
// expired ones it remembers the latest 1,024 at least, and Unlock of an older one returns [ErrNotHeld] in place of
// [ErrLost].
func WithFixedLease(d time.Duration) LockOption { return func(l *Lock) { l.handle.Fixed = d } }

// WithAtLeast makes every hold that is taken through this Lock keep others off until d after it began, although it is
// unlocked sooner: so a job that many machines start at about the same time runs once, however short it is and however far
// their clocks are apart. Unlock then does not free the lock: for the rest of d it stays taken in Redis, and no session or
// owner can have it, this one included. So the rest of d survives the process, and Inspect shows it as State.Unlocked;
// [Lock.ForceUnlock] ends it. A waiting session gets the lock within a heartbeat after d.
//
// The time d begins when Lock returns. It begins again after [Condition.Await], which gives the lock up without waiting for
// d, and when [Lock.Resume] takes up the hold of another session. Re-entry changes nothing. Only Unlock keeps the lock taken:
// a hold that is lost, or whose process ends first, ends with its lease, and so does a hold whose Unlock returns an error.
// Until d is over, Unlock waits for Redis even with [WithAsyncUnlock]. What a [MultiLock] or [TryAnyFor] takes and gives back
// because it fails is free at once. Such holds are never a cohort's ([WithCohort]). For an [RWLock] or a [Semaphore] this
// option is an error. Zero, the default, means no such time; d is at most ten years, and at most the lease of
// [WithFixedLease].
func WithAtLeast(d time.Duration) LockOption { return func(l *Lock) { l.handle.AtLeast = d } }

// WithFairness sets whether owners get the lock in the order of their arrival, as they do by default.
// WithFairness(false) gives that up where it saves waiting for a goroutine to wake, as Java's unfair locks do: an owner
// that finds the lock free takes it, ahead of waiters. At an Unlock the longest waiter of this process is woken and
// competes with newcomers; it is overtaken at most [localqueue.MaxOvertaken] times and then gets the lock. In Redis a
// freed lock still goes to the longest waiting session, and a session still gives way after its turn; only a lock that
// is free in Redis can be taken past the others. So with n waiters of this process ahead of it, an owner waits for no
// more than (n+1) × (MaxOvertaken+1) holds of this process, and for the turns of the other sessions in between.
//
// Locks of equal name share one queue. If they differ in this option, callers that wait through a Lock with
// WithFairness(true), the default, are still never overtaken by others of their process.
func WithFairness(fair bool) LockOption { return func(l *Lock) { l.handle.Unfair = !fair } }

// WithMaxWaiting bounds the queue in this process: a caller that would have to wait while n callers of this session already
// wait for the lock gets [ErrQueueFull] immediately, whatever time its context leaves it. Under more load than a lock can
// serve, an unbounded queue grows until each caller's time is up before its turn comes, and no work is done. It is an option
// of [Session.NewRWLock] and [Session.NewSemaphore], too. Zero, the default, is no bound.
//
// The callers that wait are those that [Lock.QueueLength] counts, including the one that asks the server. Callers of an
// RWLock or a Semaphore also wait while the session asks for its first units: let n be at least the number of callers that
// may come together. The bound belongs to the wait, and not to the lock: Locks of equal name may have different ones. Owners
// that have the lock re-enter it, and [Condition.Await] and [Lock.Resume] take it again, whatever the bound is. TryLock and
// the other tries without a time limit do not wait, and so return false.
//
// Callers of other processes do not count: the server would have to be asked before each wait.
func WithMaxWaiting(n int) LockOption { return func(l *Lock) { l.handle.MaxWaiting = n } }
