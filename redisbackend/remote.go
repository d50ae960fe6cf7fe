package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
)

// A remote is one lock as Redis knows it, seen by one session. It is immutable.
type remote struct {
	conn  *conn
	keys  keys
	clock *clock
}

var _ backend.Remote = (*remote)(nil)

// Name implements backend.Remote.
func (r *remote) Name() string { return r.keys.hold()[len(r.conn.deployment.prefix):] }

// What the scripts answer; their headers say what it means.
const (
	acquireGranted, acquireWaiting, acquireStale, acquireLate = 1, 2, 3, 4
	reenterDone, reenterGone                                  = 1, 2
	releaseReleased, releaseWithdrawn, releaseNothing         = 1, 2, 3
	forceHeld                                                 = 1
)

// Acquire implements backend.Remote. It is one command, unless Redis refuses it as late although its time has not
// come: then what is known of Redis's clock was missing or too careful. The answer carries the clock, so a second
// copy is right or really late.
func (r *remote) Acquire(ctx context.Context, req backend.AcquireRequest) (backend.AcquireReply, error) {
	if err := checkAcquire(&req); err != nil {
		return backend.AcquireReply{}, err
	}
	limit := instantOf(req.NotAfter)
	a, err := r.acquire(ctx, &req, r.clock.notAfter(limit))
	if err == nil && a.code == acquireLate && a.sample.received < limit {
		a, err = r.acquire(ctx, &req, mapping{}.with(a.sample).notAfter(limit))
	}
	if err != nil {
		return backend.AcquireReply{}, err
	}
	switch a.code {
	case acquireGranted:
		if err := a.checkTokens(a.rest[0], a.rest[1]); err != nil {
			return backend.AcquireReply{}, unexpected(err)
		}
		return backend.AcquireReply{Status: backend.Granted,
			First: backend.Token(a.rest[0]), Last: backend.Token(a.rest[1]),
			TTL: time.Duration(a.rest[2]) * time.Millisecond}, nil
	case acquireWaiting:
		if req.Queue {
			r.conn.listenFor(r)
		}
		return backend.AcquireReply{Status: backend.Waiting, TTL: time.Duration(a.rest[0]) * time.Millisecond}, nil
	case acquireStale:
		return backend.AcquireReply{Status: backend.Stale}, nil
	case acquireLate:
		return backend.AcquireReply{}, unavailable(errors.New("it reached Redis too late and was not carried out"))
	}
	return backend.AcquireReply{}, unexpected(fmt.Errorf("code %d", a.code))
}

