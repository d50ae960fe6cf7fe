package crew

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/examples/internal/screen"
)

// The test binary is also the program that runs as the children.
func TestMain(m *testing.M) {
	if IsChild() {
		os.Exit(Play("crew", role.play))
	}
	// With the race detector each process would sleep for a second at its end.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	os.Exit(m.Run())
}

// A role is a child that counts.
type role struct {
	Name  string
	Seat  int
	Steps int64         // how far each of its two workers counts
	Pause time.Duration // the pause before each step
	Gate  string        // a file that must exist before any child is done; "" for none
	Fail  string        // the error with which it ends, if any
}

// A steps counts how far a child has come.
type steps int64

func (s steps) Plus(other steps) steps { return s + other }
func (s steps) Done() int64            { return int64(s) }

func (r role) play(ctx context.Context, line *Line[steps]) error {
	var done atomic.Int64
	return line.Work(ctx, 2, func() steps { return steps(done.Load()) }, func(ctx context.Context, worker int) error {
		for range r.Steps {
			select {
			case <-time.After(r.Pause):
			case <-ctx.Done():
				return ctx.Err()
			}
			done.Add(1)
		}
		if err := passes(ctx, r.Gate); err != nil {
			return err
		}
		switch {
		case r.Fail == "" || worker == 1:
			return nil
		case r.Fail == "silently":
			os.Exit(0)
		}
		return errors.New(r.Fail)
	})
}

// passes waits until a gate file exists.
func passes(ctx context.Context, gate string) error {
	for gate != "" {
		if _, err := os.Stat(gate); err == nil {
			break
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// counting is a plan of two processes, each of whose workers counts to ten.
func counting(t *testing.T, r role) Plan[steps] {
	return Plan[steps]{Processes: 2, Goal: 40, Unit: "steps", Stderr: t.Output(), Role: func(name string, seat int) any {
		r := r
		r.Name, r.Seat, r.Steps = name, seat, 10
		if seat != 2 {
			r.Fail = ""
		}
		return r
	}}
}

func TestReportsAddUp(t *testing.T) {
	outcome, err := Run(t.Context(), counting(t, role{}))
	require.NoError(t, err)
	assert.EqualValues(t, 40, outcome.Total)
	assert.Equal(t, [][]string{{"p1"}, {"p2"}}, outcome.Names)
	assert.Positive(t, outcome.Took)
}

// No child is done before every child that is to be killed is dead. So there is always a child to kill, even if the parent
// receives a report late.
func TestAKilledChildIsReplacedInItsSeat(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	plan := counting(t, role{Gate: gate})
	plan.Kills = 2
	seats := map[string]int{}
	give := plan.Role
	plan.Role = func(name string, seat int) any {
		if seats[name] = seat; len(seats) == plan.Processes+plan.Kills {
			assert.NoError(t, os.WriteFile(gate, nil, 0o600))
		}
		return give(name, seat)
	}
	outcome, err := Run(t.Context(), plan)
	require.NoError(t, err)
	assert.Equal(t, 2, outcome.Kills)
	names := slices.Concat(outcome.Names...)
	assert.Len(t, names, 4)
	for _, name := range names {
		assert.True(t, strings.HasPrefix(name, []string{"p1", "p2"}[seats[name]-1]), name)
	}
}

func TestOneFailureEndsTheJob(t *testing.T) {
	said, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	defer func() { _ = said.Close() }()
	plan := counting(t, role{Fail: "out of numbers"})
	plan.Stderr = said
	_, err = Run(t.Context(), plan)
	require.ErrorContains(t, err, "process p2: exit status 1")
	text, err := os.ReadFile(said.Name())
	require.NoError(t, err)
	assert.Contains(t, string(text), "crew p2: out of numbers")

	_, err = Run(t.Context(), counting(t, role{Fail: "silently"}))
	require.ErrorContains(t, err, "process p2 ended before its work was done")
}

func TestAJobEndsWhenItsGoalIsReached(t *testing.T) {
	plan := counting(t, role{Pause: time.Hour})
	plan.Enough = func(steps) bool { return true }
	outcome, err := Run(t.Context(), plan)
	require.NoError(t, err)
	assert.Zero(t, outcome.Total)
}

func TestAnInterruptIsAnError(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	plan := counting(t, role{Pause: time.Hour})
	plan.Enough = func(steps) bool {
		interrupt()
		return false
	}
	_, err := Run(ctx, plan)
	require.EqualError(t, err, "interrupted before all 40 steps were done")
	require.ErrorIs(t, err, screen.ErrInterrupted)
}
