package backendtest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases about Priors. A Prior is what a session remembers of a lock. It is only a hint: whether it is right or wrong, it must
// not change any result.
var priorCases = []testCase{
	{"Prior/ARightOneTakesAndFrees", aRightPrior},
	{"Prior/AWrongOneChangesNothing", aWrongPrior},
	{"Prior/AWrongOneLeavesTheHoldAlone", aWrongPriorLeavesTheHold},
	{"Prior/OfAnotherSessionChangesNothing", anotherSessionsPrior},
	{"Prior/AnEarlierAttemptsChangesNothing", anEarlierPrior},
	{"Prior/OfBeforeAReentryKeepsNoCount", priorBeforeReentry},
	{"Prior/OfAHoldThatIsGoneTakesNothingFromTheNext", priorOfAGoneHold},
	{"Prior/OfALeaseThatEndedGivesAFullLease", priorOfAnEndedLease},
	{"Prior/PassesOverNoWaiter", priorPassesOverNoWaiter},
	{"Prior/AReleaseServesTheFirst", priorReleaseServesTheFirst},
	{"Prior/ALateAttemptIsRefused", latePrior},
	{"Prior/AnAttemptThatWasGivenUpIsRefused", priorOfAnAttemptGivenUp},
	{"Prior/ARightOneYields", aRightPriorYields},
	{"Prior/AWrongOneYields", aWrongPriorYields},
	{"Prior/DoesNotYieldToADeadWaiter", priorYieldsNothingToTheDead},
	{"Prior/ALateYieldIsRefused", latePriorYield},
	{"Prior/TokensFollowTheClock", tokensFollowTheClock},
}

// remembering puts a Prior into an attempt.
func remembering(p backend.Prior) with { return func(r *backend.AcquireRequest) { r.Prior = p } }

// remember takes the lock and returns the reply's Prior, or one made from the attempt if the reply has none.
func (r *remote) remember(epoch uint64, changes ...with) backend.Prior {
	r.t.Helper()
	return remembered(request(epoch, changes), r.take(epoch, changes...))
}

func remembered(req backend.AcquireRequest, reply backend.AcquireReply) backend.Prior {
	if reply.Prior.Epoch != 0 {
		return reply.Prior
	}
	return backend.Prior{Epoch: req.Epoch, Owner: req.Owner, Token: reply.Last}
}

// releaseBy releases an epoch with a Prior. It requires that the session had the lock, and that the lock is free afterwards.
func (r *remote) releaseBy(epoch uint64, p backend.Prior) {
	r.t.Helper()
	got := r.send(backend.ReleaseRequest{Epoch: epoch, Prior: p})
	require.Contains(r.t, []backend.ReleaseResult{backend.Released, backend.Freed}, got, "Release of epoch %d", epoch)
	r.free()
}

func aRightPrior(t *test) {
	a := t.connect()
	one := a.remember(1, lease(medium))
	two := a.remember(2, owner("2"), holds(3), keepTTL, remembering(one))
	require.Greater(t, two.Token, one.Token)
	st := a.has(2)
	require.Equal(t, "2", st.Owner)
	require.Equal(t, 3, st.Holds)
	require.Equal(t, two.Token, st.Token)
	t.full(medium, st.TTL)
	three := a.remember(3, remembering(two))
	t.full(long, a.has(3).TTL)
	a.releaseBy(3, three)
	three.Freed = true
	four := a.remember(4, owner("2"), lease(medium), remembering(three))
	require.Greater(t, four.Token, three.Token)
	st = a.has(4)
	require.Equal(t, "2", st.Owner)
	t.full(medium, st.TTL)
	a.stale(2, remembering(one))
	a.releaseBy(4, four)
}

// wrongs are the ways in which a Prior of the present hold can be wrong.
var wrongs = map[string]func(*backend.Prior){
	"no epoch":       func(p *backend.Prior) { p.Epoch = 0 },
	"a lower epoch":  func(p *backend.Prior) { p.Epoch-- },
	"a higher epoch": func(p *backend.Prior) { p.Epoch++ },
	"the owner":      func(p *backend.Prior) { p.Owner = "another" },
	"a lower token":  func(p *backend.Prior) { p.Token-- },
	"a higher token": func(p *backend.Prior) { p.Token++ },
	"the re-entries": func(p *backend.Prior) { p.Op++ },
	"pushed":         func(p *backend.Prior) { p.Pushed = true },
	"freed":          func(p *backend.Prior) { p.Freed = true },
	"the note":       func(p *backend.Prior) { p.Note = "wrong" },
}

