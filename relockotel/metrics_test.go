package relockotel_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/embedded"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
	"github.com/relock-go/relock/relockotel"
)

const second = time.Second

func TestCallsAreCountedByTheirResult(t *testing.T) {
	for want, call := range map[string]func(t *testing.T, s *fixture, b *memory.Backend){
		"acquired": func(t *testing.T, s *fixture, b *memory.Backend) { hold(t, s.session(b), "a") },
		"busy":     func(t *testing.T, s *fixture, b *memory.Backend) { hold(t, other(t, b), "a"); tryLock(t, s.session(b)) },
		"timeout": func(t *testing.T, s *fixture, b *memory.Backend) {
			hold(t, other(t, b), "a")
			lockFor(t, s.session(b), second)
		},
		"cancelled": func(t *testing.T, s *fixture, b *memory.Backend) { lockFor(t, s.session(b), 0) },
		"refused":   refusedCall,
		"closed":    closedCall,
		"lost":      lostCall,
		"not_held":  resumeOfNothing,
		"deadlock":  deadlockedCall,
		"error": func(_ *testing.T, s *fixture, b *memory.Backend) {
			_ = s.session(b).NewLock("").Lock(context.Background())
		},
		"reentered": func(t *testing.T, s *fixture, b *memory.Backend) {
			session := s.session(b)
			hold(t, session, "a")
			hold(t, session, "a")
		},
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFixture(t)
				call(t, s, memory.New())
				counts := s.count("relock.lock.acquisitions")
				assert.EqualValues(t, 1, counts["relock.result="+want], "%v", counts)
				delete(counts, "relock.result="+want)
				delete(counts, "relock.result=acquired") // counted before that result
				assert.Empty(t, counts)
				waits := s.times("relock.lock.wait.duration")
				if want == "reentered" {
					assert.NotContains(t, waits, "relock.result=reentered")
				} else {
					assert.EqualValues(t, 1, waits["relock.result="+want].count)
				}
			})
		})
	}
}

func as(name string) context.Context { return reentrant.WithOwner(context.Background(), name) }

func hold(t *testing.T, s *reentrant.Session, owner string) {
	t.Helper()
	require.NoError(t, s.NewLock("x").Lock(as(owner)))
}

func release(t *testing.T, s *reentrant.Session, owner string) {
	t.Helper()
	require.NoError(t, s.NewLock("x").Unlock(as(owner)))
}

// other opens a session without metrics.
func other(t *testing.T, b backend.Backend) *reentrant.Session {
	t.Helper()
	s, err := reentrant.NewSession(b)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), second)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s
}

func tryLock(t *testing.T, s *reentrant.Session) {
	ok, err := s.NewLock("x").TryLock(as("b"))
	require.NoError(t, err)
	require.False(t, ok)
}

// lockFor waits until a deadline. If that has passed already, the call counts as cancelled.
func lockFor(t *testing.T, s *reentrant.Session, d time.Duration) {
	ctx, cancel := context.WithTimeout(as("b"), max(d, time.Nanosecond))
	defer cancel()
	if d == 0 {
		cancel()
	}
	require.Error(t, s.NewLock("x").Lock(ctx))
}

func refusedCall(t *testing.T, s *fixture, b *memory.Backend) {
	b.SetFault(memory.Script(memory.Acquire, memory.Refuse("WRONGPASS")))
	require.ErrorContains(t, s.session(b).NewLock("x").Lock(as("a")), "WRONGPASS")
}

func closedCall(t *testing.T, s *fixture, b *memory.Backend) {
	session := s.session(b)
	require.NoError(t, session.Close(t.Context()))
	require.ErrorIs(t, session.NewLock("x").Lock(as("a")), reentrant.ErrClosed)
}

func lostCall(t *testing.T, s *fixture, b *memory.Backend) {
	session := s.session(b)
	hold(t, session, "a")
	b.Flush()
	require.ErrorIs(t, session.NewLock("x").Lock(as("a")), reentrant.ErrLost)
}

