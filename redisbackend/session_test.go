package redisbackend_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// calm are options with which a session loses nothing while the machine stands still: no lease, no place, and no lock that was
// pushed to it.
var calm = []reentrant.Option{reentrant.WithLease(time.Minute), reentrant.WithHeartbeat(10 * time.Second)}

// slow is a time that a call takes only if this machine stands still. A session gives a command twice as long.
const slow = time.Second

// orLater calls Unlock, and ignores the error that the reply came too late: then the session repeats the release in the
// background.
func orLater(unlock func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		began := time.Now()
		err := unlock(ctx)
		if errors.Is(err, reentrant.ErrUnavailable) && time.Since(began) > slow {
			return nil
		}
		return err
	}
}

// again makes a call that asks Redis. If the reply comes too late, again makes the call once more.
func again(ask func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for end := time.Now().Add(limit); ; {
			began := time.Now()
			err := ask(ctx)
			if !errors.Is(err, reentrant.ErrUnavailable) || time.Since(began) < slow || time.Now().After(end) {
				return err
			}
		}
	}
}

// A house is a Redis of its own, and one session on it.
type house struct {
	session *reentrant.Session
	bare    *bare // on the session's own client
}

func newHouse(tb testing.TB, opts ...reentrant.Option) *house {
	client := connect(tb, redisserver.Start(tb).Addr())
	backend, err := redisbackend.New(client)
	require.NoError(tb, err)
	session, err := reentrant.NewSession(backend, slices.Concat(calm, opts)...)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = session.Close(ctx)
	})
	return &house{session, newBare(client, 4, 13)}
}

// commands returns how many scripts the server runs while f runs.
func (h *house) commands(tb testing.TB, f func()) int {
	before := evals(tb, h.bare.client)
	f()
	return evals(tb, h.bare.client) - before
}

// fewest runs f several times, and returns the smallest number of scripts that the server runs during a run. A command whose
// reply comes too late is sent again, and there are renewals, so the number may be larger than f needs.
func (h *house) fewest(tb testing.TB, f func()) int {
	n := h.commands(tb, f)
	for range 4 {
		n = min(n, h.commands(tb, f))
	}
	return n
}