func aWrongPrior(t *test) {
	a := t.connect()
	epoch, before := uint64(1), backend.Token(0)
	for what, spoil := range wrongs {
		p := a.remember(epoch)
		spoil(&p)
		next := a.remember(epoch+5, owner("2"), keepTTL, remembering(p))
		require.Greater(t, next.Token, before, "%s is wrong", what)
		require.Equal(t, "2", a.has(epoch+5).Owner, "%s is wrong", what)
		spoil(&next)
		a.releaseBy(epoch+5, next)
		epoch, before = epoch+10, next.Token
	}
}

// A wrong Prior must not cost the session its hold. Otherwise the attempt would find the lock free, and the session that waits
// would get it.
func aWrongPriorLeavesTheHold(t *test) {
	a, b, _ := t.connect3()
	p := a.remember(1)
	b.wait(1)
	p.Owner = "another"
	a.take(2, queue, keepTTL, remembering(p)) // for the owner that has the hold, not for p.Owner
	a.has(2)
	a.waiting(b)
}

func anotherSessionsPrior(t *test) {
	a, b, _ := t.connect3()
	p := a.remember(1)
	b.wait(2, remembering(p))
	a.has(1)
	require.Equal(t, backend.Nothing, b.send(backend.ReleaseRequest{Epoch: 1, Prior: p}))
	a.has(1)
	a.waiting(b)
}

func anEarlierPrior(t *test) {
	a := t.connect()
	one := a.remember(1)
	a.take(2, owner("2"))
	three := a.take(3, owner("3"), keepTTL, remembering(one))
	a.stale(2, remembering(one))
	st := a.has(3)
	require.Equal(t, "3", st.Owner)
	require.Equal(t, three.Last, st.Token)
	require.Equal(t, backend.Nothing, a.send(backend.ReleaseRequest{Epoch: 1, Prior: one}))
	a.has(3)
	a.releaseBy(3, one)
	one.Freed = true
	a.stale(2, remembering(one))
	a.take(4, remembering(one))
	a.has(4)
}

func priorBeforeReentry(t *test) {
	a := t.connect()
	one := a.remember(1)
	a.reenter(backend.ReenterRequest{Epoch: 1, Op: 1, Holds: 2, Lease: long})
	two := a.remember(2, owner("2"), remembering(one))
	require.Equal(t, 1, a.has(2).Holds)
	a.reenter(backend.ReenterRequest{Epoch: 2, Owner: "2", Op: 1, Holds: 2, Lease: long})
	a.releaseBy(2, two)
}

func priorOfAGoneHold(t *test) {
	a, b, _ := t.connect3()
	p := a.remember(1)
	a.release(1)
	b.take(1)
	for _, p.Freed = range []bool{false, true} {
		require.Equal(t, backend.Waiting, a.acquire(2, remembering(p)).Status)
		require.Equal(t, backend.Nothing, a.send(backend.ReleaseRequest{Epoch: 1, Prior: p}))
		b.has(1)
	}
	b.release(1)
	p = a.remember(3)
	b.force()
	require.Equal(t, backend.Nothing, a.send(backend.ReleaseRequest{Epoch: 3, Prior: p}))
	a.free()
}

func priorOfAnEndedLease(t *test) {
	a := t.connect()
	p := remembered(request(1, nil), a.brief(1))
	a.expired()
	require.Equal(t, backend.Nothing, a.send(backend.ReleaseRequest{Epoch: 1, Prior: p}))
	a.take(2, keepTTL, remembering(p))
	t.full(long, a.has(2).TTL)
}

func priorPassesOverNoWaiter(t *test) {
	a, b, _ := t.connect3()
	p := a.remember(1)
	b.wait(1)
	require.Equal(t, backend.Released, a.send(backend.ReleaseRequest{Epoch: 1, Prior: p}))
	b.has(1)
	b.release(1)
	epoch := uint64(2)
	for brief := t.brief; ; brief *= 2 {
		p = remembered(request(epoch, nil), a.brief(epoch, lease(brief)))
		if b.acquire(epoch, queue).Status == backend.Waiting {
			break
		}
		require.LessOrEqual(t, brief, limit, "the lease ends before another session waits")
		b.release(epoch) // if not, the lease was over first
		epoch++
	}
	a.expired()
	p.Freed = true
	require.Equal(t, backend.Waiting, a.acquire(epoch+1, queue, remembering(p)).Status)
	b.has(epoch)
}

