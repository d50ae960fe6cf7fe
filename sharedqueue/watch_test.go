package sharedqueue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/sharedqueue"
)

// A watched queue reports changes in order: first that an owner has left, and then that a waiter was admitted.
func TestAWatchedQueueReportsItsChangesInOrder(t *testing.T) {
	q := sharedqueue.NewRW(func() time.Duration { return 0 }, func(owner string) (hash, number uint64) { return uint64(len(owner)), 0 }, nil)
	var seen []string
	q.Watch(func(c sharedqueue.Change[string]) {
		seen = append(seen, fmt.Sprint(c.Outcome, c.Owner, c.Mode, c.Token, c.Call))
	})
	q.Settle(sharedqueue.Terms{Units: sharedqueue.All, Until: time.Hour, First: 10, Last: 20})
	enter := func(owner string, mode sharedqueue.Mode) *sharedqueue.Waiter[string] {
		_, w, _, _ := q.EnterFor("by "+owner, owner, mode, 0)
		return w
	}
	require.Nil(t, enter("a", sharedqueue.Write))
	require.Nil(t, enter("a", sharedqueue.Read))
	require.NotNil(t, enter("b", sharedqueue.Read))
	require.NotNil(t, enter("c", sharedqueue.Write))
	q.ExitWrite("a")
	q.ExitRead("a")
	q.ExitRead("b")
	q.ExitWrite("c")
	left := sharedqueue.Outcome(0)
	assert.Equal(t, []string{
		fmt.Sprint(sharedqueue.Admitted, "a", sharedqueue.Write, 10, "by a"),
		fmt.Sprint(sharedqueue.Reentered, "a", sharedqueue.Read, 10, "by a"),
		fmt.Sprint(left, "a", sharedqueue.Write, 10, nil),
		fmt.Sprint(sharedqueue.Admitted, "a", sharedqueue.Read, 10, nil),
		fmt.Sprint(sharedqueue.Admitted, "b", sharedqueue.Read, 10, "by b"),
		fmt.Sprint(left, "a", sharedqueue.Read, 10, nil),
		fmt.Sprint(left, "b", sharedqueue.Read, 10, nil),
		fmt.Sprint(sharedqueue.Admitted, "c", sharedqueue.Write, 12, "by c"),
		fmt.Sprint(left, "c", sharedqueue.Write, 12, nil),
	}, seen)
}

func TestWatchedPermitsAreReportedInOrder(t *testing.T) {
	q := sharedqueue.NewPermits(func() time.Duration { return 0 })
	var seen []string
	q.Watch(func(c sharedqueue.Change[struct{}]) { seen = append(seen, fmt.Sprint(c.Outcome, c.Permits, c.Call)) })
	q.Settle(sharedqueue.Terms{Units: 3, Until: time.Hour})
	q.EnterFor("a", 2, sharedqueue.Read, 0)
	q.EnterFor("b", 2, sharedqueue.Read, 0)
	q.Exit(1)
	q.Exit(2)
	left := sharedqueue.Outcome(0)
	assert.Equal(t, []string{
		fmt.Sprint(sharedqueue.Admitted, 2, "a"), fmt.Sprint(left, 1, nil), fmt.Sprint(sharedqueue.Admitted, 2, "b"), fmt.Sprint(left, 2, nil),
	}, seen)
}

// Inside lists either the writer alone or all readers, however they were admitted.
func TestInsideListsThoseThatAreInside(t *testing.T) {
	q := sharedqueue.NewRW(func() time.Duration { return 0 }, func(owner int) (hash, number uint64) { return uint64(owner), uint64(owner) },
		func(number uint64) int { return int(number) })
	q.Settle(sharedqueue.Terms{Units: sharedqueue.All, Until: time.Hour, First: 10, Last: 20})
	inside := func(most int) (owners []int) {
		q.Inside(most, func(owner int, _ sharedqueue.Mode, _ uint64) { owners = append(owners, owner) })
		return owners
	}
	q.TryWrite(1)
	q.Enter(1, sharedqueue.Read)
	assert.Equal(t, []int{1}, inside(5))
	q.ExitWrite(1)
	for owner := 2; owner <= 20; owner++ { // the queue opens in between
		q.TryRead(owner)
	}
	assert.Len(t, inside(100), 20)
	assert.Len(t, inside(5), 5)
}