// acquire sends one copy.
func (r *remote) acquire(ctx context.Context, req *backend.AcquireRequest, notAfter int64) (answer, error) {
	var d draft
	d.add(req.Epoch)
	d.add(uint64(req.Holds))
	d.add(millis(req.Lease))
	d.add(uint64(notAfter))
	d.add(uint64(req.Tokens))
	d.add(uint64(req.Seen))
	d.add(roundUp(req.Patience, time.Millisecond))
	d.add(millis(req.GrantTTL))
	d.add(keepFor(max(req.Lease, req.GrantTTL)))
	n := d.cut()
	args := [...]string{r.conn.session, n[0], req.Owner, n[1], n[2], n[3], flags(req), n[4], n[5], n[6], n[7],
		r.conn.deployment.channels, n[8]}
	if r.conn.deployment.replicas.n > 0 {
		return r.acquireReplicated(ctx, args[:], req.NotAfter)
	}
	return r.run(ctx, &r.conn.deployment.scripts.acquire, r.keys[:], args[:], 3)
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
func (r *remote) Reenter(ctx context.Context, req backend.ReenterRequest) (backend.ReenterReply, error) {
	if err := checkReenter(&req); err != nil {
		return backend.ReenterReply{}, err
	}
	var d draft
	d.add(req.Epoch)
	d.add(req.Op)
	d.add(uint64(req.Holds))
	d.add(millis(req.Lease))
	n := d.cut()
	args := [...]string{r.conn.session, n[0], req.Owner, n[1], n[2], n[3]}
	a, err := r.run(ctx, &r.conn.deployment.scripts.reenter, r.keys[:2], args[:], 1)
	switch {
	case err != nil:
		return backend.ReenterReply{}, err
	case a.code == reenterDone:
		return backend.ReenterReply{Holds: int(a.rest[0])}, nil
	case a.code == reenterGone:
		return backend.ReenterReply{Gone: true}, nil
	}
	return backend.ReenterReply{}, unexpected(fmt.Errorf("code %d", a.code))
}

// Release implements backend.Remote.
func (r *remote) Release(ctx context.Context, req backend.ReleaseRequest) (backend.ReleaseResult, error) {
	if err := checkRelease(&req); err != nil {
		return 0, err
	}
	// How long from now, not until when: Redis counts from when it gets this, which is later, so the tombstone
	// lasts long enough whatever is known of Redis's clock.
	doubt := left(req.Until)
	var d draft
	d.add(req.Epoch)
	d.add(roundUp(doubt, time.Microsecond))
	d.add(uint64(req.Used))
	d.add(keepFor(doubt))
	n := d.cut()
	args := [...]string{r.conn.session, n[0], n[1], n[2], r.conn.deployment.channels, n[3]}
	a, err := r.run(ctx, &r.conn.deployment.scripts.release, r.keys[:], args[:], 0)
	switch {
	case err != nil:
		return 0, err
	case a.code == releaseReleased:
		return backend.Released, nil
	case a.code == releaseWithdrawn:
		return backend.Withdrawn, nil
	case a.code == releaseNothing:
		return backend.Nothing, nil
	}
	return 0, unexpected(fmt.Errorf("code %d", a.code))
}

// ForceUnlock implements backend.Remote.
func (r *remote) ForceUnlock(ctx context.Context) (bool, error) {
	args := [...]string{r.conn.deployment.channels}
	a, err := r.run(ctx, &r.conn.deployment.scripts.force, r.keys[:], args[:], 0)
	return a.code == forceHeld, err
}

// Inspect implements backend.Remote. The owner is as the holder wrote it, whoever the holder is.
func (r *remote) Inspect(ctx context.Context) (backend.State, error) {
	list, at, err := r.exec(ctx, &r.conn.deployment.scripts.inspect, r.keys[:], nil)
	if err != nil {
		return backend.State{}, err
	}
	l := reader{list: list}
	at.stamp = l.number()
	field, holds, ttl := l.word(), l.number(), l.number()
	_, last := l.number(), l.number()
	session, epoch, _ := l.word(), l.number(), l.word()
	state := backend.State{Token: backend.Token(last)}
	if field != "" {
		state.Locked, state.Holds, state.TTL = true, int(holds), time.Duration(ttl)*time.Millisecond
		state.Session, state.Owner, _ = strings.Cut(field, ":")
		if session == state.Session {
			state.Epoch = uint64(epoch)
		}
	}
	for l.err == nil && len(l.list) > 0 {
		state.Waiting = append(state.Waiting, l.word())
	}
	if l.err != nil {
		return backend.State{}, unexpected(l.err)
	}
	r.clock.saw(at)
	return state, nil
}

// A reader takes an answer apart, element by element. After the first one that is not as expected, err is set and
// all that follow are zero.
type reader struct {
	list []rueidis.RedisMessage
	err  error
}

func (l *reader) next() (m rueidis.RedisMessage, ok bool) {
	if l.err == nil && len(l.list) == 0 {
		l.err = errors.New("too short")
	}
	if l.err != nil {
		return m, false
	}
	m, l.list = l.list[0], l.list[1:]
	return m, true
}

func (l *reader) number() (n int64) {
	if m, ok := l.next(); ok {
		n, l.err = m.ToInt64()
	}
	return n
}

func (l *reader) word() (s string) {
	if m, ok := l.next(); ok {
		s, l.err = m.ToString()
	}
	return s
}

// An answer is what a script of a single lock returns: a code, Redis's time, and up to three numbers.
type answer struct {
	code   int64
	rest   [3]int64
	sample sample
}

// run sends a script and reads its answer.
func (r *remote) run(ctx context.Context, s *script, keys, args []string, n int) (a answer, err error) {
	list, at, err := r.exec(ctx, s, keys, args)
	if err != nil {
		return answer{}, err
	}
	return r.decode(list, at, n)
}

// decode reads an answer with n numbers beside the code and the time.
func (r *remote) decode(list []rueidis.RedisMessage, at sample, n int) (a answer, err error) {
	l := reader{list: list}
	a.code, at.stamp = l.number(), l.number()
	for i := range n {
		a.rest[i] = l.number()
	}
	if l.err != nil {
		return answer{}, unexpected(l.err)
	}
	r.clock.saw(at)
	a.sample = at
	return a, nil
}

// exec sends a script. The sample has no stamp yet.
func (r *remote) exec(ctx context.Context, s *script, keys, args []string) ([]rueidis.RedisMessage, sample, error) {
	return r.read(ctx, func() rueidis.RedisResult { return s.Exec(ctx, r.conn.deployment.client, keys, args) })
}

// read does what sends a script, and says when.
func (r *remote) read(ctx context.Context, send func() rueidis.RedisResult) ([]rueidis.RedisMessage, sample, error) {
	sent := time.Now()
	if err := ctxErr(ctx, sent); err != nil {
		return nil, sample{}, fmt.Errorf("redisbackend: not sent: %w", err)
	}
	result := send()
	at := sample{sent: instantOf(sent), received: instantOf(time.Now())}
	list, err := result.ToArray()
	if err != nil {
		if result.NonRedisError() != nil {
			r.clock.forget() // the connection may have gone with it, and the next one lead elsewhere
		}
		return nil, sample{}, fail(ctx, err)
	}
	return list, at, nil
}

// checkTokens is the error of a block of tokens that no script gives out: a session that believed it would ask for still
// higher ones, of every lock.
func (a *answer) checkTokens(first, last int64) error {
	if first < 1 || first > last || last > a.sample.stamp+protocol.Farthest.Microseconds() {
		return fmt.Errorf("tokens %d to %d at %d", first, last, a.sample.stamp)
	}
	return nil
}
