package sharedqueue

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReadersOfOneUnitAreInTogether(t *testing.T) {
	q, _ := newRW(1)
	for i := range 100 { // more readers than there are slots in each shard
		o, _, changed := q.TryRead(fmt.Sprint(i))
		require.Equal(t, Admitted, o)
		requireLook(t, false, changed)
	}
	require.Equal(t, 100, q.Readers())
	for i := range 100 {
		owner := fmt.Sprint(i)
		o, _, _ := q.TryRead(owner)
		require.Equal(t, Reentered, o)
		reads, writes, _ := q.Holds(owner)
		require.Equal(t, [2]int{2, 0}, [2]int{reads, writes})
		left, ok, _ := q.ExitRead(owner)
		require.True(t, ok)
		require.Equal(t, 1, left)
		_, ok, changed := q.ExitRead(owner)
		require.True(t, ok)
		requireLook(t, false, changed)
		_, ok, _ = q.ExitRead(owner)
		require.False(t, ok, "more exits than holds")
	}
	require.True(t, q.Idle())
}

func TestWithoutUnitsNoOwnerIsAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newRW(0)
		reader, writer, late := enterRW(q, "r", Read), enterRW(q, "w", Write), enterRW(q, "l", Read)
		requireOutcome(t, Waiting, reader, writer, late)
		require.Equal(t, State{Limit: All, Waiting: 3, Head: 1, Want: 1, Writers: 1, Spent: true}, q.Look())
		q.Settle(terms0(1))
		requireOutcome(t, Admitted, reader)
		requireOutcome(t, Waiting, writer, late)
		require.Equal(t, All, q.Look().Want, "the claim at the head now writes")
		q.Settle(terms0(All))
		requireOutcome(t, Waiting, writer, late)
		_, ok, _ := q.ExitRead("r")
		require.True(t, ok)
		requireOutcome(t, Admitted, writer)
		requireOutcome(t, Waiting, late)
		_, ok, _ = q.ExitWrite("w")
		require.True(t, ok)
		requireOutcome(t, Admitted, late)
	})
}

func TestReadersDoNotOvertakeAWriterInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newRW(All)
		first := enterRW(q, "a", Read)
		writer := enterRW(q, "w", Write)
		o, _, _ := q.TryRead("b")
		require.Equal(t, Busy, o)
		second := enterRW(q, "b", Read)
		requireOutcome(t, Admitted, first)
		requireOutcome(t, Waiting, writer, second)
		q.ExitRead("a")
		requireOutcome(t, Admitted, writer)
		requireOutcome(t, Waiting, second)
		q.ExitWrite("w")
		requireOutcome(t, Admitted, second)
		q.ExitRead("b")
	})
}

func TestAReaderReentersPastAWriterInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newRW(1)
		enterRW(q, "a", Read)
		writer := enterRW(q, "w", Write)
		requireOutcome(t, Reentered, enterRW(q, "a", Read))
		q.Ask(0, 64, hour)
		requireOutcome(t, Reentered, enterRW(q, "a", Read))
		requireOutcome(t, Waiting, writer)
		writer.cancel()
		requireOutcome(t, Cancelled, writer)
	})
}

func TestAWriterIsAlone(t *testing.T) {
	q, _ := newRW(All)
	o, _ := q.TryWrite("w")
	require.Equal(t, Admitted, o)
	for _, owner := range []string{"a", "b"} {
		o, _, _ := q.TryRead(owner)
		require.Equal(t, Busy, o)
		o, _ = q.TryWrite(owner)
		require.Equal(t, Busy, o)
	}
	o, _ = q.TryWrite("w")
	require.Equal(t, Reentered, o)
	left, ok, _ := q.ExitWrite("w")
	require.True(t, ok)
	require.Equal(t, 1, left)
	_, ok, _ = q.ExitWrite("a")
	require.False(t, ok, "another owner's hold")
	q.Look()
	_, _, changed := q.ExitWrite("w")
	requireLook(t, true, changed) // All units are idle, and are given back
	require.Equal(t, State{Limit: All, Units: All, Used: 1002}, q.Look())
}

