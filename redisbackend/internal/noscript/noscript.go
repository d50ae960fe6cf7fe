package noscript

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
	"github.com/relock-go/relock/redisbackend/internal/clock"
	"github.com/relock-go/relock/redisbackend/internal/push"
	"github.com/relock-go/relock/redisbackend/internal/single"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// A noscript is a remote that runs no scripts.
type noscript struct{ *single.Remote }

var (
	_ backend.Remote     = noscript{}
	_ backend.Conditions = noscript{}
	_ backend.Resumer    = noscript{}
	_ backend.Watcher    = noscript{}
	_ backend.Noter      = noscript{}
)

// A reading selects what a verb reads besides the lock: a condition of it, or the holder's note.
type reading struct {
	condition *string
	note      bool
}

var (
	lockOnly = reading{}
	withNote = reading{note: true}
)

// transact reads the lock (and what else the verb needs), lets run decide, and writes the changes. It does so again until no
// other client has changed the lock in between, so run may be called more than once. If reading fails, nothing has happened.
func (n noscript) transact(ctx context.Context, what reading, run func(now protocol.Instant, l *protocol.Lock)) error {
	return n.rounds(ctx, func(client rueidis.DedicatedClient) (bool, error) { return n.try(ctx, client, what, run) })
}

// rounds calls try, with one connection, until try returns true or an error. If the connection was lost before anything was
// written, it goes on with another connection for a while.
func (n noscript) rounds(ctx context.Context, try func(rueidis.DedicatedClient) (bool, error)) error {
	for began := time.Now(); ; {
		client, release, err := push.Dedicate(ctx, n.Conn.Deployment.Client)
		if err != nil {
			return fmt.Errorf("redisbackend: not sent: %w", err)
		}
		for done := false; err == nil && !done; {
			done, err = try(client)
		}
		push.GiveBack(client, release, err)
		var lost *lostError
		if !errors.As(err, &lost) || wire.NeverSent(err) || ctx.Err() != nil || time.Since(began) > reopening {
			return err
		}
		time.Sleep(reopenEvery)
	}
}

// reopening is how long a verb that has written nothing yet tries other connections when one of the pool is lost. The
// client itself detects lost connections within a second. A server that is down refuses new connections at once, so there
// is a pause, reopenEvery, before each.
const (
	reopening   = time.Second
	reopenEvery = 5 * time.Millisecond
)

// A lostError is the error of a connection that was lost before anything was written.
type lostError struct{ error }

func (e *lostError) Unwrap() error { return e.error }

// try makes one round: it reads, calls run and writes. It returns false if another client has changed the lock in between.
func (n noscript) try(ctx context.Context, client rueidis.DedicatedClient, what reading, run func(now protocol.Instant, l *protocol.Lock)) (bool, error) {
	i, err := n.read(ctx, client, what)
	if err != nil {
		return false, err
	}
	run(i.now, &i.lock)
	changes := i.changes(client)
	return n.commit(ctx, client, changes)
}

// read reads a snapshot under WATCH.
func (n noscript) read(ctx context.Context, client rueidis.DedicatedClient, what reading) (*snapshot, error) {
	sent := time.Now()
	if err := wire.ContextErr(ctx, sent); err != nil {
		return nil, fmt.Errorf("redisbackend: not done: %w", err)
	}
	i := &snapshot{keys: n.Keys, channels: n.Conn.Deployment.Channels}
	watched := n.Keys[:]
	if what.condition != nil {
		k := n.Keys.Condition(n.Conn.Deployment.Prefix, *what.condition)
		i.condition, i.ticketing, watched = *what.condition, &k, k[:]
	}
	if what.note {
		watched = n.Keys.WithNote(n.Conn.Deployment.Prefix)
		i.note = watched[len(n.Keys)]
	}
	answers := client.DoMulti(ctx, append(rueidis.Commands{client.B().Watch().Key(watched...).Build()}, i.readers(client)...)...)
	at := clock.SampleSince(sent)
	err := answers[0].Error()
	if err == nil {
		err = i.parse(answers[1:])
	}
	if err == nil {
		at.Stamp = i.now.Microseconds()
		n.Clock.Saw(at)
		return i, nil
	}
	return nil, n.notRead(ctx, err)
}

// notRead returns the error of a failed read.
func (n noscript) notRead(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, errGarbage):
		return fmt.Errorf("redisbackend: %w", err)
	case wire.ErrorCode(err) != "":
		return wire.Fail(ctx, err)
	}
	return n.notDone(ctx, err)
}

