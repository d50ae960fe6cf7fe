package backendtest

import (
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases about shared names: copies, losses, tokens, renewals, kinds, and refusals.
var shareCopyCases = []testCase{
	{"ShareCopies/AResendTakesNothingAndGivesNothing", resendKeeps},
	{"ShareCopies/AResendSetsTheFullLease", resendLease},
	{"ShareCopies/ALowerEpochIsStale", staleShare},
	{"ShareCopies/ACopyIsStaleWhenNothingIsLeft", staleWithoutUnits},
	{"ShareCopies/ASessionThatGaveAllBackIsSoonForgotten", shortMemory},
	{"ShareCopies/NothingHappensAfterNotAfter", shareLate},
	{"ShareCopies/KeepingUnitsThatAreGoneIsALoss", shareLost},
	{"ShareCopies/KeepingUnitsUnderAnotherTokenIsALoss", underAnother},
	{"ShareCopies/UnitsStayThoughAReplyWasLost", underTheSame},
	{"ShareCopies/ALossServesTheNext", lossServes},

	{"ShareTokens/AreEvenAndRise", sharedTokensRise},
	{"ShareTokens/TheFirstReaderHasOne", sharedFirstReader},
	{"ShareTokens/TheFirstPermitHasOne", sharedFirstPermit},
	{"ShareTokens/BlocksDoNotRunAwayFromTheClock", sharedBlocksEnd},
	{"ShareTokens/AnUnusedTailIsGivenBack", sharedTail},
	{"ShareTokens/AWriterThatReportsNothingHasUsedAllTokens", sharedNoTail},
	{"ShareTokens/AreAboveWhatTheSessionHasSeen", sharedSeen},
	{"ShareTokens/ReadersComeAboveWhatTheyHaveSeen", sharedReaderSeen},
	{"ShareTokens/AForgedOneIsRefused", sharedForged},
	{"ShareTokens/AWriterThatDiedIsFenced", sharedFence},

	{"ShareRenew/ProlongsTheLease", sharedRenew},
	{"ShareRenew/NeedsTheVeryEpochAndToken", sharedRenewEpoch},
	{"ShareRenew/NeverRecreates", sharedRenewGone},
	{"ShareRenew/GoesWithTheLocks", sharedRenewBatch},
	{"ShareRenew/OfANameThatIsALockByNowIsGone", sharedRenewLock},
	{"ShareRenew/OfALockWhoseNameIsSharedByNowIsGone", lockRenewShared},

	{"ShareKind/ALockIsNotShared", kindOfLock},
	{"ShareKind/ASharedNameIsNoLock", kindOfShared},
	{"ShareKind/AReadWriteLockIsNoSemaphore", kindOfPermits},
	{"ShareKind/InvalidRequestsAreRefused", badShares},

	{"ShareForce/TakesTheUnitsOfAllSessions", forceShared},
	{"ShareForce/ServesTheQueue", forceServes},
	{"ShareForce/DropsThePlaceOfAHolder", forceDropsPlace},
	{"ShareForce/OfAFreeNameDoesNothing", forceFreeName},
	{"ShareForce/OfAnotherKindIsRefused", forceOtherKind},

	{"ShareInspect/ShowsEverything", inspectShared},
	{"ShareInspect/ANameThatIsNotInUse", inspectUnused},

	{"ShareTogether/NeverMoreThanTheLimit", sharedTogether},
}

func resendKeeps(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	a.borrow(10, 0, 4)
	give := a.next(backend.Permits, 10, 1, 1, nil)
	a.say(give)
	require.Equal(t, 3, a.borrow(10, 1, 3).Units)
	require.Equal(t, backend.StaleShare, a.say(give).Status)
	b.placed(b.borrow(10, 0, 8, least(8)))
	require.Equal(t, 3, a.again().Units, "a copy gives nothing to others")
	require.Equal(t, 3, b.unitsOf(a))
	b.placed(b.again())
}

func resendLease(t *test) {
	a := t.sharers(1)[0]
	a.read(0, shareLease(medium))
	a.last.Lease = long // a copy of the last epoch, which says that the session keeps no units
	a.again()
	t.full(long, a.state().Holders[0].TTL)
}

func staleShare(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	old := a.next(backend.ReadWrite, all, 0, all, nil)
	a.say(old)
	a.keep(0)
	b.read(0)
	reply := a.say(old)
	require.Equal(t, backend.StaleShare, reply.Status)
	require.Equal(t, a.epoch, reply.Epoch)
	require.Empty(t, b.state().Waiting)
	require.Equal(t, 1, a.unitsOf(b))
}

// Copies of the last epoch can no longer arrive, but a copy of an earlier epoch still can.
func staleWithoutUnits(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	old := a.next(backend.ReadWrite, all, 0, 1, []shareWith{shareLease(short)})
	old.NotAfter = time.Now().Add(long)
	a.say(old)
	_, over := a.hurry(a.next(backend.ReadWrite, all, 0, 0, nil))
	t.pause(time.Until(over) + short)
	require.Equal(t, all, b.write(0).Units) // a command that makes the server update the name
	require.Equal(t, backend.StaleShare, a.say(old).Status)
	b.queued()
}

// hurry sends copies of a request with a short time limit, and a longer one for each next copy, until a copy arrives in time.
// It returns the reply to this copy, and the copy's time limit. A copy may be refused before its limit, but by no more than the
// time that the call takes: the session does not know the server's clock better than that.
func (s *sharer) hurry(req backend.ShareRequest) (backend.ShareReply, time.Time) {
	s.t.Helper()
	for within := short; ; within *= 2 {
		sent := time.Now()
		req.NotAfter = sent.Add(within)
		reply, err := s.send(req)
		if err == nil {
			return reply, req.NotAfter
		}
		require.True(s.t, time.Now().Add(time.Since(sent)).After(req.NotAfter), "a copy that came in time")
		require.LessOrEqual(s.t, within, limit, "no copy comes in time")
	}
}

// When a session has given everything back, its entry is deleted as soon as no copy can be under way any more, however long the
// session's lease was.
func shortMemory(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	first := a.next(backend.ReadWrite, all, 0, 1, nil)
	reply, _ := a.hurry(first)
	a.under = reply.First
	a.hurry(a.next(backend.ReadWrite, all, 0, 0, nil))
	b.read(0)
	t.eventually("the session's entry is deleted", func() bool {
		b.again()
		return a.say(first).Status == backend.Shared
	})
}

func shareLate(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	req := a.next(backend.ReadWrite, all, 0, all, nil)
	req.NotAfter = time.Now().Add(-short)
	_, err := a.send(req)
	require.Error(t, err)
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.False(t, backend.Refused(err))
	require.False(t, backend.OutcomeUnknown(err))
	require.Zero(t, b.state().Kind)
	require.Equal(t, 1, b.read(0).Units)
	req.NotAfter = time.Time{}
	a.placed(a.say(req))
}

func shareLost(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	a.read(0, shareLease(short))
	b.lapsed(a)
	reply := a.write(1)
	require.Equal(t, backend.ShareLost, reply.Status)
	require.Zero(t, reply.Units)
	require.False(t, reply.Placed)
	reply = a.again()
	require.Equal(t, backend.Shared, reply.Status)
	require.Zero(t, reply.Units)
	require.False(t, reply.Placed)
	require.Equal(t, all, a.write(0).Units)
}

func underAnother(t *test) {
	s := t.readers(2)
	a, b := s[0], s[1]
	a.under += 2
	require.Equal(t, backend.ShareLost, a.read(1).Status)
	require.Zero(t, b.unitsOf(a))
}

// A session may send a new request before it has the reply to the last one. Then the new request has the token that the session
// already knows.
func underTheSame(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	unheard := func(req backend.ShareRequest) backend.ShareReply {
		reply, err := a.send(req)
		require.NoError(t, err)
		return reply
	}
	under := a.write(0, block(5)).First
	reply := unheard(a.next(backend.ReadWrite, all, 1, all, []shareWith{tail(under + 4)}))
	require.Equal(t, all, reply.Units, "down to one unit, and up again")
	require.Greater(t, reply.First, under+4)
	b.placed(b.read(0))
	reply = unheard(a.next(backend.ReadWrite, all, 1, 1, nil))
	require.Equal(t, backend.Shared, reply.Status)
	require.Equal(t, 1, reply.Units)
	b.granted(1)
	require.Equal(t, 1, a.keep(1).Units)
	units, gone := a.renewShared(a.epoch, under, long)
	require.Equal(t, 1, units)
	require.False(t, gone)
}

func lossServes(t *test) {
	s := t.readers(2)
	a, b := s[0], s[1]
	b.placed(b.write(0))
	a.under += 2
	require.Equal(t, backend.ShareLost, a.read(1).Status)
	b.granted(all)
}

func sharedTokensRise(t *test) {
	s := t.sharers(2)
	last := backend.Token(0)
	for i := range 8 {
		a := s[i%2]
		reply := a.write(0, block(i+1))
		require.Greater(t, reply.First, last)
		require.Zero(t, reply.First%2)
		require.Zero(t, reply.Last%2)
		require.LessOrEqual(t, reply.Last, reply.First+backend.Token(2*i))
		last = reply.Last
		a.keep(0)
		require.Equal(t, last, s[1-i%2].read(0).First, "a reader gets the last token")
		s[1-i%2].keep(0)
	}
}

func sharedFirstReader(t *test) { t.hasToken(t.sharers(1)[0].read(0)) }

func sharedFirstPermit(t *test) { t.hasToken(t.sharers(1)[0].borrow(3, 0, 1)) }

// hasToken requires that units have a token although no session has written.
func (t *test) hasToken(reply backend.ShareReply) {
	t.Helper()
	require.Equal(t, 1, reply.Units)
	require.NotZero(t, reply.First)
	require.Zero(t, reply.First%2)
	require.Equal(t, reply.First, reply.Last)
}

// A block of tokens begins and ends with an even token, and ends only a few seconds ahead of the clock, as a block of a lock
// does.
func sharedBlocksEnd(t *test) {
	const size, most = 1 << 16, 10_000_000 // a number of tokens, and a number of microseconds: ten seconds
	a := t.sharers(1)[0]
	began := time.Now()
	first := a.write(0, block(size))
	last := first.Last
	for range 200 {
		t.pause(3 * time.Microsecond) // so that the clock's number of microseconds is sometimes odd and sometimes even
		got := a.write(0, block(size))
		require.Equal(t, all, got.Units)
		require.Greater(t, got.First, last)
		require.LessOrEqual(t, got.First, got.Last, "a block has one token at least")
		require.Zero(t, got.First%2)
		require.Zero(t, got.Last%2)
		last = got.Last
	}
	require.LessOrEqual(t, last-first.First, backend.Token(most+time.Since(began).Microseconds()))
}

func sharedTail(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	first := a.write(0, block(100)).First
	a.keep(0, tail(first+2))
	require.Equal(t, first+2, b.read(0).First)
	require.Equal(t, first+2, b.state().Token)
}

func sharedNoTail(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	for i, wrong := range []func(r *backend.ShareRequest, first, last backend.Token){
		func(*backend.ShareRequest, backend.Token, backend.Token) {},
		func(r *backend.ShareRequest, _, last backend.Token) { r.Tail = last + 7 },
		func(r *backend.ShareRequest, _, last backend.Token) { r.Tail = last + 8 },
		func(r *backend.ShareRequest, first, _ backend.Token) { r.Tail = first + 1 },
		func(r *backend.ShareRequest, first, _ backend.Token) { r.Tail, r.Under = first+2, first+2 },
	} {
		reply := a.write(0, block(4))
		a.keep(0, func(r *backend.ShareRequest) { wrong(r, reply.First, reply.Last) })
		require.Equal(t, reply.Last, b.read(0).First, "report %d", i)
		b.keep(0)
	}
}

func sharedSeen(t *test) {
	s := t.sharers(2)
	seen := s[0].write(0).First + 1_000_001
	s[0].keep(0)
	reply := s[1].write(0, func(r *backend.ShareRequest) { r.Seen = seen })
	require.Greater(t, reply.First, seen)
	require.Zero(t, reply.First%2)
}

// A reader that has seen a higher token than the server knows shows that the server has forgotten a write.
func sharedReaderSeen(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	last := a.write(0).Last
	a.keep(0)
	require.Equal(t, last, a.read(0, func(r *backend.ShareRequest) { r.Seen = last }).First, "nothing was written since then")
	seen := last + 1_000_000
	above := b.read(0, func(r *backend.ShareRequest) { r.Seen = seen }).First
	require.Greater(t, above, seen)
	require.Zero(t, above%2)
	a.keep(0)
	require.Equal(t, above, a.read(0).First, "all later sessions get higher tokens")
}

func sharedForged(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	_, err := a.send(a.next(backend.ReadWrite, all, 0, all, []shareWith{func(r *backend.ShareRequest) { r.Seen = 1 << 62 }}))
	require.True(t, backend.Refused(err), "%v", err)
	require.Zero(t, b.state().Kind)
	a.read(0)
	_, err = a.send(a.next(backend.ReadWrite, all, 0, 0, []shareWith{func(r *backend.ShareRequest) { r.Seen = 1 << 62 }}))
	require.NoError(t, err, "giving units back needs no token")
}

func sharedFence(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	last := a.write(0, block(3), shareLease(short)).Last
	b.lapsed(a)
	require.Equal(t, last, b.read(0).First)
}

func sharedRenew(t *test) {
	a := t.sharers(1)[0]
	a.borrow(10, 0, 7, shareLease(medium))
	units, gone := a.renewShared(a.epoch, a.under, long)
	require.False(t, gone)
	require.Equal(t, 7, units)
	t.full(long, a.state().Holders[0].TTL)
}

func sharedRenewEpoch(t *test) {
	s := t.readers(2)
	a := s[0]
	for _, wrong := range []struct {
		epoch uint64
		under backend.Token
	}{{a.epoch - 1, a.under}, {a.epoch + 1, a.under}, {a.epoch, a.under + 2}} {
		units, gone := a.renewShared(wrong.epoch, wrong.under, 2*long)
		require.True(t, gone, "%+v", wrong)
		require.Zero(t, units)
	}
	require.LessOrEqual(t, a.state().Holders[0].TTL, long)
}

func sharedRenewGone(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	a.read(0, shareLease(short))
	under := a.under
	b.lapsed(a)
	_, gone := a.renewShared(a.epoch, under, long)
	require.True(t, gone)
	require.Zero(t, b.unitsOf(a))
	_, gone = b.renewShared(1, under, long)
	require.True(t, gone)
	require.Equal(t, all, b.write(0).Units)
}

func sharedRenewBatch(t *test) {
	a := t.readers(1)[0]
	lock := a.bind(t, t.name+"-lock")
	lock.take(1, lease(medium))
	other := &sharer{session: &session{remote: a.bind(t, t.name+"-permits"), id: a.id, conn: a.conn, mail: a.mail}}
	require.Equal(t, 3, other.borrow(3, 0, 3, shareLease(medium)).Units)
	batch := []backend.Renewal{
		{Remote: a.raw, Epoch: a.epoch, Under: a.under, Lease: 2 * long},
		{Remote: lock.raw, Epoch: 1, Lease: long},
		{Remote: other.raw, Epoch: other.epoch, Under: other.under + 2, Lease: long},
		{Remote: other.raw, Epoch: other.epoch, Under: other.under, Lease: long},
		{Remote: lock.raw, Epoch: 2, Lease: long},
	}
	a.renewAll(batch)
	for i, want := range []struct {
		gone  bool
		units int
	}{{false, 1}, {false, 0}, {true, 0}, {false, 3}, {true, 0}} {
		require.Equal(t, want.gone, batch[i].Gone, "renewal %d", i)
		require.Equal(t, want.units, batch[i].Units, "renewal %d", i)
	}
	t.full(2*long, a.state().Holders[0].TTL)
	t.full(long, lock.inspect().TTL)
}

func sharedRenewLock(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	b.take(1)
	units, gone := a.renewShared(1, 2, long)
	require.True(t, gone, "this is no error: the session knows that it has no units")
	require.Zero(t, units)
	b.has(1)
}

func lockRenewShared(t *test) {
	a := t.readers(1)[0]
	b := t.connect()
	require.False(t, b.renew(1, long), "this is no error: the session knows that it has no units")
	require.Equal(t, 1, a.unitsOf(a))
}

func (t *test) wrongKind(err error) {
	t.Helper()
	require.ErrorIs(t, err, backend.ErrWrongKind)
	require.True(t, backend.Refused(err), "%v", err)
	require.False(t, backend.OutcomeUnknown(err), "%v", err)
}

func kindOfLock(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	a.take(1)
	for _, kind := range []backend.ShareKind{backend.ReadWrite, backend.Permits} {
		_, err := b.send(b.next(kind, all, 0, 1, nil))
		t.wrongKind(err)
	}
	ctx, cancel := b.command()
	defer cancel()
	_, err := b.raw.(backend.Sharer).InspectShared(ctx)
	t.wrongKind(err)
	_, err = b.forceShared(backend.ReadWrite)
	t.wrongKind(err)
	a.has(1)
	a.waiting()
	a.release(1)
	_, err = b.send(b.next(backend.ReadWrite, all, 0, 1, nil))
	t.wrongKind(err)
}

func kindOfShared(t *test) {
	s := t.readers(2)
	a, b := s[0], s[1]
	ctx, cancel := b.command()
	defer cancel()
	for _, changes := range [][]with{{}, {queue}, {barge}} {
		_, err := b.raw.Acquire(ctx, request(9, changes))
		t.wrongKind(err)
	}
	_, err := b.raw.Inspect(ctx)
	t.wrongKind(err)
	_, err = b.raw.ForceUnlock(ctx, time.Now().Add(limit))
	t.wrongKind(err)
	require.Equal(t, 1, b.unitsOf(a))
	a.keep(0)
	b.keep(0)
	_, err = b.raw.Acquire(ctx, request(9, nil))
	t.wrongKind(err)
	require.Empty(t, a.state().Holders)
}

func kindOfPermits(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	a.read(0)
	_, err := b.send(b.next(backend.Permits, 5, 0, 1, nil))
	t.wrongKind(err)
	_, err = a.send(a.next(backend.Permits, 5, 0, 0, nil))
	t.wrongKind(err)
	require.Equal(t, 1, b.unitsOf(a))
	require.Equal(t, backend.ReadWrite, b.state().Kind)
}

func badShares(t *test) {
	a := t.sharers(1)[0]
	tooHigh := int64(all) + 1
	for what, change := range map[string]shareWith{
		"no kind":             func(r *backend.ShareRequest) { r.Kind = 0 },
		"an unknown kind":     func(r *backend.ShareRequest) { r.Kind = 9 },
		"limit 0":             func(r *backend.ShareRequest) { r.Limit = 0 },
		"a limit too high":    func(r *backend.ShareRequest) { r.Limit = int(tooHigh) }, // negative where int has 32 bits
		"least above limit":   func(r *backend.ShareRequest) { r.Limit, r.Want, r.Least = 3, 4, 4 },
		"least above want":    func(r *backend.ShareRequest) { r.Least = 3 },
		"least 0":             func(r *backend.ShareRequest) { r.Least = 0 },
		"a negative keep":     func(r *backend.ShareRequest) { r.Keep = -1 },
		"want below keep":     func(r *backend.ShareRequest) { r.Keep, r.Want = 3, 1 },
		"no lease":            func(r *backend.ShareRequest) { r.Lease = 0 },
		"no patience":         func(r *backend.ShareRequest) { r.Patience = 0 },
		"no grant TTL":        func(r *backend.ShareRequest) { r.GrantTTL = 0 },
		"two of a ReadWrite":  func(r *backend.ShareRequest) { r.Kind, r.Limit, r.Want, r.Least = backend.ReadWrite, all, 2, 2 },
		"a limited ReadWrite": func(r *backend.ShareRequest) { r.Kind, r.Limit, r.Want, r.Least = backend.ReadWrite, 5, 1, 1 },
		"no token": func(r *backend.ShareRequest) {
			r.Kind, r.Limit, r.Want, r.Least, r.Tokens = backend.ReadWrite, all, all, all, 0
		},
		"too many tokens": func(r *backend.ShareRequest) {
			r.Kind, r.Limit, r.Want, r.Least, r.Tokens = backend.ReadWrite, all, all, all, 1<<16+1
		},
		"part of a write lock": func(r *backend.ShareRequest) { r.Kind, r.Limit, r.Want, r.Least = backend.ReadWrite, all, all, 1 },
	} {
		_, err := a.send(a.next(backend.Permits, 5, 0, 2, []shareWith{change}))
		require.Error(t, err, what)
		require.True(t, backend.Refused(err), "%s: %v", what, err)
		require.False(t, backend.OutcomeUnknown(err), "%s: %v", what, err)
	}
	require.Zero(t, a.state().Kind)
}

func inspectShared(t *test) {
	s := t.sharers(4)
	a, b, c, d := s[0], s[1], s[2], s[3]
	began := time.Now()
	a.borrow(9, 0, 5)
	b.borrow(10, 0, 4)
	granted := time.Now()
	c.borrow(8, 0, 3, least(2))
	d.borrow(10, 0, 6)
	a.borrow(9, 4, 4)
	st := d.state()
	require.Equal(t, backend.Permits, st.Kind)
	require.Equal(t, a.under, st.Token)
	require.Len(t, st.Holders, 2)
	for _, h := range st.Holders {
		t.full(long, h.TTL)
		if !h.Since.IsZero() {
			require.WithinRange(t, h.Since, began.Add(-limit), granted.Add(limit))
		}
		h.TTL, h.Since = 0, time.Time{}
		want := backend.SharedHolder{Session: a.id, Epoch: a.epoch, Units: 4, Under: a.under, Limit: 9}
		if h.Session == b.id {
			want = backend.SharedHolder{Session: b.id, Epoch: b.epoch, Units: 4, Under: b.under, Limit: 10}
		}
		require.Equal(t, want, h)
	}
	require.Equal(t, []backend.SharedWaiter{
		{Session: c.id, Epoch: c.epoch, Want: 3, Least: 2, Limit: 8},
		{Session: d.id, Epoch: d.epoch, Want: 6, Least: 1, Limit: 10},
	}, st.Waiting)
}

func inspectUnused(t *test) {
	require.Zero(t, t.sharers(1)[0].state())
}

// Sessions come and go at the same time. Together they never have more units than the limit, and a writer is always alone.
func sharedTogether(t *test) {
	const rounds, permits = 12, 5
	s := t.sharers(4)
	var mu sync.Mutex
	inside := map[*sharer]int{}
	enter := func(a *sharer, units int) {
		mu.Lock()
		defer mu.Unlock()
		inside[a] = units
		sum := 0
		for _, n := range inside {
			sum += n
		}
		if sum > permits {
			t.Errorf("%d units are used, %d are the limit", sum, permits)
		}
	}
	var sessions sync.WaitGroup
	for i, a := range s {
		sessions.Go(func() {
			for round := range rounds {
				want := 1 + (i+round)%permits
				req := a.next(backend.Permits, permits, 0, want, nil)
				reply, err := a.send(req)
				for end := time.Now().Add(3 * limit); err == nil && reply.Placed && time.Now().Before(end); {
					t.pause(pollInterval)
					reply, err = a.send(req)
				}
				if err != nil || reply.Units != want {
					t.Errorf("session %d: %+v, %v", i, reply, err)
					return
				}
				a.under = reply.First
				enter(a, want)
				t.pause(time.Millisecond)
				enter(a, 0)
				if _, err := a.send(a.next(backend.Permits, permits, 0, 0, nil)); err != nil {
					t.Errorf("session %d: %v", i, err)
					return
				}
			}
		})
	}
	sessions.Wait()
}