// The clock is read when the readers have been counted, so a reader that enters while the clock is read comes at the critical
// moment.
func TestNoReaderEntersWhileAWriterIsAdmitted(t *testing.T) {
	var q *RW[string]
	reader, armed := Busy, false
	q = NewRW(func() time.Duration {
		if armed {
			armed = false
			reader, _ = q.readOpen("r")
		}
		return 0
	}, keyOf, named)
	q.Settle(terms0(All))
	for range calmReads {
		q.TryRead("a")
		q.ExitRead("a")
	}
	require.True(t, q.open)
	armed = true
	o, _ := q.TryWrite("w")
	require.False(t, armed)
	require.Equal(t, Admitted, o)
	require.Equal(t, Busy, reader)
}

func TestOneUnitIsNotEnoughForAWriter(t *testing.T) {
	q, _ := newRW(1)
	o, _ := q.TryWrite("w")
	require.Equal(t, Busy, o)
}

func TestAnUpgradeIsRefusedAtOnce(t *testing.T) {
	for _, units := range []int{1, All} {
		q, _ := newRW(units)
		q.TryRead("a")
		o, w, _, _ := q.Enter("a", Write)
		require.Equal(t, Upgrade, o)
		require.Nil(t, w)
		o, _ = q.TryWrite("a")
		require.Equal(t, Upgrade, o)
		reads, writes, _ := q.Holds("a")
		require.Equal(t, [2]int{1, 0}, [2]int{reads, writes}, "nothing has changed")
	}
}

func TestAWriterThatReadsGoesOnAsAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newRW(All)
		q.TryWrite("w")
		o, _, _ := q.TryRead("w")
		require.Equal(t, Reentered, o)
		reader, writer, last := enterRW(q, "a", Read), enterRW(q, "b", Write), enterRW(q, "c", Read)
		q.ExitWrite("w")
		requireOutcome(t, Admitted, reader)
		requireOutcome(t, Waiting, writer, last)
		o, _ = q.TryWrite("w")
		require.Equal(t, Upgrade, o)
		require.Equal(t, 1, q.Look().InUse)
		q.ExitRead("w")
		q.ExitRead("a")
		requireOutcome(t, Admitted, writer)
		q.ExitWrite("b")
		requireOutcome(t, Admitted, last)
	})
}

func TestAWriterThatLeavesTheLineLetsReadersIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newRW(1)
		enterRW(q, "a", Read)
		w1, r1, w2, r2 := enterRW(q, "w1", Write), enterRW(q, "r1", Read), enterRW(q, "w2", Write), enterRW(q, "r2", Read)
		w1.cancel()
		requireOutcome(t, Cancelled, w1)
		requireOutcome(t, Admitted, r1)
		requireOutcome(t, Waiting, w2, r2)
		w2.timeout <- time.Time{}
		requireOutcome(t, TimedOut, w2)
		requireOutcome(t, Admitted, r2)
	})
}

func TestAnAdmissionWinsOverACancellation(t *testing.T) {
	q, _ := newRW(All)
	done := make(chan struct{})
	close(done)
	for range 50 { // if both are ready, select chooses at random
		q.TryWrite("a")
		_, w, _, _ := q.Enter("b", Write)
		q.ExitWrite("a")
		o, _, _ := q.Wait(w, done, nil)
		require.Equal(t, Admitted, o)
		q.ExitWrite("b")
	}
}

func TestTheGoroutinesOfAnOwnerAreLetInTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newRW(All)
		q.TryWrite("a")
		s1 := enterRW(q, "s", Write|Shared)
		other := enterRW(q, "b", Write)
		s2, s3 := enterRW(q, "s", Write|Shared), enterRW(q, "s", Read|Shared)
		q.ExitWrite("a")
		requireOutcome(t, Admitted, s1)
		requireOutcome(t, Reentered, s2, s3)
		requireOutcome(t, Waiting, other)
		reads, writes, _ := q.Holds("s")
		require.Equal(t, [2]int{1, 2}, [2]int{reads, writes})
		other.cancel()
		requireOutcome(t, Cancelled, other)
	})
}

