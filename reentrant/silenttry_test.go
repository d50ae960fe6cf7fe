package reentrant_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/reentrant"
)

// The session first gives back what its callers no longer need. The reply to that says nothing about the try.
func TestATimedTryTakesNoReplyAboutSomethingElseForItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		m := newSession(t, b).NewSemaphore("x", 1)
		require.NoError(t, m.Acquire(t.Context(), 1))
		b.SetFault(memory.Script(memory.Share, memory.DelayReply(10*time.Millisecond), memory.DelayReply(time.Hour)))
		require.NoError(t, m.Release(t.Context(), 1))
		synctest.Wait() // the permit is being given back
		begun := time.Now()
		ok, err := m.TryAcquireFor(t.Context(), 1, 50*time.Millisecond)
		require.ErrorIs(t, err, reentrant.ErrUnavailable)
		assert.True(t, reentrant.OutcomeUnknown(err))
		assert.False(t, ok)
		assert.Equal(t, 260*time.Millisecond, time.Since(begun), "an eighth of a command's time since it was asked for the permit")
	})
}

// The permit that is on its way is for a caller that has left, and says nothing about a try for more.
func TestATryIsNotRefusedByAGrantForACallerThatHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		m := newSession(t, b).NewSemaphore("x", 2)
		b.SetFault(memory.Script(memory.Share, memory.DelayReply(10*time.Millisecond)))
		ok, err := m.TryAcquireFor(t.Context(), 1, time.Millisecond)
		require.NoError(t, err)
		require.True(t, ok, "it waits for the reply for a while")
		require.NoError(t, m.Release(t.Context(), 1))
		synctest.Wait()

		b.SetFault(memory.Script(memory.Share, memory.DelayReply(10*time.Millisecond)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, m.Acquire(ctx, 1), context.DeadlineExceeded)
		ok, err = m.TryAcquire(t.Context(), 2)
		require.NoError(t, err)
		assert.True(t, ok)
		require.NoError(t, m.Release(t.Context(), 2))
	})
}

// The other session gives up the read side that it does not use, and the message with the grant is lost.
func TestATryWhoseGrantIsLostAsksOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other := newSession(t, b), newSession(t, b)
		read := other.NewRWLock("x")
		require.NoError(t, read.RLock(t.Context()))
		require.NoError(t, read.RUnlock(t.Context()))
		b.SetFault(func(op memory.Op) memory.Verdict {
			return memory.Verdict{Lost: op.Verb == memory.Push && op.Session == "A"}
		})
		begun := time.Now()
		ok, err := s.NewRWLock("x").TryLock(t.Context())
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, time.Second, time.Since(begun), "a heartbeat")
		require.NoError(t, s.NewRWLock("x").Unlock(t.Context()))
	})
}

// The try asks again because a session does not answer. The message that the other sessions then get still says that it is a try.
func TestATryThatAsksAgainIsNoWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s, other, slow := newSession(t, b), newSession(t, b), newSession(t, b)
		require.NoError(t, other.NewSemaphore("x", 3).Acquire(t.Context(), 1))
		require.NoError(t, slow.NewSemaphore("x", 3).Acquire(t.Context(), 1))
		wanted := other.NewSemaphore("x", 3).Wanted()
		b.SetFault(func(op memory.Op) memory.Verdict {
			return memory.Verdict{Lost: op.Verb == memory.Push && op.Session == "C"}
		})
		ok, err := s.NewSemaphore("x", 3).TryAcquire(t.Context(), 2)
		require.NoError(t, err)
		assert.False(t, ok)
		assert.True(t, unasked(wanted))
		b.SetFault(nil)
		require.NoError(t, other.NewSemaphore("x", 3).Release(t.Context(), 1))
		require.NoError(t, slow.NewSemaphore("x", 3).Release(t.Context(), 1))
	})
}

