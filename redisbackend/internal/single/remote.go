package single

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/clock"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// A Remote is one lock as Redis knows it, seen by one session. All fields but full and keep are immutable.
type Remote struct {
	Conn  *Conn
	Keys  wire.Keys
	Clock *clock.Clock

	full atomic.Int32  // how many releases still skip free.lua; see the method free
	keep atomic.Uint64 // for how many seconds the latest attempt that waited keeps the record; see the method free
}

var _ backend.Remote = (*Remote)(nil)

// Name implements backend.Remote.
func (r *Remote) Name() string { return r.Keys.Hold()[len(r.Conn.Deployment.Prefix):] }

// The codes that the scripts return; their headers explain them.
const (
	acquireGranted, acquireWaiting, acquireStale, acquireLate = 1, 2, 3, 4
	reenterDone, reenterGone                                  = 1, 2
	releaseReleased, releaseWithdrawn, releaseNothing         = 1, 2, 3
	forceHeld, forceLate                                      = 1, 2
)

// Acquire implements backend.Remote. It sends one command, unless the lock is not as the session remembers it, or Redis
// refuses the attempt as late although req.NotAfter has not come: then the session knew nothing of Redis's clock, or its
// bounds were too wide. The reply has Redis's time, so a second copy is either in time or really late.
func (r *Remote) Acquire(ctx context.Context, req backend.AcquireRequest) (backend.AcquireReply, error) {
	if err := wire.CheckAcquire(&req); err != nil {
		return backend.AcquireReply{}, err
	}
	limit := clock.InstantOf(req.NotAfter)
	notAfter := r.Clock.NotAfter(limit)
	if reply, done, err := r.pass(ctx, &req, notAfter); done || err != nil {
		return reply, err
	}
	a, err := r.acquire(ctx, &req, notAfter)
	if err == nil && a.Code == acquireLate && a.sample.Received < limit {
		a, err = r.acquire(ctx, &req, clock.Mapping{}.With(a.sample).NotAfter(limit))
	}
	if err != nil {
		return backend.AcquireReply{}, err
	}
	switch a.Code {
	case acquireGranted:
		r.Conn.redisson.Arrived(r.Keys.Hold())
		if err := a.checkTokens(a.rest[0], a.rest[1]); err != nil {
			return backend.AcquireReply{}, wire.Unexpected(err)
		}
		return a.granted(&req), nil
	case acquireWaiting:
		if req.Queue {
			r.waits(&req)
			r.Conn.redisson.Waits(r.Keys.Hold(), r, a.sample.Sent)
		}
		return backend.AcquireReply{Status: backend.Waiting, TTL: time.Duration(a.rest[0]) * time.Millisecond, Lingers: a.rest[1] == 1}, nil
	case acquireStale:
		return backend.AcquireReply{Status: backend.Stale}, nil
	case acquireLate:
		return backend.AcquireReply{}, wire.Unavailable(errors.New("it reached Redis too late and was not carried out"))
	}
	return backend.AcquireReply{}, wire.Unexpected(fmt.Errorf("code %d", a.Code))
}

// pass makes an attempt by one of the lean scripts, which rely on what the session remembers of the record. It returns false
// if the full script, acquire.lua, is needed, which Acquire then sends.
func (r *Remote) pass(ctx context.Context, req *backend.AcquireRequest, notAfter int64) (backend.AcquireReply, bool, error) {
	d := r.Conn.Deployment
	call, ok := wire.NewLeanAcquire(r.Conn.Session, req, notAfter)
	if !ok || !d.lean {
		return backend.AcquireReply{}, false, nil
	}
	script, keys, args := &d.scripts.Pass, r.Keys[:2], call.Texts[:call.N]
	switch {
	case call.Take:
		script, keys = &d.scripts.Take, r.Keys[:3]
	case call.Yield != nil && d.cluster: // in a Cluster messages are sent in another way
		return backend.AcquireReply{}, false, nil
	case call.Yield != nil:
		script, keys, args = &d.scripts.Yield, r.Keys[:], slices.Concat(args, call.Yield, []string{d.Channels})
	}
	n, sent, err := r.runLean(ctx, script, keys, args)
	if err != nil || n == 0 {
		return backend.AcquireReply{}, false, err
	}
	if n < 0 {
		r.waits(req)
		return backend.AcquireReply{Status: backend.Waiting, TTL: time.Duration(-n) * time.Millisecond}, true, nil
	}
	p := call.Prior
	if n > 1 { // Redis's clock: a lease began
		at := clock.SampleSince(sent)
		at.Stamp = n
		r.Clock.Saw(at)
		p.Token = max(p.Token, backend.Token(n))
	}
	return backend.AcquireReply{Status: backend.Granted, First: p.Token, Last: p.Token, Prior: p}, true, nil
}