func TestNoHoldIsAdmittedWhenTrustHasEnded(t *testing.T) {
	for _, opened := range []bool{false, true} {
		q, c := newRW(1)
		for range calmReads {
			q.TryRead("a")
			q.ExitRead("a")
		}
		if !opened {
			q.Settle(terms0(1))
		}
		require.Equal(t, opened, q.open)
		q.TryRead("a")
		c.time = hour
		for _, owner := range []string{"a", "b"} {
			o, _, changed := q.TryRead(owner)
			require.Equal(t, Busy, o)
			requireLook(t, true, changed)
		}
		q.Trust(hour + 1)
		o, _, _ := q.TryRead("b")
		require.Equal(t, Admitted, o)
	}
	q, c := newRW(All)
	c.time = hour
	o, changed := q.TryWrite("w")
	require.Equal(t, Busy, o)
	requireLook(t, true, changed)
}

func TestALossTakesAllHoldsAndIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newRW(All)
		q.TryWrite("w")
		q.TryWrite("w")
		q.TryRead("w")
		waiting := enterRW(q, "a", Read)
		require.Equal(t, []Loss[string]{{Owner: "w", Reads: 1, Writes: 2}}, q.Lose())
		require.Empty(t, q.Lose())
		_, ok, _ := q.ExitWrite("w")
		require.False(t, ok, "an exit after the loss changes nothing")
		_, ok, _ = q.ExitRead("w")
		require.False(t, ok, "an exit after the loss changes nothing")
		requireOutcome(t, Waiting, waiting)
		q.Settle(terms0(1))
		requireOutcome(t, Admitted, waiting)
		q.TryRead("b")
		require.ElementsMatch(t, []Loss[string]{{Owner: "a", Reads: 1}, {Owner: "b", Reads: 1}}, q.Lose())
		require.True(t, q.Idle())
	})
}

func TestEveryWriterHasATokenOfItsOwnAndTheBlockEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newRW(0)
		q.Settle(Terms{Units: All, Until: hour, First: 10, Last: 12})
		for _, want := range []uint64{10, 12} {
			q.TryWrite("w")
			_, _, token := q.Holds("w")
			require.Equal(t, want, token)
			q.ExitWrite("w")
		}
		writer := enterRW(q, "w", Write)
		requireOutcome(t, Waiting, writer)
		s := q.Look()
		require.True(t, s.Spent)
		require.Equal(t, All, s.Want)
		kept, token := q.Keep(0)
		require.Equal(t, 0, kept)
		require.EqualValues(t, 12, token)
		q.Settle(Terms{Units: All, Until: hour, First: 20, Last: 30})
		requireOutcome(t, Admitted, writer)
	})
}

// The server confirms a block by the block's first token, however many tokens of the block were used.
func TestASettleThatConfirmsTheBlockGoesOnInIt(t *testing.T) {
	q, _ := newRW(0)
	block := Terms{Units: All, Until: hour, First: 10, Last: 14}
	q.Settle(block)
	for _, want := range []uint64{10, 12, 14} {
		q.TryWrite("w")
		q.Settle(block)
		_, _, token := q.Holds("w")
		require.Equal(t, want, token)
		q.ExitWrite("w")
	}
	o, _ := q.TryWrite("w")
	require.Equal(t, Busy, o, "the block is used up")
}

// A reader's version is made of the last token that was used, so two reads with a write in between must see different
// ones.
func TestReadersBeforeAndAfterAWriterSeeDifferentTokens(t *testing.T) {
	q, _ := newRW(All)
	read := func() uint64 {
		q.TryRead("r")
		token, ok := q.ReadToken("r")
		require.True(t, ok)
		require.Equal(t, token, q.Used())
		_, _, same := q.Holds("r")
		require.Equal(t, same, token)
		q.ExitRead("r")
		return token
	}
	before := read()
	require.NotZero(t, before)
	require.Equal(t, before, read())
	q.TryWrite("w")
	_, _, written := q.Holds("w")
	q.ExitWrite("w")
	require.Greater(t, written, before)
	require.Equal(t, written, read())
	_, ok := q.ReadToken("r")
	require.False(t, ok, "the owner no longer reads")

	kept, used := q.Keep(1)
	require.Equal(t, 0, q.Look().InUse)
	require.Equal(t, 1, kept)
	require.Equal(t, written, used)
	q.Settle(Terms{Units: 1, Until: hour, Token: 4000})
	require.EqualValues(t, 4000, read())
	q.TryRead("r")
	q.Settle(Terms{Units: All, Until: hour, First: 5000, Last: 5002}) // with the readers inside, so no owner wrote
	token, _ := q.ReadToken("r")
	require.EqualValues(t, 4000, token)
}

