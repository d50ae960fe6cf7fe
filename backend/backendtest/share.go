package backendtest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases about grants of shared names, their queue, and units that are given back. They are for Remotes that support shared
// names.
var shareCases = []testCase{
	{"Share/ReadersAreInTogether", readersTogether},
	{"Share/AWriterIsAlone", writerAlone},
	{"Share/AWriterWaitsForAllReaders", writerWaits},
	{"Share/ASessionThatFitsDoesNotOvertakeTheHead", headFirst},
	{"Share/ReadersThatStandTogetherGetInTogether", readersBatch},
	{"Share/ADowngradeLetsInTheHead", downgrade},
	{"Share/AReaderMayWaitToWrite", upgrade},
	{"Share/TwoReadersThatWaitToWriteDoNotBlockForEver", twoUpgrades},
	{"Share/ANewEpochKeepsThePlace", placeKept},
	{"Share/AWithdrawalServesTheNext", withdrawalServes},
	{"Share/DeadWaitersAreSkipped", deadSkipped},
	{"Share/UnitsEndWithTheirLease", unitsEnd},
	{"Share/AShortLeaseNeverCutsALongerOne", leaseKept},
	{"Share/KeepGivesTheRestBack", keepGivesBack},
	{"Share/OnlyTheHeadsHeartbeatsAskAgain", askedAgain},
	{"Share/AHolderIsAskedWhenItIsNoLongerTheHead", deadHeadAsked},
	{"Share/APlaceThatEndsBehindTheHeadAsksForNothing", deadBehind},
	{"Share/HoldersLearnThatTheLastWaiterHasLeft", relieved},
	{"Share/HoldersLearnThatTheLastWaiterNeedsLess", relievedByLess},
	{"Share/HoldersLearnThatTheLastWaiterIsDead", relievedOfTheDead},
	{"Share/AGrantHasAllThatTheSessionNeeds", sharedGrantIsComplete},
	{"Share/ALostGrantIsAnswered", lostGrant},

	{"Share/PermitsAreShared", permitsShared},
	{"Share/AThirdSessionGetsWhatFallsFree", thirdSession},
	{"Share/AHolderMayWaitForMore", holderWaits},
	{"Share/WhatIsFreeIsGrantedWhileNoneWaits", freeWhileNoneWaits},
	{"Share/LeastIsATotal", leastIsATotal},
	{"Share/AHeadGetsItsLeastWhileOthersWait", headGetsItsLeast},
	{"Share/AGrantNeverTakesUnits", grantTakesNone},
	{"Share/ManyAtOnceWaitForAllOfThem", manyAtOnce},
	{"Share/ALaterClaimKeepsThePlace", laterClaim},
	{"Share/TheHeadCanWaitForASpareUnitOnlyForAMoment", graceEnds},
	{"Share/AHolderIsAskedAgainWhenItMayKeepLess", lessAgain},
	{"Share/TheMessageOfAWaiterNamesNoTry", waitersAreNoTries},
	{"Share/HoldersGiveWayToTheStricterLimit", stricterLimit},
}

func readersTogether(t *test) {
	s := t.sharers(3)
	var first backend.Token
	for _, a := range s {
		reply := a.read(0)
		require.Equal(t, backend.Shared, reply.Status)
		require.Equal(t, 1, reply.Units)
		require.False(t, reply.Placed)
		require.Equal(t, backend.Unlimited, reply.May)
		require.Equal(t, reply.First, reply.Last)
		require.NotZero(t, reply.First)
		require.True(t, first == 0 || first == reply.First, "readers have the same token")
		first = reply.First
	}
	require.Zero(t, s[0].keep(0).Units)
	require.Equal(t, 0, s[1].unitsOf(s[0]))
	require.Equal(t, 1, s[0].unitsOf(s[1]))
}

func writerAlone(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	require.Equal(t, all, a.write(0).Units)
	reply := b.read(0)
	b.placed(reply)
	require.Zero(t, reply.Units)
	require.Zero(t, reply.First)
	require.Equal(t, backend.Unlimited, reply.May, "the head is asked for no units")
	a.wanted(all-1, b.again)
	a.keep(0)
	b.granted(1)
	b.keep(0)
	require.Equal(t, all, a.write(0).Units)
}