func resumeOfNothing(t *testing.T, s *fixture, b *memory.Backend) {
	err := s.session(b).NewLock("x").Resume(reentrant.WithPortableOwner(t.Context(), "p"))
	require.ErrorIs(t, err, reentrant.ErrNotHeld)
}

func deadlockedCall(t *testing.T, s *fixture, b *memory.Backend) {
	session := s.session(b, reentrant.WithDeadlockDetection())
	x, y := session.NewLock("x"), session.NewLock("y")
	require.NoError(t, x.Lock(as("a")))
	require.NoError(t, y.Lock(as("b")))
	var others sync.WaitGroup
	others.Go(func() {
		if x.Lock(as("b")) == nil {
			_ = x.Unlock(as("b"))
		}
		_ = y.Unlock(as("b"))
	})
	synctest.Wait()
	err := y.Lock(as("a"))
	if err == nil { // the other owner was chosen to fail
		_ = y.Unlock(as("a"))
	}
	require.NoError(t, x.Unlock(as("a")))
	others.Wait()
}

func TestTimesAreThoseOfTheCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		session := s.session(memory.New())
		hold(t, session, "a")
		done := make(chan struct{})
		go func() {
			defer close(done)
			hold(t, session, "b")
			time.Sleep(2 * second)
			release(t, session, "b")
		}()
		synctest.Wait()
		time.Sleep(30 * second)
		release(t, session, "a")
		<-done
		assert.Equal(t, map[string]times{"relock.result=acquired": {2, 30}}, s.times("relock.lock.wait.duration"))
		assert.Equal(t, map[string]times{"relock.result=released": {2, 32}}, s.times("relock.lock.hold.duration"))

		point := s.metrics()["relock.lock.wait.duration"].Data.(metricdata.Histogram[float64]).DataPoints[0]
		assert.Contains(t, point.Bounds, reentrant.DefaultLease.Seconds(), "there are buckets for waits longer than a lease")
		assert.Less(t, point.Bounds[0], 0.001, "there are buckets as short as a round trip")
	})
}

func TestWhatASessionCountsIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		b := memory.New()
		session := s.session(b, reentrant.WithLease(3*second), reentrant.WithTurn(1, 0))
		rival := other(t, b)
		hold(t, session, "a")
		var waiting sync.WaitGroup
		for _, name := range []string{"b", "c", "d"} {
			waiting.Go(func() { hold(t, session, name); release(t, session, name) })
			synctest.Wait()
		}
		waiting.Go(func() { hold(t, rival, "r"); release(t, rival, "r") })
		time.Sleep(5 * second)
		assert.Equal(t, map[string]int64{"": 1}, s.count("relock.lock.held"))
		assert.Equal(t, map[string]int64{"": 3}, s.count("relock.lock.waiting"))
		release(t, session, "a")
		waiting.Wait()
		hold(t, session, "a")
		b.Flush()
		<-session.NewLock("x").Lost(as("a"))
		synctest.Wait() // the observer is called last

		stats := session.Stats()
		for name, want := range map[string]uint64{
			"relock.lock.handoffs": stats.Handoffs, "relock.lock.yields": stats.Yields, "relock.lock.renewals": stats.Renewals,
			"relock.lock.losses": stats.Lost, "relock.commands": stats.Commands,
		} {
			assert.NotZero(t, want, name)
			assert.Equal(t, map[string]int64{"": int64(want)}, s.count(name), name)
		}
		assert.EqualValues(t, stats.Acquired, s.count("relock.lock.acquisitions")["relock.result=acquired"])
		assert.EqualValues(t, stats.Lost, s.times("relock.lock.hold.duration")["relock.result=lost"].count)
	})
}

func TestSumsOfSessionsNeverFall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		assert.Empty(t, s.count("relock.commands"), "no session is watched")
		first, second := other(t, memory.New()), other(t, memory.New())
		stop := s.Watch(first)
		s.Watch(second)
		hold(t, first, "a")
		hold(t, second, "a")
		assert.Equal(t, map[string]int64{"": 2}, s.count("relock.lock.held"))
		before := s.count("relock.commands")
		require.GreaterOrEqual(t, before[""], int64(2))
		stop()
		stop()
		assert.Equal(t, before, s.count("relock.commands"))
		assert.Equal(t, map[string]int64{"": 1}, s.count("relock.lock.held"))
	})
}

func TestClosedTelemetryReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		session := s.session(memory.New())
		hold(t, session, "a")
		require.Contains(t, s.metrics(), "relock.lock.held")
		require.NoError(t, s.Close())
		require.NotContains(t, s.metrics(), "relock.lock.held")
		release(t, session, "a")
		assert.EqualValues(t, 1, s.times("relock.lock.hold.duration")["relock.result=released"].count, "observers still work")
	})
}

func TestTroubleWithTheBackendIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		rare := []string{"relock.lock.renewal.failures", "relock.lock.renewal.recoveries"}
		for _, name := range rare {
			assert.Equal(t, map[string]int64{"": 0}, s.count(name), "%s begins at 0", name)
		}
		assert.Equal(t, map[string]int64{"relock.cause=held": 0, "relock.cause=backend": 0}, s.count("relock.lock.long_waits"))

		b := memory.New()
		session, waiter := s.session(b, reentrant.WithLease(3*second)), s.session(b, reentrant.WithLease(3*second))
		hold(t, session, "a")
		b.SetFault(memory.Script(memory.Renew, memory.Lose, memory.Lose))
		time.Sleep(2 * second)
		for _, name := range rare {
			assert.Equal(t, map[string]int64{"": 1}, s.count(name), name)
		}

		lockFor(t, waiter, 4*second)
		b.Partition("B", true)
		lockFor(t, waiter, 8*second)
		assert.Equal(t, map[string]int64{"relock.cause=held": 1, "relock.cause=backend": 1}, s.count("relock.lock.long_waits"))

		b.Partition("A", true)
		<-session.NewLock("x").Lost(as("a"))
		synctest.Wait()
		lost := s.times("relock.lock.hold.duration")["relock.result=lost"]
		assert.EqualValues(t, 1, lost.count)
		assert.Greater(t, lost.sum, 14.0)
	})
}

// A lock that Redis has lost by the time of Unlock is reported twice, as released and as lost. It counts as one hold.
func TestAHoldThatIsLostAtUnlockIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		b := memory.New()
		session := s.session(b)
		hold(t, session, "a")
		b.Flush()
		time.Sleep(second)
		require.ErrorIs(t, session.NewLock("x").Unlock(as("a")), reentrant.ErrLost)
		assert.Equal(t, map[string]times{"relock.result=lost": {1, 1}}, s.times("relock.lock.hold.duration"))
	})
}

func TestNamesAreOnMetricsOnlyIfAskedFor(t *testing.T) {
	family := func(name string) string {
		family, _, _ := strings.Cut(name, ":")
		return strings.TrimPrefix(family, "private")
	}
	for want, opts := range map[string][]relockotel.Option{
		"": nil, "relock.lock.name=order,": {relockotel.WithLockName(family)},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newFixture(t, opts...)
			session := s.session(memory.New())
			for _, name := range []string{"order:1", "order:2", "private"} {
				require.NoError(t, session.NewLock(name).Lock(as("alice")))
				require.NoError(t, session.NewLock(name).Unlock(as("alice")))
			}
			counts := s.count("relock.lock.acquisitions")
			waits, holds := s.times("relock.lock.wait.duration"), s.times("relock.lock.hold.duration")
			if want == "" {
				assert.Equal(t, map[string]int64{"relock.result=acquired": 3}, counts)
			} else {
				assert.Equal(t, map[string]int64{"relock.result=acquired": 1, want + "relock.result=acquired": 2}, counts)
			}
			assert.Contains(t, waits, want+"relock.result=acquired")
			assert.Contains(t, holds, want+"relock.result=released")
			for name, m := range s.metrics() {
				assert.NotContains(t, attributesOf(m), "relock.owner", name)
				assert.Subset(t, []string{"relock.result", "relock.cause", "relock.lock.name"}, attributesOf(m), name)
			}
		})
	}
}