func TestUnitsInUseAreNotGivenBack(t *testing.T) {
	q, _ := newRW(All)
	q.TryWrite("w")
	kept, _ := q.Keep(0)
	require.Equal(t, All, kept)
	q.ExitWrite("w")
	q.TryRead("r")
	kept, _ = q.Keep(0)
	require.Equal(t, 1, kept)
	o, _, _ := q.TryRead("s")
	require.Equal(t, Admitted, o, "one unit is for all readers")
	require.Panics(t, func() { q.Settle(terms0(0)) })
}

func TestATryDoesNotWaitForOwnersOfThisProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newRW(1)
		q.TryRead("a")
		requireOutcome(t, Busy, enterRW(q, "b", Write|Once))
		q.ExitRead("a")
		write := enterRW(q, "b", Write|Once) // the server may be able to grant it
		requireOutcome(t, Busy, enterRW(q, "c", Read|Once))
		behind := enterRW(q, "d", Read)
		requireOutcome(t, Waiting, write, behind)
		q.EndTries(All)
		requireOutcome(t, Busy, write)
		requireOutcome(t, Admitted, behind)
		q.Lose()
		read := enterRW(q, "e", Read|Once)
		q.EndTries(All)
		requireOutcome(t, Waiting, read)
		q.EndTries(1)
		requireOutcome(t, Busy, read)
	})
}

func TestAShutQueueAdmitsNoNewcomer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newRW(1)
		enterRW(q, "a", Read)
		waiting := enterRW(q, "w", Write)
		q.Expel()
		requireOutcome(t, Expelled, waiting)
		requireOutcome(t, Admitted, enterRW(q, "b", Read))
		waiting = enterRW(q, "w", Write)
		q.Shut()
		requireOutcome(t, Expelled, waiting, enterRW(q, "c", Read), enterRW(q, "d", Write))
		requireOutcome(t, Reentered, enterRW(q, "a", Read))
		left, ok, _ := q.ExitRead("a")
		require.True(t, ok)
		require.Equal(t, 1, left)
	})
}

// Owners that are inside a queue that is shut may enter it again and again. The queue must not be opened, since the shards of
// an open queue let in any reader.
func TestAShutQueueIsNotOpened(t *testing.T) {
	q, _ := newRW(1)
	q.TryRead("a")
	q.Shut()
	for range 2 * calmReads {
		o, _, _ := q.TryRead("a")
		require.Equal(t, Reentered, o)
	}
	o, _, _ := q.TryRead("b")
	require.Equal(t, Expelled, o)
}

func TestHoldsAreBounded(t *testing.T) {
	q, _ := newRW(All)
	q.TryWrite("w")
	require.True(t, q.AddHolds("w", MaxHolds, MaxHolds-1))
	require.False(t, q.AddHolds("w", 1, 0))
	require.False(t, q.AddHolds("w", 0, 1))
	require.False(t, q.AddHolds("a", 0, 1))
	o, _ := q.TryWrite("w")
	require.Equal(t, TooMany, o)
	reads, writes, _ := q.ExitAll("w")
	require.Equal(t, math.MaxInt32, reads)
	require.Equal(t, math.MaxInt32, writes)
	q.TryRead("r")
	s, _ := q.shard("r")
	for i := range s.slots {
		if s.slots[i].holds > 0 {
			s.slots[i].holds = MaxHolds
		}
	}
	o, _, _ = q.TryRead("r")
	require.Equal(t, TooMany, o)
}

func TestAQueueRestsWhenNoReaderCameInBetween(t *testing.T) {
	q, _ := newRW(1)
	q.TryRead("a")
	require.False(t, q.Rest())
	q.ExitRead("a")
	require.True(t, q.Rest())
	q.TryRead("a")
	q.ExitRead("a")
	require.False(t, q.Rest())
	require.True(t, q.Rest())
}

// A try that got no reply leaves the line, and those behind it do not wait for a reply that they do not need.
func TestThoseBehindATryWithoutAReplyAreAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := newRW(1)
		try := enterRW(q, "w", Write|Once)
		reader := enterRW(q, "r", Read)
		requireOutcome(t, Waiting, try, reader)
		q.FailTries()
		requireOutcome(t, Unanswered, try)
		requireOutcome(t, Admitted, reader)
	})
}