func writerWaits(t *test) {
	s := t.readers(2)
	c := t.sharers(1)[0]
	reply := c.write(0)
	c.placed(reply)
	s[0].wanted(0, c.again)
	s[1].wanted(0, c.again)
	require.Zero(t, s[0].keep(0).May, "the head still waits")
	require.Zero(t, c.again().Units)
	s[1].keep(0)
	c.granted(all)
}

func headFirst(t *test) {
	a := t.readers(1)[0]
	s := t.sharers(2)
	b, c := s[0], s[1]
	b.placed(b.write(0))
	c.placed(c.read(0))
	c.placed(c.again())
	a.queued(b, c)
	a.keep(0)
	b.granted(all)
	c.placed(c.again())
	b.keep(0)
	c.granted(1)
}

func readersBatch(t *test) {
	s := t.sharers(4)
	s[0].write(0)
	s[1].placed(s[1].read(0))
	s[2].placed(s[2].read(0))
	s[3].placed(s[3].write(0))
	s[0].keep(0)
	one, two := s[1].granted(1), s[2].granted(1)
	require.Equal(t, one.First, two.First)
	require.Zero(t, one.May, "the writer behind them wants all units")
	require.Zero(t, two.May)
	s[0].queued(s[3])
}

func downgrade(t *test) {
	s := t.sharers(4)
	a, b, c, d := s[0], s[1], s[2], s[3]
	got := a.write(0, block(8))
	b.placed(b.read(0))
	c.placed(c.write(0))
	d.placed(d.read(0))
	used := got.First + 4
	reply := a.keep(1, tail(used))
	require.Equal(t, 1, reply.Units)
	require.Equal(t, used, reply.First, "it reads with the last token that it used as a writer")
	require.Equal(t, used, reply.Last)
	require.Zero(t, reply.May)
	require.Equal(t, used, b.granted(1).First)
	a.queued(c, d)
	a.keep(0)
	b.keep(0)
	require.Greater(t, c.granted(all).First, used)
}

func upgrade(t *test) {
	s := t.readers(2)
	a, b := s[0], s[1]
	reply := a.write(1)
	a.placed(reply)
	require.Equal(t, 1, reply.Units, "the reply confirms the units that it keeps")
	b.wanted(0, a.again)
	b.keep(0)
	a.granted(all)
}

func twoUpgrades(t *test) {
	s := t.readers(2)
	a, b := s[0], s[1]
	a.placed(a.write(1))
	reply := b.write(1)
	b.placed(reply)
	require.Zero(t, reply.May)
	reply = b.write(0) // b's last reader leaves
	b.placed(reply)
	a.granted(all)
	a.keep(0)
	b.granted(all)
}

func placeKept(t *test) {
	a := t.readers(1)[0]
	s := t.sharers(2)
	b, c := s[0], s[1]
	b.placed(b.write(0))
	c.placed(c.write(0))
	b.placed(b.write(0))
	a.queued(b, c)
	a.keep(0)
	b.granted(all)
}

func withdrawalServes(t *test) {
	a := t.readers(1)[0]
	s := t.sharers(2)
	b, c := s[0], s[1]
	b.placed(b.write(0))
	c.placed(c.read(0))
	require.False(t, b.keep(0).Placed)
	c.granted(1)
	require.Equal(t, 1, c.unitsOf(a))
}

func deadSkipped(t *test) {
	a := t.readers(1)[0]
	s := t.sharers(2)
	b, c := s[0], s[1]
	b.write(0, sharePatience(short))
	c.read(0)
	t.eventually("the reader is granted its unit when the writer is dead", func() bool { return !c.again().Placed })
	require.Equal(t, 1, a.unitsOf(c))
	require.False(t, b.again().Placed, "the dead writer does not get its place back")
}

func unitsEnd(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	a.read(0, shareLease(short))
	b.lapsed(a)
	require.Equal(t, all, b.write(0).Units)
	require.Zero(t, a.again().Units, "units whose lease has ended do not come back")
	require.Equal(t, all, a.unitsOf(b))
}