// waits notes that an attempt waits in the queue, and opens the channels over which its grant will come.
func (r *Remote) waits(req *backend.AcquireRequest) {
	r.keep.Store(wire.KeepFor(max(req.Lease, req.GrantTTL)))
	r.Conn.Listen(r)
}

// granted returns the reply to an attempt that has the lock.
func (a *answer) granted(req *backend.AcquireRequest) backend.AcquireReply {
	reply := backend.AcquireReply{Status: backend.Granted, First: backend.Token(a.rest[0]), Last: backend.Token(a.rest[1]),
		TTL: time.Duration(a.rest[2]) * time.Millisecond}
	if a.vacant && req.Fixed {
		reply.TTL = req.Lease
	}
	if a.note != "" && reply.First == reply.Last {
		reply.Prior = backend.Prior{Epoch: req.Epoch, Owner: req.Owner, Token: reply.Last, Note: a.note}
	}
	return reply
}

// acquire sends one copy.
func (r *Remote) acquire(ctx context.Context, req *backend.AcquireRequest, notAfter int64) (answer, error) {
	var d wire.ArgWriter
	d.Add(req.Epoch)
	d.Add(uint64(req.Holds))
	d.Add(wire.Millis(req.Lease))
	d.Add(uint64(notAfter))
	d.Add(uint64(req.Tokens))
	d.Add(uint64(req.Seen))
	d.Add(wire.RoundUp(req.Patience, time.Millisecond))
	d.Add(wire.Millis(req.GrantTTL))
	keep := wire.KeepFor(max(req.Lease, req.GrantTTL))
	d.Add(keep)
	d.Add(wire.BriefKeepFor(req))
	n := d.Strings()
	args := [...]string{r.Conn.Session, n[0], req.Owner, n[1], n[2], n[3], flags(req), n[4], n[5], n[6], n[7],
		r.Conn.Deployment.Channels, n[8], n[9]}
	if r.awaitsReplicas() {
		return r.acquireReplicated(ctx, args[:], req.NotAfter)
	}
	result, sent, err := r.send(ctx, &r.Conn.Deployment.scripts.Acquire, r.Keys[:], args[:])
	if err != nil {
		return answer{}, err
	}
	a, err := r.readAcquire(ctx, result, clock.SampleSince(sent))
	switch {
	case err != nil:
	case a.vacant:
		a.note = n[9]
	case a.keep == int64(keep):
		a.note = n[8]
	case a.keep > 0: // the record is kept for longer, for another session, or for a shorter time, since no session waited
		a.note = strconv.FormatInt(a.keep, 10)
	}
	return a, err
}

// flagLetters are the flags of acquire.lua, in the order of the bits of an index of flagTexts.
const flagLetters = "qbyfk"

var flagTexts = func() (texts [1 << len(flagLetters)]string) {
	for bits := range texts {
		for i, letter := range flagLetters {
			if bits&(1<<i) != 0 {
				texts[bits] += string(letter)
			}
		}
	}
	return texts
}()

