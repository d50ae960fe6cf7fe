package backendtest

import (
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases about tries for shared names. A try is refused only if other sessions wait, or use the units.
var shareTryCases = []testCase{
	{"ShareTry/IsGrantedWhatFits", tryFits},
	{"ShareTry/IsRefusedAtOnceBehindOthers", tryBehindOthers},
	{"ShareTry/IsGrantedWhatTheHoldersGiveBack", tryGivenBack},
	{"ShareTry/AsksAllHolders", tryAsksAll},
	{"ShareTry/AsksAHolderThatItMadeRoomFor", tryAsksServed},
	{"ShareTry/AsksHoldersThatHaveNotAnsweredAgain", tryAsksAgain},
	{"ShareTry/IsRefusedWhenAllHaveAnswered", tryAllAnswered},
	{"ShareTry/IsRefusedByOneHolderThatIsInTheWay", tryInTheWay},
	{"ShareTry/RepliesNameIt", tryInReplies},
	{"ShareTry/AHolderThatKeepsNothingHasAnswered", tryNothingKept},
	{"ShareTry/AHolderWhoseLeaseEndedHasAnswered", tryLeaseEnded},
	{"ShareTry/IsRefusedWhenOnlyADeadHolderHasNotAnswered", tryDeadLast},
	{"ShareTry/AnAnswerCountsOnce", tryAnswersTwice},
	{"ShareTry/ACopyIsNoAnswer", tryCopyIsNoAnswer},
	{"ShareTry/AnAnswerToAnotherTryDoesNotCount", tryOlderAnswer},
	{"ShareTry/ARefusalLeavesWhatTheSessionHas", tryKeepsUnits},
	{"ShareTry/ARefusalServesTheNext", tryServesNext},
	{"ShareTry/HoldersLearnThatItWasRefused", tryRelieves},
	{"ShareTry/EndsWithItsPatience", tryPatience},
	{"ShareTry/HoldersAreAskedForTheOneBehindIt", tryEndsBefore},
	{"ShareTry/ALaterEpochThatIsNoneWaits", tryBecomesWait},
}

func tryFits(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	reply := a.write(0, try)
	require.Equal(t, all, reply.Units)
	require.False(t, reply.Placed)
	a.keep(0)
	require.Equal(t, 1, b.read(0, try).Units)
	require.Equal(t, 1, a.read(0, try).Units)
}

func tryBehindOthers(t *test) {
	a := t.readers(1)[0]
	s := t.sharers(2)
	b, c := s[0], s[1]
	b.placed(b.write(0))
	reply := c.read(0, try)
	require.False(t, reply.Placed)
	require.Zero(t, reply.Units)
	require.False(t, c.again().Placed, "a copy")
	a.queued(b)
	a.keep(0)
	b.granted(all)
}

func tryGivenBack(t *test) {
	s := t.readers(2)
	a, b := s[0], s[1]
	c := t.sharers(1)[0]
	reply := c.write(0, try)
	c.placed(reply)
	require.Equal(t, backend.Unlimited, reply.May, "the try is the head of the queue")
	require.Zero(t, a.keep(0, answer(a.asked(0, c.again))).May)
	c.placed(c.again())
	b.keep(0, answer(b.asked(0, c.again)))
	c.granted(all)
}

func tryAsksAll(t *test) {
	s := t.sharers(3)
	a, b, c := s[0], s[1], s[2]
	a.borrow(10, 0, 8)
	b.borrow(10, 0, 1) // the session may keep that many units, and is asked too
	c.placed(c.borrow(10, 0, 4, least(4), try))
	require.Equal(t, a.asked(0, c.again), b.asked(0, c.again), "both messages are of the same try")
}

// Units that a session gives back when it tries go to the waiter that came before it. Then this waiter has units, and is asked
// like all other holders.
func tryAsksServed(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	a.borrow(2, 0, 2)
	b.placed(b.borrow(2, 0, 1))
	a.placed(a.borrow(2, 0, 2, least(2), try))
	b.granted(1)
	b.keep(1, answer(b.asked(0, a.again)))
	a.granted(0)
}

func tryAsksAgain(t *test) {
	s := t.sharers(3)
	a, b, c := s[0], s[1], s[2]
	a.borrow(10, 0, 4)
	b.borrow(10, 0, 4)
	c.placed(c.borrow(10, 0, 5, least(5), try))
	order := a.asked(0, c.again)
	a.keep(4, answer(order))
	b.asked(0, c.again)
	b.mail.shares.forget(t.name) // the message was lost
	t.eventually("the try asks again", func() bool {
		c.placed(c.again())
		return b.mail.shares.asked(t.name).try == order
	})
}

// forget forgets what the messages about a name have said.
func (m *shareMail) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.wanted, name)
}