func priorReleaseServesTheFirst(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(1) // now the record is kept for long, and waiters do not change that
	a.release(1)
	b.release(1)
	p := a.remember(2)
	a.releaseBy(2, p)
	p.Freed = true
	p = a.remember(3, remembering(p))
	b.wait(2)
	c.wait(1)
	require.Equal(t, backend.Released, a.send(backend.ReleaseRequest{Epoch: 3, Prior: p}))
	b.has(2)
	b.waiting(c)
	b.release(2)
	c.has(1)
}

func latePrior(t *test) {
	a := t.connect()
	p := a.remember(1)
	t.pause(2 * short) // so that the token, which is a time, is lower than the late time limit
	late := func(epoch uint64) {
		t.Helper()
		ctx, cancel := a.command()
		defer cancel()
		reply, err := a.raw.Acquire(ctx, request(epoch, []with{remembering(p), notAfter(time.Now().Add(-short))}))
		require.Error(t, err, "%+v", reply)
	}
	late(2)
	a.has(1)
	a.releaseBy(1, p)
	p.Freed = true
	late(3)
	a.free()
}

// An attempt was given up. A copy of it does not get the lock, even if the copy has what the session remembers from before.
func priorOfAnAttemptGivenUp(t *test) {
	a := t.connect()
	p := a.remember(1)
	a.releaseBy(1, p)
	p.Freed = true
	require.Equal(t, backend.Nothing, a.until(3, long))
	a.stale(2, remembering(p))
	a.stale(3, remembering(p))
	a.free()
	p = a.remember(4, remembering(p))
	a.has(4)
	a.releaseBy(4, p)
	p.Freed = true
	a.stale(3, remembering(p))
	a.remember(5, remembering(p))
	a.has(5)
}

// A server that has forgotten tokens of other sessions must not issue lower ones. So a Prior alone does not determine
// the token: a lease begins with a token from the server's clock.
func tokensFollowTheClock(t *test) {
	a := t.connect()
	clock := a.bind(t, t.name+"-clock")
	epoch := uint64(0)
	reads := func() backend.Token {
		t.pause(pollInterval)
		epoch++
		token := clock.take(epoch).Last
		clock.release(epoch)
		return token
	}
	p := a.remember(1)
	before := reads()
	p = a.remember(2, remembering(p))
	require.GreaterOrEqual(t, p.Token, before, "the lock is passed on, and a lease begins")
	a.releaseBy(2, p)
	p.Freed = true
	before = reads()
	p = a.remember(3, remembering(p))
	require.GreaterOrEqual(t, p.Token, before, "the free lock is taken")
	a.releaseBy(3, p)
}

func aRightPriorYields(t *test) {
	a, b, c := t.connect3()
	p := a.remember(1)
	p = remembered(request(2, nil), a.take(2, yield, lease(medium), remembering(p))) // no session waits
	t.full(medium, a.has(2).TTL)
	b.wait(1, owner("5"), holds(2), grantTTL(medium))
	c.wait(1)
	t.full(medium, a.wait(3, yield, owner("9"), remembering(p)).TTL)
	st := b.has(1)
	require.Greater(t, st.Token, p.Token)
	require.Equal(t, "5", st.Owner)
	require.Equal(t, 2, st.Holds)
	t.full(medium, st.TTL)
	b.waiting(c, a)
	a.wait(3, yield, owner("9"), remembering(p)) // a copy
	b.has(1)
	b.waiting(c, a)
	b.release(1)
	c.release(1)
	require.Equal(t, "9", a.has(3).Owner)
}

func aWrongPriorYields(t *test) {
	a, b, _ := t.connect3()
	epoch := uint64(1)
	for what, spoil := range wrongs {
		p := a.remember(epoch)
		spoil(&p)
		b.wait(epoch)
		a.wait(epoch+5, yield, remembering(p))
		b.has(epoch)
		require.Equal(t, backend.Released, b.release(epoch), "%s is wrong", what)
		a.has(epoch + 5)
		require.Equal(t, backend.Released, a.release(epoch+5), "%s is wrong", what)
		epoch += 10
	}
}

func priorYieldsNothingToTheDead(t *test) {
	a, b, _ := t.connect3()
	p := a.remember(1)
	b.wait(1, patience(short))
	a.dead()
	a.take(2, yield, remembering(p))
	a.has(2)
	a.waiting()
}

func latePriorYield(t *test) {
	a, b, _ := t.connect3()
	p := a.remember(1)
	b.wait(1)
	t.pause(2 * short) // so that the token, which is a time, is lower than the late time limit
	ctx, cancel := a.command()
	defer cancel()
	reply, err := a.raw.Acquire(ctx, request(2, []with{yield, remembering(p), notAfter(time.Now().Add(-short))}))
	require.Error(t, err, "%+v", reply)
	a.has(1)
	a.waiting(b)
}
