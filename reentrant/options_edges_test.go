package reentrant_test

import (
	"context"
	"go/ast"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// edges are the numbers at which arithmetic changes: to a float in Lua, to more than 32 bits, to a negative number.
var edges = []int64{0, 1, -1, 1 << 31, 1<<31 - 1, 1<<53 - 1, 1 << 53, 1<<53 + 1, math.MaxInt64, math.MinInt64}

// An optionEdge makes an option from a number, or from nothing, together with the options that it needs.
type optionEdge struct {
	option func(n int64) reentrant.Option
	lock   func(n int64) reentrant.LockOption
	beside []reentrant.Option
}

func of(option func(time.Duration) reentrant.Option, beside ...reentrant.Option) optionEdge {
	return optionEdge{option: func(n int64) reentrant.Option { return option(time.Duration(n)) }, beside: beside}
}

func count(option func(int) reentrant.Option, beside ...reentrant.Option) optionEdge {
	return optionEdge{option: func(n int64) reentrant.Option { return option(int(n)) }, beside: beside}
}

func plain(option reentrant.Option, beside ...reentrant.Option) optionEdge {
	return optionEdge{option: func(int64) reentrant.Option { return option }, beside: beside}
}

func handOvers(n int) reentrant.Option          { return reentrant.WithTurn(n, 0) }
func turnTime(d time.Duration) reentrant.Option { return reentrant.WithTurn(0, d) }

const longest = 10 * 365 * 24 * time.Hour // the longest lease

// optionEdges has every option by its name; a dash and a word distinguish rows of the same option.
var optionEdges = map[string]optionEdge{
	"WithLease":            of(reentrant.WithLease),
	"WithHeartbeat":        of(reentrant.WithHeartbeat),
	"WithHeartbeat-long":   of(reentrant.WithHeartbeat, reentrant.WithLease(longest)),
	"WithTurn":             count(handOvers),
	"WithTurn-cohort":      count(handOvers, reentrant.WithCohort()),
	"WithTurn-time":        of(turnTime),
	"WithTurn-time-long":   of(turnTime, reentrant.WithLease(longest)),
	"WithTurn-time-cohort": of(turnTime, reentrant.WithCohort()),
	"WithSpin":             count(func(n int) reentrant.Option { return reentrant.WithSpin(min(n, 1<<10)) }), // each is a try, so not too many
	"WithLinger":           of(reentrant.WithLinger),
	"WithLinger-cohort":    of(reentrant.WithLinger, reentrant.WithCohort()),
	"WithFixedLease":       {lock: func(n int64) reentrant.LockOption { return reentrant.WithFixedLease(time.Duration(n)) }},
	"WithFixedLease-cohort": {lock: func(n int64) reentrant.LockOption { return reentrant.WithFixedLease(time.Duration(n)) },
		beside: []reentrant.Option{reentrant.WithCohort()}},
	"WithAtLeast":  {lock: func(n int64) reentrant.LockOption { return reentrant.WithAtLeast(time.Duration(n)) }},
	"WithFairness": {lock: func(n int64) reentrant.LockOption { return reentrant.WithFairness(n == 1) }},
	"WithMaxWaiting": {lock: func(n int64) reentrant.LockOption {
		return reentrant.WithMaxWaiting(int(n))
	}},
	"WithCohort":            plain(reentrant.WithCohort()),
	"WithAsyncUnlock":       plain(reentrant.WithAsyncUnlock()),
	"WithExplicitOwners":    plain(reentrant.WithExplicitOwners()),
	"WithDeadlockDetection": plain(reentrant.WithDeadlockDetection()),
	"WithPortableHoldsLeft": plain(reentrant.WithPortableHoldsLeft()),
	"WithProfilerLabels":    plain(reentrant.WithProfilerLabels()),
	"WithName":              plain(reentrant.WithName("web")),
	"WithLogger":            plain(reentrant.WithLogger(slog.New(slog.DiscardHandler))),
	"WithLogger-nil":        plain(reentrant.WithLogger(nil)),
	"WithObserver":          plain(reentrant.WithObserver(&diary{})),
	"WithObserver-nil":      plain(reentrant.WithObserver(nil)),
	"WithAfterClose":        plain(reentrant.WithAfterClose(func() {})),
	"WithAfterClose-nil":    plain(reentrant.WithAfterClose(nil)),
}

// Every option works with every number, or is refused with an error that names it.
func TestOptionsAtTheirEdges(t *testing.T) {
	for name, edge := range optionEdges {
		for _, n := range edges {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { tryOption(t, strings.SplitN(name, "-", 2)[0], edge, n) })
			})
		}
	}
}