// notDone returns a lostError, for a connection that was lost before anything was written.
func (n noscript) notDone(ctx context.Context, err error) error {
	n.Clock.Forget()
	return &lostError{wire.Unavailable(fmt.Errorf("not done: %w", wire.Blame(ctx, err)))}
}

// commit writes the changes in one transaction. It returns false if a watched key has changed since it was read; then nothing
// was written. Without changes it only checks the keys: if none has changed, all values that were read existed at one moment.
func (n noscript) commit(ctx context.Context, client rueidis.DedicatedClient, changes rueidis.Commands) (bool, error) {
	begin, end := client.B().Multi().Build(), client.B().Exec().Build()
	answers := client.DoMulti(ctx, slices.Concat(rueidis.Commands{begin}, changes, rueidis.Commands{end})...)
	queued, exec := answers[:len(answers)-1], answers[len(answers)-1]
	results, err := exec.ToArray()
	switch {
	case rueidis.IsRedisNil(err):
		return false, nil
	case err == nil:
		return true, carriedOut(results)
	case len(changes) == 0 && wire.ErrorCode(err) == "":
		return false, n.notDone(ctx, err)
	case wire.ErrorCode(err) == "":
		n.Clock.Forget()
		return false, wire.Fail(ctx, err)
	}
	return false, discarded(ctx, queued, err)
}

// carriedOut returns nil if all commands of a transaction succeeded: Redis goes on after a command that fails.
func carriedOut(results []rueidis.RedisMessage) error {
	for _, m := range results {
		if err := m.Error(); err != nil && !rueidis.IsRedisNil(err) {
			return backend.WithOutcomeUnknown(fmt.Errorf("redisbackend: only a part of the transaction was carried out: %w", err))
		}
	}
	return nil
}

// discarded returns the error of a transaction that Redis did not execute. The reason is in the reply to the first
// command that was not queued; the error of EXEC may only say that there was such a command.
func discarded(ctx context.Context, queued []rueidis.RedisResult, exec error) error {
	for i, answer := range queued {
		err := answer.Error()
		if err == nil {
			continue
		}
		err = wire.Fail(ctx, err)
		if i == 0 && len(queued) > 1 { // MULTI itself failed: then the commands after it were executed one by one
			err = backend.WithOutcomeUnknown(err)
		}
		return err
	}
	return wire.Fail(ctx, exec)
}

// Acquire implements backend.Remote. It does not send a copy whose time is over. A copy that is delayed on its way
// fails, because later commands have changed the watched keys.
func (n noscript) Acquire(ctx context.Context, req backend.AcquireRequest) (reply backend.AcquireReply, err error) {
	if err := wire.CheckAcquire(&req); err != nil {
		return reply, err
	}
	var refused error
	err = n.transact(ctx, lockOnly, func(now protocol.Instant, l *protocol.Lock) {
		if refused = tooLate(req.NotAfter); refused == nil {
			reply, refused = l.Acquire(now, n.Conn.Session, req, now+wire.Remaining(req.NotAfter))
		}
	})
	switch {
	case err != nil:
		return backend.AcquireReply{}, err
	case refused != nil:
		return backend.AcquireReply{}, fmt.Errorf("redisbackend: %w", refused)
	case reply.Status == backend.Waiting && req.Queue:
		n.Conn.Listen(n.Remote)
	}
	return reply, nil
}

// Reenter implements backend.Remote.
func (n noscript) Reenter(ctx context.Context, req backend.ReenterRequest) (reply backend.ReenterReply, err error) {
	if err := wire.CheckReenter(&req); err != nil {
		return reply, err
	}
	err = n.transact(ctx, lockOnly, func(now protocol.Instant, l *protocol.Lock) { reply = l.Reenter(now, n.Conn.Session, req) })
	return reply, err
}

// Release implements backend.Remote.
func (n noscript) Release(ctx context.Context, req backend.ReleaseRequest) (result backend.ReleaseResult, err error) {
	if err := wire.CheckRelease(&req); err != nil {
		return 0, err
	}
	err = n.transact(ctx, lockOnly, func(now protocol.Instant, l *protocol.Lock) {
		result = l.Release(now, n.Conn.Session, req, wire.Remaining(req.Until), wire.Remaining(req.StaysUntil))
	})
	return result, err
}

// tooLate returns the error of a copy that is not sent, because the time until which it may be executed is over.
func tooLate(notAfter time.Time) error {
	if time.Now().Before(notAfter) {
		return nil
	}
	return wire.Unavailable(errors.New("it would have reached Redis too late and was not sent"))
}