func leaseKept(t *test) {
	a := t.readers(1)[0]
	a.read(1, shareLease(short))
	t.full(long, a.state().Holders[0].TTL)
	units, gone := a.renewShared(a.epoch, a.under, short)
	require.False(t, gone)
	require.Equal(t, 1, units)
	t.full(long, a.state().Holders[0].TTL)
}

func keepGivesBack(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	require.Equal(t, 5, a.borrow(5, 0, 5).Units)
	b.placed(b.borrow(5, 0, 3, least(3)))
	a.keep(4)
	b.placed(b.again())
	a.keep(2)
	b.granted(3)
	require.Equal(t, 2, b.unitsOf(a))
}

func askedAgain(t *test) {
	s := t.sharers(3)
	a, b, c := s[0], s[1], s[2]
	a.write(0)
	b.placed(b.write(0))
	sent := 1 // the number of copies that b, the head, has sent: each copy asks a once
	again := func() backend.ShareReply { sent++; return b.again() }
	a.wanted(0, again)
	heard := a.mail.shares.asked(t.name).count
	c.placed(c.read(0))
	for range 3 {
		c.placed(c.again())
	}
	a.heardMore(heard, again)
	require.LessOrEqual(t, a.mail.shares.asked(t.name).count, sent, "heartbeats of other waiters ask for no units")
	require.Zero(t, a.again().May, "its own reply says that another session waits, too")
}

func relieved(t *test) {
	s := t.readers(2)
	b := t.sharers(1)[0]
	b.placed(b.write(0))
	for _, a := range s {
		a.wanted(0, b.again)
	}
	require.False(t, b.keep(0).Placed)
	for _, a := range s {
		a.relieved()
	}

	c := t.readers(1)[0]
	c.placed(c.write(1))
	for _, a := range s {
		a.wanted(0, c.again)
	}
	c.under += 2
	require.Equal(t, backend.ShareLost, c.read(1).Status, "it has lost its units, and with them its place")
	for _, a := range s {
		a.relieved()
	}
}

// A session waits to write, and then asks for a reader's unit in place of all units. It is granted the unit, and the holder may
// keep all its units.
func relievedByLess(t *test) {
	a := t.readers(1)[0]
	b := t.sharers(1)[0]
	b.placed(b.write(0))
	a.wanted(0, b.again)
	require.Equal(t, 1, b.read(0).Units)
	a.relieved()
}

func relievedOfTheDead(t *test) {
	a := t.readers(1)[0]
	s := t.sharers(2)
	b, c := s[0], s[1]
	b.write(0, sharePatience(short))
	a.heardMore(0, a.ifLost(b.again))
	c.read(0)
	t.eventually("the reader is granted its unit when the writer is dead", func() bool { return !c.again().Placed })
	a.relieved()

	a.write(1, sharePatience(short)) // one that has units
	c.heardMore(0, c.ifLost(a.again))
	c.placeEnds(a)
	require.Equal(t, backend.Unlimited, a.again().May)
	c.relieved()
}

// The head is asked for no units, so it has not heard what the other sessions may keep. Its place ends, and the next head
// leaves the holders no fewer units. So the others already know all they need, but the former head does not.
func deadHeadAsked(t *test) {
	s := t.readers(2)
	a, b := s[0], s[1]
	c := t.sharers(1)[0]
	a.placed(a.write(1, sharePatience(short)))
	b.heardMore(0, b.ifLost(a.again))
	b.placeEnds(a)
	require.Zero(t, a.mail.shares.asked(t.name).count)
	c.placed(c.write(0))
	a.heardMore(0, a.ifLost(c.again))
	require.Zero(t, a.mail.shares.asked(t.name).may)
}

// A session that waits behind the head has heard what it may keep, and so have the other sessions.
func deadBehind(t *test) {
	s := t.readers(3)
	a, b, c := s[0], s[1], s[2]
	sent := 1 // the number of copies that a, the head, has sent: each copy asks b once
	a.placed(a.write(1))
	again := func() backend.ShareReply { sent++; return a.again() }
	b.wanted(0, again)
	c.write(1, sharePatience(short))
	b.soonQueued(a)
	d := t.sharers(1)[0]
	d.placed(d.read(0))
	b.heardMore(b.mail.shares.asked(t.name).count, again)
	require.LessOrEqual(t, b.mail.shares.asked(t.name).count, sent)
}

