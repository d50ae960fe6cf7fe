package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// memory is a table in memory.
type memory struct {
	next    int64
	records []int64
}

func (m *memory) read(context.Context) (next int64, recorded bool, err error) {
	return m.next, m.next == 1 || slices.Contains(m.records, m.next-1), nil
}

func (m *memory) raise(_ context.Context, next int64) error {
	m.next = next
	return nil
}

func (m *memory) record(_ context.Context, r record) error {
	m.records = append(m.records, r.key)
	return nil
}

// errKilled stands for the death of a process. After its death a process executes no more statements.
var errKilled = errors.New("killed")

// A paced is a table that executes each statement only when the test lets it. So the test decides in which order the steps run,
// and at which statement a step dies.
type paced struct {
	table
	turn chan error    // receives nil to go on, or the error with which the step ends
	done chan struct{} // receives a value when the statement is committed
}

func (p *paced) statement(run func() error) error {
	if err := <-p.turn; err != nil {
		return err
	}
	err := run()
	p.done <- struct{}{}
	return err
}

func (p *paced) read(ctx context.Context) (next int64, recorded bool, err error) {
	err = p.statement(func() error {
		next, recorded, err = p.table.read(ctx)
		return err
	})
	return next, recorded, err
}

func (p *paced) raise(ctx context.Context, next int64) error {
	return p.statement(func() error { return p.table.raise(ctx, next) })
}

func (p *paced) record(ctx context.Context, r record) error {
	return p.statement(func() error { return p.table.record(ctx, r) })
}

// A stepper is one step. The test controls when its statements are executed.
type stepper struct {
	*paced
	ended chan struct{}
}

func newStepper(t *testing.T, shared table) *stepper {
	s := &stepper{
		paced: &paced{table: shared, turn: make(chan error), done: make(chan struct{})},
		ended: make(chan struct{}),
	}
	go func() {
		defer close(s.ended)
		w := worker{server: "p1", keys: 100, table: s.paced, tally: &tally{}}
		if _, err := w.step(t.Context(), hold{}); err != nil {
			assert.ErrorIs(t, err, errKilled)
		}
	}()
	return s
}

// statement lets the step execute its next statement, if it has one.
func (s *stepper) statement() {
	select {
	case s.turn <- nil:
		<-s.done
	case <-s.ended:
	}
}

// kill ends the step before its next statement.
func (s *stepper) kill() {
	select {
	case s.turn <- errKilled:
	case <-s.ended:
	}
	<-s.ended
}

// interleavings returns all orders of a statements of step a and b statements of step b, as words of these letters.
func interleavings(a, b int) []string {
	if a == 0 || b == 0 {
		return []string{strings.Repeat("a", a) + strings.Repeat("b", b)}
	}
	var all []string
	for _, rest := range interleavings(a-1, b) {
		all = append(all, "a"+rest)
	}
	for _, rest := range interleavings(a, b-1) {
		all = append(all, "b"+rest)
	}
	return all
}

// Whatever the repair does, two steps that overlap leave a duplicate. So a run of keygen without a duplicate proves that no
// steps overlapped.
func TestStepsThatOverlapShowADuplicateInEveryOrder(t *testing.T) {
	for _, before := range []memory{
		{next: 1},
		{next: 3, records: []int64{1, 2}},
		{next: 3, records: []int64{1}}, // also after a holder that was killed just before
	} {
		for _, order := range interleavings(3, 3) {
			shared := memory{next: before.next, records: slices.Clone(before.records)}
			steppers := map[rune]*stepper{'a': newStepper(t, &shared), 'b': newStepper(t, &shared)}
			for _, name := range order {
				steppers[name].statement()
			}
			for _, s := range steppers {
				<-s.ended
			}
			slices.Sort(shared.records)
			distinct := len(slices.Compact(slices.Clone(shared.records)))
			if overlap := overlapped(order, before); overlap {
				assert.Less(t, distinct, len(shared.records), "%s from %+v gave %v", order, before, shared.records)
			} else {
				assert.Equal(t, len(before.records)+2, distinct, "%s from %+v gave %v", order, before, shared.records)
			}
		}
	}
}

// overlapped reports whether, in the given order, one step reads before the other step has executed its last statement.
func overlapped(order string, before memory) bool {
	statements := 3
	if before.next > 1 && !slices.Contains(before.records, before.next-1) {
		statements = 2 // the first step only records
	}
	first := rune(order[0])
	for _, name := range order {
		if name != first {
			return statements > 0
		}
		statements--
	}
	return false
}

func TestAKilledStepCostsNoNumber(t *testing.T) {
	for _, before := range []memory{
		{next: 1},
		{next: 3, records: []int64{1, 2}},
		{next: 3, records: []int64{1}}, // the holder before it was killed as well
	} {
		for statements := range 4 {
			shared := memory{next: before.next, records: slices.Clone(before.records)}
			victim := newStepper(t, &shared)
			for range statements {
				victim.statement()
			}
			victim.kill()

			w := worker{server: "p2", keys: 6, lock: openSection{}, table: &shared, tally: &tally{}}
			require.NoError(t, w.run(t.Context()))
			assert.Equal(t, []int64{1, 2, 3, 4, 5, 6}, shared.records, "killed after %d statements", statements)
		}
	}
}

func TestTheLastNumberIsTakenOverToo(t *testing.T) {
	shared := memory{next: 4, records: []int64{1, 2}} // the last number is 3, and its holder was killed
	counts := &tally{}
	w := worker{server: "p2", keys: 3, lock: openSection{}, table: &shared, tally: counts}
	require.NoError(t, w.run(t.Context()))
	assert.Equal(t, []int64{1, 2, 3}, shared.records)
	assert.EqualValues(t, 1, counts.adopted.Load())
}