// Resume implements backend.Resumer.
func (n noscript) Resume(ctx context.Context, req backend.ResumeRequest) (reply backend.ResumeReply, err error) {
	if err := wire.CheckResume(&req); err != nil {
		return reply, err
	}
	var refused error
	err = n.transact(ctx, withNote, func(now protocol.Instant, l *protocol.Lock) {
		if refused = tooLate(req.NotAfter); refused == nil {
			reply, refused = l.Resume(now, n.Conn.Session, req, forever, wire.Remaining(req.Until))
		}
	})
	if err == nil && refused != nil {
		err = fmt.Errorf("redisbackend: resume: %w", refused)
	}
	return reply, err
}

// Watch implements backend.Watcher.
func (n noscript) Watch(ctx context.Context, epoch uint64) (reply backend.WatchReply, err error) {
	if err := wire.CheckNumbers(epoch); err != nil {
		return reply, err
	}
	err = n.transact(ctx, lockOnly, func(now protocol.Instant, l *protocol.Lock) { reply = l.Watch(now, n.Conn.Session, epoch) })
	return reply, err
}

// Note implements backend.Noter.
func (n noscript) Note(ctx context.Context, req backend.NoteRequest) (kept bool, err error) {
	if err := wire.CheckNote(&req); err != nil {
		return false, err
	}
	err = n.transact(ctx, withNote, func(now protocol.Instant, l *protocol.Lock) { kept = l.SetNote(now, n.Conn.Session, req) })
	return kept, err
}

// Await implements backend.Conditions.
func (n noscript) Await(ctx context.Context, req backend.AwaitRequest) (status backend.TicketStatus, err error) {
	if err := wire.CheckAwait(&req); err != nil {
		return 0, err
	}
	var refused error
	err = n.transact(ctx, reading{condition: &req.Condition}, func(now protocol.Instant, l *protocol.Lock) {
		status, refused = l.Await(now, n.Conn.Session, req, wire.Remaining(req.Until))
	})
	switch {
	case err != nil:
		return 0, err
	case refused != nil:
		return 0, fmt.Errorf("redisbackend: %w", refused)
	}
	n.Conn.Listen(n.Remote)
	return status, nil
}

// Signal implements backend.Conditions.
func (n noscript) Signal(ctx context.Context, req backend.SignalRequest) (reply backend.SignalReply, err error) {
	if err := wire.CheckNumbers(req.Epoch, req.Op); err != nil {
		return reply, err
	}
	err = n.transact(ctx, reading{condition: &req.Condition}, func(now protocol.Instant, l *protocol.Lock) { reply = l.Signal(now, n.Conn.Session, req) })
	return reply, err
}

// Withdraw implements backend.Conditions.
func (n noscript) Withdraw(ctx context.Context, condition string, ticket uint64) (status backend.TicketStatus, err error) {
	if err := wire.CheckNumbers(ticket); err != nil {
		return 0, err
	}
	err = n.transact(ctx, reading{condition: &condition}, func(_ protocol.Instant, l *protocol.Lock) {
		status = l.Withdraw(n.Conn.Session, condition, ticket)
	})
	return status, err
}

// Beat implements backend.Conditions.
func (n noscript) Beat(ctx context.Context, condition string, tickets, served []uint64) (answers []backend.TicketStatus, err error) {
	if err := wire.CheckNumbers(slices.Concat(tickets, served)...); err != nil {
		return nil, err
	}
	err = n.transact(ctx, reading{condition: &condition}, func(now protocol.Instant, l *protocol.Lock) {
		answers = l.Beat(now, n.Conn.Session, condition, tickets, served)
	})
	return answers, err
}

// Inspect implements backend.Remote.
func (n noscript) Inspect(ctx context.Context) (st backend.State, err error) {
	err = n.transact(ctx, withNote, func(now protocol.Instant, l *protocol.Lock) {
		seen := *l // a copy: Redis keeps what has expired, which Inspect removes
		st = seen.Inspect(now)
	})
	return st, n.NameOtherData(ctx, err)
}

// ForceUnlock implements backend.Remote. It does not send a copy whose time is over.
func (n noscript) ForceUnlock(ctx context.Context, notAfter time.Time) (had bool, err error) {
	var refused error
	err = n.transact(ctx, lockOnly, func(now protocol.Instant, l *protocol.Lock) {
		if refused = tooLate(notAfter); refused == nil {
			had, refused = l.Force(now, forever)
		}
	})
	if err == nil && refused != nil {
		err = fmt.Errorf("redisbackend: %w", refused)
	}
	return had, err
}

// Verbs executes a deployment's verbs without scripts.
type Verbs struct{}