func FuzzOptions(f *testing.F) {
	for _, n := range edges {
		f.Add(n, n)
	}
	f.Fuzz(func(t *testing.T, n, m int64) {
		for _, name := range []string{"WithLease", "WithHeartbeat-long", "WithTurn-time-long", "WithTurn-cohort", "WithFixedLease"} {
			synctest.Test(t, func(t *testing.T) {
				tryOption(t, strings.SplitN(name, "-", 2)[0], optionEdges[name], n)
				tryOption(t, strings.SplitN(name, "-", 2)[0], optionEdges[name], m)
			})
		}
	})
}

// tryOption opens two sessions with an option, which hand a lock over to each other.
func tryOption(t *testing.T, name string, edge optionEdge, n int64) {
	b := memory.New()
	options := edge.beside
	if edge.option != nil {
		options = append([]reentrant.Option{edge.option(n)}, options...)
	}
	s, err := reentrant.NewSession(b, options...)
	if err != nil {
		require.ErrorContains(t, err, name, n)
		return
	}
	other, err := reentrant.NewSession(b, options...)
	require.NoError(t, err)
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, s.Close(ctx), n)
		assert.NoError(t, other.Close(ctx), n)
	}()
	var locks []reentrant.LockOption
	if edge.lock != nil {
		locks = append(locks, edge.lock(n))
	}
	mine, theirs := s.NewLock("x", locks...), other.NewLock("x", locks...)
	ctx, cancel := context.WithTimeout(reentrant.WithOwner(context.Background(), "o"), time.Minute)
	defer cancel()
	if err := mine.Lock(ctx); err != nil {
		require.ErrorContains(t, err, name, n)
		return
	}
	require.NoError(t, mine.Lock(ctx), n)
	first, err := mine.Token(ctx)
	require.NoError(t, err, n)
	waited := make(chan error)
	go func() { waited <- theirs.Lock(ctx) }()
	synctest.Wait()
	ok, err := theirs.TryLock(reentrant.WithOwner(ctx, "third"))
	require.NoError(t, err, n)
	assert.False(t, ok, "two owners have the lock: %d", n)
	require.NoError(t, mine.Unlock(ctx), n)
	require.NoError(t, mine.Unlock(ctx), n)
	if st, err := mine.Inspect(ctx); assert.NoError(t, err, n) && st.Unlocked { // the lock may stay taken for years
		_, err := mine.ForceUnlock(ctx)
		require.NoError(t, err, n)
	}
	require.NoError(t, <-waited, n)
	second, err := theirs.Token(ctx)
	require.NoError(t, err, n)
	assert.Greater(t, second, first, n)
	require.NoError(t, theirs.Unlock(ctx), n)
}

// Every option of the package has a row.
func TestOptionEdgesAreComplete(t *testing.T) {
	for _, file := range sourceFiles(t, ".") {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !f.Name.IsExported() || f.Type.Results == nil {
				continue
			}
			result, _ := f.Type.Results.List[0].Type.(*ast.Ident)
			if result != nil && (result.Name == "Option" || result.Name == "LockOption") {
				assert.Contains(t, optionEdges, f.Name.Name)
			}
		}
	}
}

// If an option is nil the call returns an error that says which one, and does not panic.
func TestNilOptionsAreErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ctx := memory.New(), t.Context()
		_, err := reentrant.NewSession(b, reentrant.WithCohort(), nil)
		require.ErrorContains(t, err, "option 2 is nil")
		s := newSession(t, b)
		l, rw, m := s.NewLock("x", nil), s.NewRWLock("x", reentrant.WithFairness(true), nil), s.NewSemaphore("x", 1, nil)
		require.ErrorContains(t, l.Lock(ctx), `"x": option 1 is nil`)
		require.ErrorContains(t, rw.RLock(ctx), `"x": option 2 is nil`)
		require.ErrorContains(t, second(rw.Inspect(ctx)), `"x": option 2 is nil`)
		require.ErrorContains(t, m.Acquire(ctx, 1), `"x": option 1 is nil`)
		require.ErrorContains(t, second(m.AcquireSlot(ctx)), `"x": option 1 is nil`)
	})
}