// An earlier try left behind what the server may have granted. No other owner has the lock, so a try waits for the clean-up for a
// while, or says that the server does not reply.
func TestATimedTryDuringACleanUpIsNotRefused(t *testing.T) {
	for name, c := range map[string]struct{ release, took time.Duration }{
		"the server replies": {20 * time.Millisecond, 20 * time.Millisecond},
		"the server is gone": {time.Hour, 250 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				l := newSession(t, b).NewLock("x")
				b.SetFault(func(op memory.Op) memory.Verdict {
					switch {
					case op.Verb == memory.Release:
						return memory.DelayReply(c.release)
					case op.Verb == memory.Acquire && op.Epoch == 1:
						return memory.LoseReply
					}
					return memory.Pass
				})
				_, err := l.TryLock(t.Context())
				require.ErrorIs(t, err, reentrant.ErrUnavailable)
				begun := time.Now()
				ok, err := l.TryLockFor(t.Context(), 5*time.Millisecond)
				if c.took == c.release {
					require.NoError(t, err)
					assert.True(t, ok)
					require.NoError(t, l.Unlock(t.Context()))
				} else {
					require.ErrorIs(t, err, reentrant.ErrUnavailable)
				}
				assert.Equal(t, c.took, min(time.Since(begun), c.took))
				assert.LessOrEqual(t, time.Since(begun), c.took+c.release%time.Hour)
				b.SetFault(nil)
			})
		})
	}
}

// A lonelyProgram tries and tries, while commands and replies are lost or late and connections break. No other owner has
// anything, so each try succeeds, or its error says that the server did not reply.
type lonelyProgram struct {
	t     *testing.T
	rnd   *rand.Rand
	b     *memory.Backend
	ways  []lonelyWay
	other func(ctx context.Context) error // takes and gives back in another session; nil: there is none
	loses bool                            // messages are lost, too

	mu    sync.Mutex // guards what follows, and rnd
	fails bool
	trace []string
}

type lonelyWay struct {
	name  string
	try   func(ctx context.Context) (bool, error)
	leave func(ctx context.Context) error
}

func (p *lonelyProgram) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trace = append(p.trace, fmt.Sprintf(format, args...))
}

func (p *lonelyProgram) story() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.trace, "\n")
}

func (p *lonelyProgram) random(most time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration(1 + p.rnd.Int64N(int64(most)))
}

func (p *lonelyProgram) chance(of int) bool { return p.random(time.Duration(of)) == 1 }

func (p *lonelyProgram) judge(op memory.Op) memory.Verdict {
	p.mu.Lock()
	fails := p.fails && op.Session == "A"
	p.mu.Unlock()
	switch {
	case !fails || op.Verb == memory.Push && !p.loses:
		return memory.Pass
	case op.Verb == memory.Push:
		return memory.Verdict{Lost: p.chance(2)}
	}
	v := memory.Verdict{Delay: p.random(5 * time.Millisecond), Late: p.random(5 * time.Millisecond)}
	switch p.random(6) {
	case 1:
		v.Lost = true
	case 2:
		v.Mute = true
	case 3:
		v.Late = time.Hour
	case 4:
		v.Delay = time.Hour
	}
	return v
}