func flags(req *backend.AcquireRequest) string {
	bits := 0
	for i, set := range [len(flagLetters)]bool{req.Queue, req.Barge, req.Yield, req.Fixed, req.KeepTTL} {
		if set {
			bits |= 1 << i
		}
	}
	return flagTexts[bits]
}

// Reenter implements backend.Remote.
func (r *Remote) Reenter(ctx context.Context, req backend.ReenterRequest) (backend.ReenterReply, error) {
	if err := wire.CheckReenter(&req); err != nil {
		return backend.ReenterReply{}, err
	}
	var d wire.ArgWriter
	d.Add(req.Epoch)
	d.Add(req.Op)
	d.Add(uint64(req.Holds))
	d.Add(wire.Millis(req.Lease))
	n := d.Strings()
	args := [...]string{r.Conn.Session, n[0], req.Owner, n[1], n[2], n[3]}
	a, err := r.Run(ctx, &r.Conn.Deployment.scripts.Reenter, r.Keys[:2], args[:], 2)
	switch {
	case err != nil:
		return backend.ReenterReply{}, err
	case a.Code == reenterDone:
		return backend.ReenterReply{Holds: int(a.rest[0]), First: backend.Token(a.rest[1])}, nil
	case a.Code == reenterGone:
		return backend.ReenterReply{Gone: true}, nil
	}
	return backend.ReenterReply{}, wire.Unexpected(fmt.Errorf("code %d", a.Code))
}

// Release implements backend.Remote. It sends one command, unless the lock is not as the session remembers it.
func (r *Remote) Release(ctx context.Context, req backend.ReleaseRequest) (backend.ReleaseResult, error) {
	if err := wire.CheckRelease(&req); err != nil {
		return 0, err
	}
	if result, err := r.free(ctx, &req); result > 0 || err != nil {
		return result, err
	}
	// The doubt is a duration and not a time: Redis counts it from when Redis receives the release, which is later. So the
	// tombstone lasts long enough whatever the session knows of Redis's clock.
	doubt := wire.Remaining(req.Until)
	var d wire.ArgWriter
	d.Add(req.Epoch)
	d.Add(wire.RoundUp(doubt, time.Microsecond))
	d.Add(uint64(req.Used))
	d.Add(wire.KeepFor(doubt))
	d.Add(wire.Millis(wire.Remaining(req.StaysUntil))) // a duration too: the lock stays for long enough
	n := d.Strings()
	args := [...]string{r.Conn.Session, n[0], n[1], n[2], r.Conn.Deployment.Channels, n[3], n[4]}
	r.Conn.redisson.Arrived(r.Keys.Hold())
	a, err := r.Run(ctx, &r.Conn.Deployment.scripts.Release, r.Keys[:], args[:], 0)
	switch {
	case err != nil:
		return 0, err
	case a.Code == releaseReleased:
		return backend.Released, nil
	case a.Code == releaseWithdrawn:
		return backend.Withdrawn, nil
	case a.Code == releaseNothing:
		return backend.Nothing, nil
	}
	return 0, wire.Unexpected(fmt.Errorf("code %d", a.Code))
}

// fullReleases is how many releases send only the full script, release.lua, after free.lua did nothing. The next waiter is
// often one that free.lua cannot serve either, and a failed try delays that waiter's turn by a round trip.
const fullReleases = 7

// The numbers that free.lua returns.
const freeReleased, freeGiven = 1, 2