// turns makes goroutines take turns at a lock, for the given number of sections, and asserts that no two goroutines are inside
// at once.
func (h *house) turns(tb testing.TB, goroutines, sections int) {
	l := h.session.NewLock("turns")
	var wg sync.WaitGroup
	inside, done := 0, 0 // guarded by the lock under test
	for range goroutines {
		wg.Go(func() {
			for {
				if err := l.Lock(tb.Context()); err != nil {
					tb.Error(err)
					return
				}
				inside++
				if inside != 1 {
					tb.Error("two are inside")
				}
				inside--
				more := done < sections
				done++
				if err := orLater(l.Unlock)(tb.Context()); err != nil {
					tb.Error(err)
				}
				if !more {
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestAnUncontendedSectionIsTwoCommands(t *testing.T) {
	h := newHouse(t)
	l := h.session.NewLock("alone")
	section := func() {
		require.NoError(t, l.Lock(t.Context()))
		require.NoError(t, orLater(l.Unlock)(t.Context()))
	}
	section() // the first section synchronizes the clocks, and loads the scripts
	assert.Equal(t, 20, h.fewest(t, func() {
		for range 10 {
			section()
		}
	}))
}

func TestReentryIsTwoCommands(t *testing.T) {
	h := newHouse(t)
	l := h.session.NewLock("again")
	require.NoError(t, l.Lock(t.Context()))
	require.NoError(t, l.Lock(t.Context()))
	assert.Equal(t, 20, h.fewest(t, func() {
		for range 10 {
			require.NoError(t, l.Lock(t.Context()))
			require.NoError(t, orLater(l.Unlock)(t.Context()))
		}
	}))
	require.NoError(t, orLater(l.Unlock)(t.Context()))
	require.NoError(t, orLater(l.Unlock)(t.Context()))
}

// One command does the Unlock of a goroutine and the Lock of the next. A few more commands come from the ends of the run, when
// the queue is empty, from replies that come too late, and from renewals.
func TestALocallyContendedSectionIsOneCommand(t *testing.T) {
	h := newHouse(t)
	h.turns(t, 10, 10)
	const sections = 5000
	n := h.commands(t, func() { h.turns(t, 100, sections) })
	assert.LessOrEqual(t, float64(n), 1.05*sections)
	assert.GreaterOrEqual(t, n, sections, "the server saw every hold")
}

func TestWaitingCostsRedisNothingButTheHeadsHeartbeat(t *testing.T) {
	h := newHouse(t, reentrant.WithHeartbeat(50*time.Millisecond), reentrant.WithLease(time.Hour))
	l := h.session.NewLock("held")
	require.NoError(t, l.Lock(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() { assert.ErrorIs(t, l.Lock(ctx), context.Canceled) })
	}
	require.Eventually(t, func() bool { return l.QueueLength() == 100 }, time.Minute, time.Millisecond)
	n := h.commands(t, func() { time.Sleep(200 * time.Millisecond) }) // no event ends this wait, since nothing must be sent
	assert.Zero(t, n, "while an owner of the same process has the lock no waiter asks Redis")
	cancel()
	wg.Wait()
	require.NoError(t, orLater(l.Unlock)(t.Context()))
}

// BenchmarkSessionUncontended measures Lock and Unlock of a free lock, and two round trips of a script that does nothing. The
// two measurements take turns on the same connection.
func BenchmarkSessionUncontended(b *testing.B) {
	h := newHouse(b)
	l := h.session.NewLock("alone")
	ctx := b.Context()
	yardstick := deadline{context.Background(), time.Now().Add(time.Hour)}
	var spent [2]time.Duration
	round := func() {
		start := time.Now()
		if l.Lock(ctx) != nil || l.Unlock(ctx) != nil {
			b.Fatal("failed")
		}
		middle := time.Now()
		for range 2 {
			if h.bare.call(yardstick) != nil {
				b.Fatal("failed")
			}
		}
		spent[0] += middle.Sub(start)
		spent[1] += time.Since(middle)
	}
	round()
	spent = [2]time.Duration{}
	n := h.commands(b, func() {
		for b.Loop() {
			round()
		}
	})
	b.ReportMetric(float64(spent[0])/float64(b.N), "lock+unlock-ns/op")
	b.ReportMetric(float64(spent[1])/float64(b.N), "two-bare-ns/op")
	b.ReportMetric(float64(spent[0])/float64(spent[1]), "ratio")
	b.ReportMetric(float64(n-2*b.N)/float64(b.N), "redis-commands/op")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSessionLockUnlock is BenchmarkSessionUncontended without the comparison, to count allocations; BenchmarkBareTwice
// counts the allocations of the bare calls.
func BenchmarkSessionLockUnlock(b *testing.B) {
	h := newHouse(b)
	l := h.session.NewLock("alone")
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if l.Lock(ctx) != nil || l.Unlock(ctx) != nil {
			b.Fatal("failed")
		}
	}
}

// BenchmarkSessionContended has a hundred goroutines of one process take turns. For comparison, two goroutines alternate with a
// script that does nothing, which shows what a hand-over would cost if it were only its one command. Slices of both
// measurements alternate, since the machine's speed varies.
func BenchmarkSessionContended(b *testing.B) {
	h := newHouse(b)
	h.turns(b, 100, 100)
	var spent [2]time.Duration
	commands, sections := 0, 0
	const slice = 2000
	for b.Loop() {
		start := time.Now()
		commands += h.commands(b, func() { h.turns(b, 100, slice) })
		spent[0] += time.Since(start)
		sections += slice + 100
		start = time.Now()
		h.alternate(b, slice+100)
		spent[1] += time.Since(start)
	}
	b.ReportMetric(float64(spent[0])/float64(sections), "section-ns")
	b.ReportMetric(float64(spent[1])/float64(sections), "bare-ns")
	b.ReportMetric(float64(spent[1])/float64(spent[0]), "speed-ratio")
	b.ReportMetric(float64(commands)/float64(sections), "redis-commands/section")
	b.ReportMetric(0, "ns/op")
}

// alternate makes two goroutines send the bare script in turn.
func (h *house) alternate(b *testing.B, n int) {
	ctx := deadline{context.Background(), time.Now().Add(time.Hour)}
	turns := [2]chan int{make(chan int, 1), make(chan int, 1)}
	var wg sync.WaitGroup
	for me := range turns {
		wg.Go(func() {
			for left := range turns[me] {
				if h.bare.call(ctx) != nil {
					b.Error("failed")
				}
				if left == 0 {
					close(turns[1-me])
					return
				}
				turns[1-me] <- left - 1
			}
		})
	}
	turns[0] <- n - 1
	wg.Wait()
}
