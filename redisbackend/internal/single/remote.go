package single

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
	"github.com/relock-go/relock/redisbackend/internal/clock"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// A Remote is one lock as Redis knows it, seen by one session. It is immutable.
type Remote struct {
	Conn  *Conn
	Keys  wire.Keys
	Clock *clock.Clock

	full atomic.Int32  // how many releases still skip free; see free
	keep atomic.Uint64 // for how many seconds the latest attempt that waits has its record kept; see free
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

// Acquire implements backend.Remote. It is one command, unless the lock is not as the session remembers it, or Redis
// refuses it as late although its time has not come: then the session knew nothing of Redis's clock, or its bounds were
// too wide. The reply has the clock, so a second copy is either in time or really late.
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

// waits notes that an attempt waits in the queue: its grant will be a message.
func (r *Remote) waits(req *backend.AcquireRequest) {
	r.keep.Store(wire.KeepFor(max(req.Lease, req.GrantTTL)))
	r.Conn.Listen(r)
}

// granted is the reply to an attempt that has the lock.
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
	case a.keep > 0: // another session needs the record for longer, or none did
		a.note = strconv.FormatInt(a.keep, 10)
	}
	return a, err
}

// flagLetters are acquire's flags, in the order of the bits by which flags looks them up.
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

// Release implements backend.Remote. It is one command, unless the lock is not as the session remembers it.
func (r *Remote) Release(ctx context.Context, req backend.ReleaseRequest) (backend.ReleaseResult, error) {
	if err := wire.CheckRelease(&req); err != nil {
		return 0, err
	}
	if result, err := r.free(ctx, &req); result > 0 || err != nil {
		return result, err
	}
	// A duration, not a time: Redis counts from when it receives this, which is later, so the tombstone lasts long
	// enough whatever the session knows of Redis's clock.
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

// ForceUnlock implements backend.Remote.
func (r *Remote) ForceUnlock(ctx context.Context, notAfter time.Time) (bool, error) {
	return r.Force(ctx, &r.Conn.Deployment.scripts.Force, r.Keys[:], notAfter, r.Conn.Deployment.Channels)
}

// Force runs a script that takes the name from its holders, and whose last argument is its not after. It reports whether
// there were any. As in Acquire, a copy that Redis refuses as late too early is repeated once.
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

// A reader reads a reply element by element. After the first unexpected one, err is set and all that follow are zero.
type reader struct {
	list []rueidis.RedisMessage
	err  error
}

func (r *reader) next() (m rueidis.RedisMessage, ok bool) {
	if r.err == nil && len(r.list) == 0 {
		r.err = errors.New("too short")
	}
	if r.err != nil {
		return m, false
	}
	m, r.list = r.list[0], r.list[1:]
	return m, true
}

func (r *reader) number() (n int64) {
	if m, ok := r.next(); ok {
		n, r.err = m.ToInt64()
	}
	return n
}

// either reads the next element, a number or a word.
func (r *reader) either() (n int64, s string) {
	m, ok := r.next()
	switch {
	case !ok:
	case m.IsInt64():
		n, r.err = m.ToInt64()
	default:
		s, r.err = m.ToString()
	}
	return n, s
}

func (r *reader) word() (s string) {
	if m, ok := r.next(); ok {
		s, r.err = m.ToString()
	}
	return s
}

// An answer is the reply of a script of a single lock: a code, Redis's time, and up to three numbers.
type answer struct {
	Code   int64
	rest   [3]int64
	vacant bool   // of acquire.lua: the lock was free, and the record is kept briefly
	keep   int64  // else how the record ends, if that is a number
	note   string // and if not
	sample clock.Sample
}

// Run sends a script and reads its reply.
func (r *Remote) Run(ctx context.Context, s *wire.Script, keys, args []string, n int) (a answer, err error) {
	list, at, err := r.exec(ctx, s, keys, args)
	if err != nil {
		return answer{}, err
	}
	return r.decode(list, at, n)
}

// decode reads a reply with n numbers besides the code and the time, and perhaps a text after them.
func (r *Remote) decode(list []rueidis.RedisMessage, at clock.Sample, n int) (a answer, err error) {
	l := reader{list: list}
	a.Code, at.Stamp = l.number(), l.number()
	for i := range n {
		a.rest[i] = l.number()
	}
	if l.err == nil && len(l.list) > 0 {
		a.keep, a.note = l.either()
	}
	if l.err != nil {
		return answer{}, wire.Unexpected(l.err)
	}
	r.Clock.Saw(at)
	a.sample = at
	return a, nil
}

// readAcquire is decodeAcquire for a reply that is no list yet: a number need not become one.
func (r *Remote) readAcquire(ctx context.Context, result rueidis.RedisResult, at clock.Sample) (answer, error) {
	if m, err := result.ToMessage(); err == nil && m.IsInt64() {
		return r.decodeVacant(&m, at)
	}
	list, at, err := r.listOf(ctx, result, at)
	if err != nil {
		return answer{}, err
	}
	return r.decodeAcquire(list, at)
}

// decodeAcquire reads the reply of acquire: a single number if the lock was free.
func (r *Remote) decodeAcquire(list []rueidis.RedisMessage, at clock.Sample) (answer, error) {
	if len(list) == 1 {
		return r.decodeVacant(&list[0], at)
	}
	return r.decode(list, at, 3)
}

// decodeVacant reads the reply for a lock that was free, which is the token and the time.
func (r *Remote) decodeVacant(m *rueidis.RedisMessage, at clock.Sample) (a answer, err error) {
	if at.Stamp, err = m.ToInt64(); err != nil {
		return a, wire.Unexpected(err)
	}
	r.Clock.Saw(at)
	return answer{Code: acquireGranted, rest: [3]int64{at.Stamp, at.Stamp}, vacant: true, sample: at}, nil
}

// exec sends a script. The sample has no stamp yet.
func (r *Remote) exec(ctx context.Context, s *wire.Script, keys, args []string) ([]rueidis.RedisMessage, clock.Sample, error) {
	result, sent, err := r.send(ctx, s, keys, args)
	if err != nil {
		return nil, clock.Sample{}, err
	}
	return r.listOf(ctx, result, clock.SampleSince(sent))
}

// listOf returns the reply of a command that was sent; one that is a number as a list of one.
func (r *Remote) listOf(ctx context.Context, result rueidis.RedisResult, at clock.Sample) ([]rueidis.RedisMessage, clock.Sample, error) {
	m, err := result.ToMessage()
	if err == nil && m.IsInt64() {
		return []rueidis.RedisMessage{m}, at, nil
	}
	var list []rueidis.RedisMessage
	if err == nil {
		list, err = m.ToArray()
	}
	if err != nil {
		return nil, clock.Sample{}, r.failed(ctx, result, err)
	}
	return list, at, nil
}

// checkTokens returns an error for a block of tokens that no script gives out: a session that trusted it would ask for
// still higher ones, for every lock.
func (a *answer) checkTokens(first, last int64) error {
	if first < 1 || first > last || last > a.sample.Stamp+protocol.Farthest.Microseconds() {
		return fmt.Errorf("tokens %d to %d at %d", first, last, a.sample.Stamp)
	}
	return nil
}