func sharedGrantIsComplete(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	a.read(0)
	asked := time.Now()
	b.placed(b.write(0, block(4)))
	a.keep(0)
	released := time.Now()
	g := b.granted(all)
	require.Equal(t, t.name, g.Name)
	require.Equal(t, b.epoch, g.Epoch)
	require.Equal(t, backend.Unlimited, g.May)
	require.Equal(t, g.First+6, g.Last)
	if !g.NotBefore.IsZero() {
		require.LessOrEqual(t, g.TTL, medium)
		require.Greater(t, g.TTL, medium-limit)
		require.False(t, g.NotBefore.After(released), "NotBefore is later than the grant")
		require.Less(t, asked.Sub(g.NotBefore), limit)
	}
	reply := b.again()
	require.False(t, reply.Placed)
	require.Equal(t, all, reply.Units)
	require.Equal(t, g.First, reply.First, "the reply has the same tokens")
	require.Equal(t, g.Last, reply.Last)
}

func lostGrant(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	a.write(0)
	b.placed(b.read(0))
	a.keep(0)
	reply := b.again()
	require.False(t, reply.Placed)
	require.Equal(t, 1, reply.Units)
}

func permitsShared(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	reply := a.borrow(10, 0, 10)
	require.Equal(t, 10, reply.Units)
	require.Equal(t, 10, reply.Share)
	reply = b.borrow(10, 0, 10)
	b.placed(reply)
	require.Equal(t, 5, reply.Share)
	a.wanted(9, b.again)
	require.Equal(t, backend.Unlimited, a.keep(5).May, "the session gave back enough units")
	g := b.granted(5)
	require.Equal(t, backend.Unlimited, g.May)
}

func thirdSession(t *test) {
	s := t.sharers(3)
	a, b, c := s[0], s[1], s[2]
	require.Equal(t, 5, a.borrow(10, 0, 5).Units)
	require.Equal(t, 5, b.borrow(10, 0, 5).Units)
	reply := c.borrow(10, 0, 10)
	c.placed(reply)
	require.Equal(t, 4, reply.Share, "rounded up")
	a.wanted(4, c.again)
	b.wanted(4, c.again)
	a.keep(3)
	c.granted(2) // as many units as fit: one is enough for the session
	require.Equal(t, 5, c.unitsOf(b))
	c.placed(c.borrow(10, 2, 4, least(4)))
	b.keep(3)
	c.granted(4)
}

func holderWaits(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	a.borrow(10, 0, 5)
	b.borrow(10, 0, 5)
	reply := a.borrow(10, 5, 9, least(6))
	a.placed(reply)
	require.Equal(t, 5, reply.Units)
	b.wanted(4, a.again)
	b.keep(3)
	a.granted(7)
}

func freeWhileNoneWaits(t *test) {
	s := t.sharers(3)
	a, b, c := s[0], s[1], s[2]
	a.borrow(10, 0, 5)
	b.borrow(10, 0, 2)
	require.Equal(t, 8, a.borrow(10, 5, 9, least(6)).Units, "no session waits: all free units")
	a.keep(5)
	c.placed(c.borrow(10, 0, 4, least(4)))
	reply := a.borrow(10, 5, 9, least(6))
	a.placed(reply)
	require.Equal(t, 5, reply.Units, "another session waits for the free units")
	a.queued(c, a)
}

func leastIsATotal(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	b.borrow(10, 0, 8)
	require.Equal(t, 2, a.borrow(10, 0, 2).Units)
	reply := a.borrow(10, 2, 5, least(4))
	a.placed(reply)
	require.Equal(t, 2, reply.Units)
	b.keep(7)
	reply = a.again()
	a.placed(reply)
	require.Equal(t, 2, reply.Units, "one more unit would not be enough")
	b.keep(6)
	a.granted(4)
}

func headGetsItsLeast(t *test) {
	s := t.sharers(3)
	a, b, c := s[0], s[1], s[2]
	a.borrow(9, 0, 9)
	b.placed(b.borrow(9, 0, 9, least(2)))
	c.placed(c.borrow(9, 0, 9, least(3)))
	a.keep(0)
	b.granted(2)
	c.granted(7) // all units that are left: no session waits behind c
}

