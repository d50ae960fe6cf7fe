package single

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/internal/protocol"
	"github.com/relock-go/relock/redisbackend/internal/clock"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// An answer is the reply of a script of a single lock: a code, Redis's time, and up to three numbers.
type answer struct {
	Code   int64
	rest   [3]int64
	vacant bool   // of acquire.lua: the lock was free, and the record is kept briefly
	keep   int64  // of acquire.lua, if not vacant: for how many seconds a record without tombstones is kept; else 0
	note   string // of acquire.lua: how the record ends (its keep and tombstones); of resume.lua: the hold's note
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

// decode reads a reply that has n numbers after the code and the time, and perhaps one more number or text after these.
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

// readAcquire reads the reply of acquire.lua. To save an allocation it makes no list of a reply that is one number.
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

// decodeAcquire reads the reply of acquire.lua as a list, which has a single number if the lock was free.
func (r *Remote) decodeAcquire(list []rueidis.RedisMessage, at clock.Sample) (answer, error) {
	if len(list) == 1 {
		return r.decodeVacant(&list[0], at)
	}
	return r.decode(list, at, 3)
}

// decodeVacant reads the reply for a lock that was free: one number, which is both the token and the time.
func (r *Remote) decodeVacant(m *rueidis.RedisMessage, at clock.Sample) (a answer, err error) {
	if at.Stamp, err = m.ToInt64(); err != nil {
		return a, wire.Unexpected(err)
	}
	r.Clock.Saw(at)
	return answer{Code: acquireGranted, rest: [3]int64{at.Stamp, at.Stamp}, vacant: true, sample: at}, nil
}

// checkTokens returns an error for a block of tokens that no script gives out. A session that trusted such a block would
// then ask for still higher tokens, for every lock.
func (a *answer) checkTokens(first, last int64) error {
	if first < 1 || first > last || last > a.sample.Stamp+protocol.Farthest.Microseconds() {
		return fmt.Errorf("tokens %d to %d at %d", first, last, a.sample.Stamp)
	}
	return nil
}

// exec sends a script, and returns its reply as a list, and a sample of Redis's clock that has no stamp yet.
func (r *Remote) exec(ctx context.Context, s *wire.Script, keys, args []string) ([]rueidis.RedisMessage, clock.Sample, error) {
	result, sent, err := r.send(ctx, s, keys, args)
	if err != nil {
		return nil, clock.Sample{}, err
	}
	return r.listOf(ctx, result, clock.SampleSince(sent))
}

// listOf returns the reply of a command that was sent, as a list: a number becomes a list of one.
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

// A reader reads a reply element by element. After the first unexpected element, err is set, and all that is read later is
// zero.
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