func tryAllAnswered(t *test) {
	s := t.sharers(3)
	a, b, c := s[0], s[1], s[2]
	a.borrow(10, 0, 4)
	b.borrow(10, 0, 4)
	c.placed(c.borrow(10, 0, 5, least(5), try))
	order := a.asked(0, c.again)
	a.keep(4, answer(order))
	c.placed(c.again())
	require.Equal(t, backend.Unlimited, b.keep(2, answer(b.asked(0, c.again))).May, "no session waits any more")
	c.refused(0)
	require.Equal(t, 4, c.unitsOf(a))
	require.Equal(t, 2, c.unitsOf(b))
}

// Replies have the same information as messages, because a message may be lost.
func tryInReplies(t *test) {
	s := t.sharers(3)
	a, b, c := s[0], s[1], s[2]
	a.borrow(10, 0, 4)
	b.borrow(10, 0, 4)
	require.Zero(t, a.again().Try)
	reply := c.borrow(10, 0, 5, least(5), try)
	c.placed(reply)
	require.Zero(t, reply.Try, "its own")
	order := a.asked(0, c.again)
	require.Equal(t, order, a.again().Try)
	reply = b.borrow(10, 4, 5, least(5))
	b.placed(reply)
	require.Equal(t, order, reply.Try, "it waits behind the try")
	require.Equal(t, order, a.keep(4, answer(order)).Try, "another session has not answered")
	require.Zero(t, c.keep(0).Try)
	require.Zero(t, a.again().Try, "the session waits")
}

func tryInTheWay(t *test) {
	a := t.readers(2)[0]
	c := t.sharers(1)[0]
	c.placed(c.write(0, try))
	a.keep(1, answer(a.asked(0, c.again)))
	c.refused(0)
}

// triedByFourth returns three sessions that have 3 of 10 permits each, and a fourth session that tries to get at least 5. The
// first session's request has the given changes. order is the number of the fourth session's try.
func (t *test) triedByFourth(changes ...shareWith) (a, b, c, d *sharer, order uint64) {
	t.Helper()
	s := t.sharers(4)
	a, b, c, d = s[0], s[1], s[2], s[3]
	a.borrow(10, 0, 3, changes...)
	b.borrow(10, 0, 3)
	c.borrow(10, 0, 3)
	d.placed(d.borrow(10, 0, 5, least(5), try))
	return a, b, c, d, b.asked(0, d.again)
}

func tryNothingKept(t *test) {
	a, b, c, d, order := t.triedByFourth()
	b.keep(3, answer(order))
	c.keep(3, answer(order))
	d.placed(d.again())
	a.keep(0)
	d.refused(0)
}

func tryLeaseEnded(t *test) {
	a, b, c, d, order := t.triedByFourth(shareLease(short))
	d.lapsed(a)
	d.placed(d.again())
	a.keep(0, answer(order)) // a's lease has ended, so its units no longer count
	b.keep(3, answer(order))
	d.placed(d.again())
	c.keep(3, answer(order))
	d.refused(0)
}

func tryDeadLast(t *test) {
	a, b, c, d, order := t.triedByFourth(shareLease(short))
	b.keep(3, answer(order))
	c.keep(3, answer(order))
	d.lapsed(a)
	reply := d.again()
	require.False(t, reply.Placed)
	require.Zero(t, reply.Units)
}