// free makes a release by free.lua, which relies on what the session remembers of the record. It returns 0 if the full
// script, release.lua, is needed, which Release then sends.
func (r *Remote) free(ctx context.Context, req *backend.ReleaseRequest) (backend.ReleaseResult, error) {
	channels := r.Conn.Deployment.Channels
	if r.Conn.Deployment.cluster { // in a Cluster messages are sent in another way
		channels = ""
	}
	if keep := r.keep.Load(); req.Prior.Pushed && keep > 0 {
		req.Prior.Note = strconv.FormatUint(keep, 10) // a guess, right if no session keeps the record for longer
	}
	args, ok := wire.LeanReleaseArgs(r.Conn.Session, req, channels)
	if !ok || !r.Conn.Deployment.lean {
		return 0, nil
	}
	if r.full.Load() > 0 {
		r.full.Add(-1)
		return 0, nil
	}
	n, _, err := r.runLean(ctx, &r.Conn.Deployment.scripts.Free, r.Keys[:], args[:])
	switch {
	case err != nil:
		return 0, err
	case n == freeReleased && !req.Prior.Pushed: // after a wait, the next to take the lock is likely to be another session
		return backend.Freed, nil
	case n == freeReleased, n == freeGiven:
		return backend.Released, nil
	}
	r.full.Store(fullReleases)
	return 0, nil
}

// ForceUnlock implements backend.Remote.
func (r *Remote) ForceUnlock(ctx context.Context, notAfter time.Time) (bool, error) {
	return r.Force(ctx, &r.Conn.Deployment.scripts.Force, r.Keys[:], notAfter, r.Conn.Deployment.Channels)
}

// Force runs a script that takes the name from its holders, and whose last argument is the time until which it may run.
// It reports whether there were any holders. As Acquire does, it sends a second copy if Redis refuses the first as late
// although notAfter has not come.
func (r *Remote) Force(ctx context.Context, s *wire.Script, keys []string, notAfter time.Time, args ...string) (bool, error) {
	limit := clock.InstantOf(notAfter)
	send := func(notAfter int64) (answer, error) {
		return r.Run(ctx, s, keys, append(args[:len(args):len(args)], strconv.FormatInt(notAfter, 10)), 0)
	}
	a, err := send(r.Clock.NotAfter(limit))
	if err == nil && a.Code == forceLate && a.sample.Received < limit {
		a, err = send(clock.Mapping{}.With(a.sample).NotAfter(limit))
	}
	if err == nil && a.Code == forceLate {
		err = wire.Unavailable(errors.New("it reached Redis too late and was not carried out"))
	}
	return a.Code == forceHeld, err
}

// Offer implements redisson.Lock.
func (r *Remote) Offer(ctx context.Context) {
	args := [...]string{r.Conn.Deployment.Channels}
	_, _ = r.Run(ctx, &r.Conn.Deployment.scripts.Offer, r.Keys[:], args[:], 0)
}

// runLean sends a script that returns one number.
func (r *Remote) runLean(ctx context.Context, s *wire.Script, keys, args []string) (n int64, sent time.Time, err error) {
	result, sent, err := r.send(ctx, s, keys, args)
	if err != nil {
		return 0, sent, err
	}
	if n, err = result.ToInt64(); err != nil {
		return 0, sent, r.failed(ctx, result, err)
	}
	return n, sent, nil
}

// send sends a script. It returns the reply and the moment of sending.
func (r *Remote) send(ctx context.Context, s *wire.Script, keys, args []string) (result rueidis.RedisResult, sent time.Time, err error) {
	d := r.Conn.Deployment
	sent = time.Now()
	if err := wire.ContextErr(ctx, sent); err != nil {
		return result, sent, fmt.Errorf("redisbackend: not sent: %w", err)
	}
	silent := d.silent.Load()
	if !silent {
		result = s.Exec(ctx, d.Client, keys, args)
	}
	failed := result.NonRedisError() != nil
	if silent || failed && wire.EndedByAnother(ctx, result.NonRedisError()) {
		result = sendApart(ctx, d.Client, s, slices.Clone(keys), slices.Clone(args)) // the caller's slices stay on its stack
		failed = result.NonRedisError() != nil
	}
	if failed != silent {
		d.silent.Store(failed)
	}
	return result, sent, nil
}

// failed returns the error of a command without a reply, or with an error as its reply.
func (r *Remote) failed(ctx context.Context, result rueidis.RedisResult, err error) error {
	if result.NonRedisError() != nil {
		r.Clock.Forget() // the connection may be lost, and the next connection may lead to another server
	}
	return wire.Fail(ctx, err)
}