// lonelyKinds are what the programs try for. The last result takes and gives back all of it in another session.
var lonelyKinds = map[string]func(p *lonelyProgram, s, other *reentrant.Session) ([]lonelyWay, func(context.Context) error){
	"lock": func(p *lonelyProgram, s, other *reentrant.Session) ([]lonelyWay, func(context.Context) error) {
		l, o := s.NewLock("x"), other.NewLock("x")
		return []lonelyWay{{"try", l.TryLock, l.Unlock}, p.timed("timed", l.TryLockFor, l.Unlock)}, both(o.Lock, o.Unlock)
	},
	"sides": func(p *lonelyProgram, s, _ *reentrant.Session) ([]lonelyWay, func(context.Context) error) {
		l := s.NewRWLock("x")
		return []lonelyWay{{"write", l.TryLock, l.Unlock}, {"read", l.TryRLock, l.RUnlock},
			p.timed("timed write", l.TryLockFor, l.Unlock), p.timed("timed read", l.TryRLockFor, l.RUnlock)}, nil
	},
	"sides, beside a session that keeps one": func(p *lonelyProgram, s, other *reentrant.Session) ([]lonelyWay, func(context.Context) error) {
		p.loses = true
		l, o := s.NewRWLock("x"), other.NewRWLock("x")
		return []lonelyWay{{"write", l.TryLock, l.Unlock}, {"read", l.TryRLock, l.RUnlock}}, both(o.RLock, o.RUnlock)
	},
	"permits": func(p *lonelyProgram, s, other *reentrant.Session) ([]lonelyWay, func(context.Context) error) {
		m, o := s.NewSemaphore("x", 2), other.NewSemaphore("x", 2)
		permits := func(of *reentrant.Semaphore, f func(*reentrant.Semaphore, context.Context, int) error, n int) func(context.Context) error {
			return func(ctx context.Context) error { return f(of, ctx, n) }
		}
		one, two := permits(m, (*reentrant.Semaphore).Release, 1), permits(m, (*reentrant.Semaphore).Release, 2)
		return []lonelyWay{
			{"one", func(ctx context.Context) (bool, error) { return m.TryAcquire(ctx, 1) }, one},
			{"two", func(ctx context.Context) (bool, error) { return m.TryAcquire(ctx, 2) }, two},
			p.timed("timed one", func(ctx context.Context, d time.Duration) (bool, error) { return m.TryAcquireFor(ctx, 1, d) }, one),
		}, both(permits(o, (*reentrant.Semaphore).Acquire, 1), permits(o, (*reentrant.Semaphore).Release, 1))
	},
}

func (p *lonelyProgram) timed(name string, try func(context.Context, time.Duration) (bool, error), leave func(context.Context) error) lonelyWay {
	return lonelyWay{name, func(ctx context.Context) (bool, error) { return try(ctx, p.random(300*time.Millisecond)) }, leave}
}

func both(take, leave func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := take(ctx); err != nil {
			return err
		}
		return leave(ctx)
	}
}

// step makes one try, and may cut the connection meanwhile.
func (p *lonelyProgram) step() {
	ctx := p.t.Context()
	if p.other != nil && p.chance(4) {
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		p.say("the other session: %v", p.other(limited))
		cancel()
		time.Sleep(50 * time.Millisecond)
	}
	if p.chance(3) {
		time.AfterFunc(p.random(20*time.Millisecond), p.b.Restart)
	}
	way := p.ways[p.random(time.Duration(len(p.ways)))-1]
	ok, err := way.try(ctx)
	p.say("%s: %v, %v", way.name, ok, err)
	require.True(p.t, ok || err != nil, "no other owner has it:\n%s", p.story())
	if ok {
		time.Sleep(p.random(20 * time.Millisecond))
		p.say("leaves: %v", way.leave(ctx))
	}
	time.Sleep(p.random(20 * time.Millisecond))
}

func TestNoTryIsRefusedThatIsAlone(t *testing.T) {
	modes := [][]reentrant.Option{nil, {reentrant.WithCohort()}, {reentrant.WithAsyncUnlock()}, {reentrant.WithCohort(), reentrant.WithLinger(100 * time.Millisecond)}}
	for kind, with := range lonelyKinds {
		t.Run(kind, func(t *testing.T) {
			for seed := range uint64(testsize.Of(1000, 30)) {
				synctest.Test(t, func(t *testing.T) {
					p := &lonelyProgram{t: t, rnd: rand.New(rand.NewPCG(seed, 0))}
					p.b = memory.New(memory.WithTrace(func(line string) { p.say("   %s", line) }), memory.WithFault(p.judge))
					mode := modes[seed%4]
					s, other := newSession(t, p.b, mode...), newSession(t, p.b, mode...)
					var use func(context.Context) error
					if p.ways, use = with(p, s, other); seed%3 == 0 || p.loses {
						p.other = use
					}
					p.set(true)
					for range 30 {
						p.step()
					}
					p.set(false)
				})
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

func (p *lonelyProgram) set(fails bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fails = fails
}