func tryAnswersTwice(t *test) {
	a, b, c, d, order := t.triedByFourth()
	a.keep(3, answer(order))
	a.keep(3, answer(order))
	b.keep(3, answer(order))
	d.placed(d.again())
	c.keep(3, answer(order))
	d.refused(0)
}

// A copy that was sent before the session was asked shows nothing about the units that are in use now.
func tryCopyIsNoAnswer(t *test) {
	a := t.readers(1)[0]
	c := t.sharers(1)[0]
	c.placed(c.write(0, try))
	order := a.asked(0, c.again)
	req := a.last
	req.Answer = order
	a.say(req)
	a.again()
	a.read(1) // a new epoch that answers no try
	c.placed(c.again())
	a.keep(0)
	c.granted(all)
}

func tryOlderAnswer(t *test) {
	s := t.readers(2)
	a, b := s[0], s[1]
	c := t.sharers(1)[0]
	c.placed(c.write(0, try))
	older := a.asked(0, c.again)
	c.keep(0)
	c.placed(c.write(0, try))
	order := a.asked(older, c.again)
	a.keep(1, answer(older))
	c.placed(c.again())
	require.Equal(t, order, b.asked(older, c.again))
	a.keep(1, answer(order))
	c.refused(0)
}

func tryKeepsUnits(t *test) {
	s := t.readers(2)
	a, b := s[0], s[1]
	a.placed(a.write(1, try))
	b.keep(1, answer(b.asked(0, a.again)))
	a.refused(1)
	units, gone := a.renewShared(a.epoch, a.under, long)
	require.False(t, gone)
	require.Equal(t, 1, units)
}

func tryServesNext(t *test) {
	a := t.readers(1)[0]
	s := t.sharers(2)
	b, c := s[0], s[1]
	b.placed(b.write(0, try))
	c.placed(c.read(0))
	a.keep(1, answer(a.asked(0, b.again)))
	require.Zero(t, b.news().Units)
	c.granted(1)
	b.refused(0)
}

func tryRelieves(t *test) {
	s := t.readers(2)
	a, b := s[0], s[1]
	c := t.sharers(1)[0]
	c.placed(c.write(0, try))
	b.asked(0, c.again)
	a.keep(1, answer(a.asked(0, c.again)))
	b.relieved()
}

func tryPatience(t *test) {
	a := t.readers(1)[0]
	s := t.sharers(2)
	b, c := s[0], s[1]
	b.write(0, try, sharePatience(short))
	c.read(0)
	t.eventually("the reader is granted its unit when the try is over", func() bool { return !c.again().Placed })
	require.Equal(t, 1, a.unitsOf(c))
	require.False(t, b.again().Placed)
}

// A try leaves the holders more units than a session that began to wait before the try, and more than a session that later
// waits behind the try.
func tryEndsBefore(t *test) {
	s := t.sharers(5)
	a, before, b, behind := s[0], s[1], s[2], s[3]
	a.write(0)
	before.placed(before.write(0, sharePatience(short)))
	a.heardMore(0, a.ifLost(before.again))
	a.soonQueued()
	b.placed(b.read(0, try, sharePatience(short)))
	a.asked(0, b.again)
	heard := a.mail.shares.asked(t.name).count
	behind.placed(behind.write(0))
	a.soonQueued(behind)
	s[4].placed(s[4].read(0))
	a.heardMore(heard, a.ifLost(behind.again))
	require.Zero(t, a.mail.shares.asked(t.name).may)
}

func tryBecomesWait(t *test) {
	a := t.readers(1)[0]
	s := t.sharers(2)
	b, c := s[0], s[1]
	b.placed(b.write(0, try))
	order := a.asked(0, b.again)
	c.placed(c.read(0))
	b.placed(b.write(0))
	a.queued(b, c)
	a.keep(1, answer(order))
	b.placed(b.again())
	a.keep(0)
	b.granted(all)
}