func grantTakesNone(t *test) {
	s := t.sharers(4)
	a, b, c, d := s[0], s[1], s[2], s[3]
	a.borrow(10, 0, 6)
	b.borrow(10, 0, 4)
	c.placed(c.borrow(10, 0, 3, least(3)))
	b.placed(b.borrow(10, 4, 9, least(2)))
	d.placed(d.borrow(10, 0, 1))
	a.keep(2)
	c.granted(3)
	b.granted(4) // b already has more than its least
	d.granted(1)
}

// A session that waits keeps its place in the queue with a later epoch, whatever the epoch asks for.
func laterClaim(t *test) {
	s := t.sharers(3)
	a, b, c := s[0], s[1], s[2]
	a.borrow(10, 0, 9)
	b.placed(b.borrow(10, 0, 4, least(4)))
	c.placed(c.borrow(10, 0, 2, least(2)))
	b.placed(b.borrow(8, 0, 6, least(3)))
	a.queued(b, c)
	a.keep(5)
	b.granted(3)
	c.granted(2)
}

// For a moment the head accepts the units that the holders can spare. After that the holders must keep none.
func graceEnds(t *test) {
	s := t.sharers(3)
	a, b, c := s[0], s[1], s[2]
	a.borrow(10, 0, 5)
	b.borrow(10, 0, 5)
	began := time.Now()
	c.placed(c.borrow(10, 0, 4, least(4)))
	if may := a.again().May; may != 0 || time.Since(began) < 10*time.Millisecond {
		require.Equal(t, 3, may, "half of what the head leaves")
	}
	t.pause(11 * time.Millisecond)
	require.Zero(t, a.again().May)
	b.wanted(0, b.ifLost(c.again)) // a's copy causes the message that b may keep fewer units than before
	a.wanted(0, c.again)
	require.Zero(t, b.again().May)
	c.placed(c.borrow(10, 0, 3, least(3)))
	require.Zero(t, b.again().May, "a later epoch of the head counts as having waited as long")
}

func lessAgain(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	a.borrow(10, 0, 10)
	b.placed(b.borrow(10, 0, 8, least(8)))
	a.wanted(2, a.ifLost(b.again))
	b.placed(b.borrow(10, 0, 1))
	before, again := a.mail.shares.asked(t.name).count, a.ifLost(b.again)
	if may := a.again().May; may == 0 {
		again = b.again // after that time the head wants all units, whatever it asks for
	} else {
		require.Equal(t, 9, may)
	}
	b.placed(b.borrow(10, 0, 5, least(5)))
	a.heardMore(before, again)
	a.wanted(5, b.again)
}

// A session reports to its users when other sessions wait, but not when they only try. So the messages must distinguish the
// two.
func waitersAreNoTries(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	a.borrow(10, 0, 10)
	b.placed(b.borrow(10, 0, 8, least(8)))
	a.wanted(2, b.again)
	require.Zero(t, a.mail.shares.asked(t.name).try)
	b.placed(b.borrow(10, 0, 9, least(9), try))
	try := a.asked(0, b.again)
	b.placed(b.borrow(10, 0, 9, least(9)))
	before := a.mail.shares.asked(t.name).count
	a.heardMore(before, b.again)
	require.Equal(t, try, a.mail.shares.asked(t.name).try, "it waits now")
}

func manyAtOnce(t *test) {
	s := t.sharers(3)
	a, b, c := s[0], s[1], s[2]
	a.borrow(10, 0, 4)
	b.placed(b.borrow(10, 0, 8, least(8)))
	c.placed(c.borrow(10, 0, 1)) // the unit that c wants is free, but c is not the head
	a.wanted(2, b.again)
	a.keep(2)
	b.granted(8)
	c.placed(c.again())
	a.keep(0)
	c.granted(1)
}

func stricterLimit(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	a.borrow(10, 0, 10)
	reply := b.borrow(4, 0, 4)
	b.placed(reply)
	require.Equal(t, 2, reply.Share)
	a.wanted(3, b.again)
	a.keep(3)
	b.granted(1)
	require.Equal(t, 3, a.unitsOf(a))
	a.keep(2)
	reply = b.borrow(4, 1, 4, least(2))
	require.Equal(t, 2, reply.Units)
}