// Bind implements the verbs of a single.Deployment.
func (Verbs) Bind(r *single.Remote) backend.Remote { return noscript{r} }

// Probe implements the verbs of a single.Deployment.
func (Verbs) Probe(ctx context.Context, r *single.Remote) error {
	_, err := noscript{r}.Inspect(ctx)
	return err
}

// Renew implements the verbs of a single.Deployment. It renews a few locks at a time, so that one which other clients change
// often does not delay the rest.
func (Verbs) Renew(ctx context.Context, c *single.Conn, renewals []backend.Renewal) {
	aFewAtOnce(renewals, func(w *backend.Renewal) {
		w.Gone, w.First, w.Units = false, 0, 0
		w.Err = renewOne(ctx, c, w)
		if errors.Is(w.Err, backend.ErrWrongKind) { // the name is something else by now, so this epoch has nothing
			w.Gone, w.Err = true, nil
		}
	})
}

// InspectAll implements the verbs of a single.Deployment. It reads a few locks at once.
func (Verbs) InspectAll(ctx context.Context, c *single.Conn, inspections []backend.Inspection) {
	aFewAtOnce(inspections, func(n *backend.Inspection) {
		if r, ok := n.Remote.(noscript); ok && r.Conn == c {
			n.State, n.Err = r.Inspect(ctx)
		} else {
			n.Err = wire.Invalid("the lock is not one of this session")
		}
	})
}

// aFewAtOnce calls do for each element, for a few of them at the same time.
func aFewAtOnce[T any](all []T, do func(*T)) {
	const atOnce = 8 // connections, out of a pool that the session's commands need too
	next := make(chan *T)
	var calls sync.WaitGroup
	for range min(atOnce, len(all)) {
		calls.Go(func() {
			for one := range next {
				do(one)
			}
		})
	}
	for i := range all {
		next <- &all[i]
	}
	close(next)
	calls.Wait()
}

func renewOne(ctx context.Context, c *single.Conn, w *backend.Renewal) error {
	r, ok := w.Remote.(noscript)
	switch {
	case !ok || r.Conn != c:
		return wire.Invalid("the lock is not one of this session")
	}
	if err := wire.CheckRenewal(w); err != nil {
		return err
	}
	if w.Under != 0 {
		return r.renewShared(ctx, w)
	}
	err := r.transact(ctx, lockOnly, func(now protocol.Instant, l *protocol.Lock) {
		w.First = l.Renew(now, c.Session, w.Epoch, min(w.Lease, wire.MaxTTL))
		w.Gone = w.First == 0
	})
	if wire.ErrorCode(err) == "OOM" {
		return r.renewWhenFull(ctx, w)
	}
	return err
}

// renewWhenFull renews on a server without free memory. Redis then queues no command for a transaction, not even one that
// needs no memory, so a command of its own extends the lease. Another session may get the lock just before that command:
// then this hold is gone, as the second read shows, and the other session's lease has at most become longer. (Redis 6 has
// no command that only extends a TTL. There the command can shorten the other session's lease, if memory became free.)
func (n noscript) renewWhenFull(ctx context.Context, w *backend.Renewal) error {
	var ttl, keep time.Duration
	look := func() error {
		return n.transact(ctx, lockOnly, func(now protocol.Instant, l *protocol.Lock) {
			renewed := *l // the snapshot stays as it is
			w.First = renewed.Renew(now, n.Conn.Session, w.Epoch, min(w.Lease, wire.MaxTTL))
			w.Gone = w.First == 0
			ttl, keep = renewed.Hold.Expires-now, renewed.Record.Expires-now
		})
	}
	if err := look(); err != nil || w.Gone {
		return err
	}
	if err := n.prolong(ctx, n.Keys[0], ttl); err != nil {
		return err
	}
	if err := n.prolong(ctx, n.Keys[1], keep); err != nil {
		return err
	}
	return look()
}

// prolong makes a key's TTL at least d; on Redis 6 it sets the TTL to d.
func (n noscript) prolong(ctx context.Context, key string, d time.Duration) error {
	client := n.Conn.Deployment.Client
	err := client.Do(ctx, client.B().Pexpire().Key(key).Milliseconds(int64(wire.Millis(d))).Gt().Build()).Error()
	if strings.Contains(wire.WordsOf(err), "number of arguments") { // the server does not know GT
		err = client.Do(ctx, client.B().Pexpire().Key(key).Milliseconds(int64(wire.Millis(d))).Build()).Error()
	}
	if err != nil {
		return wire.Fail(ctx, err)
	}
	return nil
}