// attributesOf returns the keys of a metric's attributes.
func attributesOf(m metricdata.Metrics) []string {
	keys := map[string]bool{}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			for _, kv := range p.Attributes.ToSlice() {
				keys[string(kv.Key)] = true
			}
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			for _, kv := range p.Attributes.ToSlice() {
				keys[string(kv.Key)] = true
			}
		}
	}
	return sortedKeys(keys)
}

// The counts of events agree with the counters of the session, even if everything happens at once and metrics are read
// meanwhile.
func TestConcurrentUse(t *testing.T) {
	s := newFixture(t, relockotel.WithLockName(func(name string) string { return name }))
	b := memory.New()
	lasting := []reentrant.Option{reentrant.WithLease(time.Minute), reentrant.WithHeartbeat(20 * time.Second)}
	sessions := []*reentrant.Session{s.session(b, lasting...), s.session(b, lasting...)}
	passing := other(t, b)
	stop := make(chan struct{})
	var reading, working sync.WaitGroup
	reading.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				s.metrics()
				s.Watch(passing)()
			}
		}
	})
	const each = 50
	for worker := range 8 {
		working.Go(func() {
			session := sessions[worker%len(sessions)]
			for i := range each {
				ctx, span := s.caller("w")
				ctx = reentrant.WithOwner(ctx, string(rune('a'+worker)))
				l := session.NewLock(string(rune('x' + i%2)))
				assert.NoError(t, l.Do(ctx, func(ctx context.Context) error {
					return l.Do(ctx, func(context.Context) error { return nil })
				}))
				span.End()
			}
		})
	}
	working.Wait()
	close(stop)
	reading.Wait()
	counts := s.count("relock.lock.acquisitions")
	for _, name := range []string{"x", "y"} {
		assert.EqualValues(t, 8*each/2, counts["relock.lock.name="+name+",relock.result=acquired"], "%v", counts)
		assert.EqualValues(t, 8*each/2, counts["relock.lock.name="+name+",relock.result=reentered"], "%v", counts)
		assert.EqualValues(t, 8*each/2, s.times("relock.lock.hold.duration")["relock.lock.name="+name+",relock.result=released"].count)
	}
	assert.Equal(t, map[string]int64{"": int64(sessions[0].Stats().Handoffs + sessions[1].Stats().Handoffs)}, s.count("relock.lock.handoffs"))
	s.flush()
	names := map[string]int{}
	for _, span := range s.spans.GetSpans() {
		names[span.Name]++
	}
	assert.Equal(t, map[string]int{"w": 8 * each, "relock.acquire": 16 * each, "relock.hold": 8 * each}, names)
}

// A broken meter refuses every instrument.
type broken struct {
	noop.Meter
	callbacks bool
}

var errFull = errors.New("full")

func (b broken) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	if b.callbacks {
		return noop.Int64Counter{}, nil
	}
	return nil, errFull
}

func (broken) RegisterCallback(metric.Callback, ...metric.Observable) (metric.Registration, error) {
	return nil, errFull
}

type brokenProvider struct {
	embedded.MeterProvider
	meter broken
}

func (p brokenProvider) Meter(string, ...metric.MeterOption) metric.Meter { return p.meter }

func TestAMeterThatRefusesIsAnError(t *testing.T) {
	for _, callbacks := range []bool{false, true} {
		_, err := relockotel.New(relockotel.WithMeterProvider(brokenProvider{meter: broken{callbacks: callbacks}}))
		require.ErrorIs(t, err, errFull)
	}
}

func TestTheGlobalProvidersAreTheDefault(t *testing.T) {
	tel, err := relockotel.New()
	require.NoError(t, err)
	session, err := reentrant.NewSession(memory.New(), reentrant.WithObserver(tel.Observer()))
	require.NoError(t, err)
	defer tel.Watch(session)()
	require.NoError(t, session.NewLock("x").Lock(t.Context()))
	require.NoError(t, session.NewLock("x").Unlock(t.Context()))
	require.NoError(t, session.Close(t.Context()))
	require.NoError(t, tel.Close())
}
