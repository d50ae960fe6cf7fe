package backendtest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases about holds that move to another session. They are for Remotes that support this.
var resumeCases = []testCase{
	{"Resume/TakesTheHoldWithItsCountAndToken", resumeTakes},
	{"Resume/ACopyGetsTheSameReply", resumeAgain},
	{"Resume/NotifiesTheSessionThatHadIt", resumeNotifies},
	{"Resume/EndsWhatTheOtherSessionHad", resumeEnds},
	{"Resume/WithinASessionGivesANewEpoch", resumeOwn},
	{"Resume/TakesNothingElse", resumeTakesNothingElse},
	{"Resume/AFixedLeaseGoesOn", resumeFixed},
	{"Resume/NeverShortensTheLease", resumeKeepsLease},
	{"Resume/ALateCopyIsRefused", resumeLate},
	{"Resume/AnOlderCopyIsRefused", resumeOld},
	{"Resume/ARepeatedOneHasItsEarlierCopiesRefused", resumeRefusesCopies},
}

const portable = "@workflow"

// resume sends an attempt to resume the hold of the portable owner. A Remote that cannot resume holds skips the case.
func (r *remote) resume(epoch uint64, changes ...func(*backend.ResumeRequest)) backend.ResumeReply {
	r.t.Helper()
	reply, err := r.tryResume(epoch, changes...)
	require.NoError(r.t, err)
	return reply
}

func (r *remote) tryResume(epoch uint64, changes ...func(*backend.ResumeRequest)) (backend.ResumeReply, error) {
	r.t.Helper()
	resumer, ok := r.raw.(backend.Resumer)
	if !ok {
		r.t.Skip("the Remote cannot resume holds")
	}
	ctx, cancel := r.command()
	defer cancel()
	req := backend.ResumeRequest{Epoch: epoch, Owner: portable, Lease: long, NotAfter: time.Now().Add(limit)}
	for _, change := range changes {
		change(&req)
	}
	return resumer.Resume(ctx, req)
}

func resumeTakes(t *test) {
	a, b, _ := t.connect3()
	got := a.take(3, owner(portable), holds(4))
	reply := b.resume(1)
	require.Equal(t, backend.Resumed, reply.Status)
	require.Equal(t, 4, reply.Holds)
	require.Equal(t, got.Last, reply.Token)
	t.full(long, reply.TTL)
	st := b.has(1)
	require.Equal(t, portable, st.Owner)
	require.Equal(t, 4, st.Holds)
	t.full(long, st.TTL)
}

func resumeAgain(t *test) {
	a, b, _ := t.connect3()
	a.take(3, owner(portable))
	first := b.resume(1)
	again := b.resume(1)
	require.Equal(t, backend.Resumed, again.Status)
	require.Equal(t, first.Token, again.Token)
	require.Equal(t, first.Holds, again.Holds)
}

func resumeNotifies(t *test) {
	a, b, _ := t.connect3()
	a.take(3, owner(portable))
	b.resume(1)
	epoch := uint64(3)
	t.eventually("the session gets the message", func() bool {
		if a.mail.lost(t.name) == epoch {
			return true
		}
		epoch++ // if the message is late or lost, the hold moves back and is resumed once more
		a.resume(epoch)
		b.resume(epoch)
		return false
	})
}

func resumeEnds(t *test) {
	a, b, _ := t.connect3()
	a.take(3, owner(portable))
	b.resume(1)
	require.False(t, a.renew(3, long))
	require.True(t, a.reenter(backend.ReenterRequest{Epoch: 3, Owner: portable, Op: 1, Holds: 2}).Gone)
	require.Equal(t, backend.Nothing, a.release(3))
	require.True(t, b.renew(1, long))
	require.Equal(t, 2, b.reenter(backend.ReenterRequest{Epoch: 1, Owner: portable, Op: 1, Holds: 2}).Holds)
	require.Equal(t, backend.Released, b.release(1))
}

func resumeOwn(t *test) {
	a := t.connect()
	got := a.take(3, owner(portable), holds(2))
	reply := a.resume(4)
	require.Equal(t, backend.Resumed, reply.Status)
	require.Equal(t, got.Last, reply.Token)
	require.Equal(t, 2, a.has(4).Holds)
	require.False(t, a.renew(3, long))
}

func resumeTakesNothingElse(t *test) {
	a, b, c := t.connect3()
	require.Equal(t, backend.NotThere, a.resume(1).Status, "a free lock")
	a.free()
	b.take(1, owner("7"))
	require.Equal(t, backend.NotThere, a.resume(2).Status, "another owner's")
	b.has(1)
	c.wait(1)
	require.Equal(t, backend.NotThere, a.resume(3).Status)
	a.waiting(c)
}

func resumeFixed(t *test) {
	a, b, _ := t.connect3()
	a.take(3, owner(portable), fixed(medium))
	reply := b.resume(1, func(r *backend.ResumeRequest) { r.Fixed = true })
	require.Equal(t, backend.Resumed, reply.Status)
	t.full(medium, reply.TTL)
	t.full(medium, b.has(1).TTL)
}

func resumeKeepsLease(t *test) {
	a, b, _ := t.connect3()
	a.take(3, owner(portable), lease(long))
	reply := b.resume(1, func(r *backend.ResumeRequest) { r.Lease = medium })
	t.full(long, reply.TTL)
	t.full(long, b.has(1).TTL)
}

func resumeLate(t *test) {
	a, b, _ := t.connect3()
	a.take(3, owner(portable))
	reply, err := b.tryResume(1, func(r *backend.ResumeRequest) { r.NotAfter = time.Now().Add(-time.Minute) })
	require.True(t, err != nil || reply.Status != backend.Resumed)
	a.has(3)
}

func resumeOld(t *test) {
	a, b, _ := t.connect3()
	a.take(3, owner(portable))
	b.resume(2)
	b.release(2)
	b.take(4, owner(portable))
	require.Equal(t, backend.Overtaken, b.resume(2).Status)
	b.has(4)
}

func resumeRefusesCopies(t *test) {
	doubt := func(r *backend.ResumeRequest) { r.Until = time.Now().Add(long) }
	a, b, c := t.connect3()
	a.take(3, owner(portable))
	require.Equal(t, backend.Resumed, b.resume(2, doubt).Status)
	require.Equal(t, backend.Resumed, c.resume(1).Status)
	require.Equal(t, backend.Overtaken, b.resume(1).Status, "a resume of a hold that another session has resumed since")
	c.has(1)
	c.release(1)
	require.Equal(t, backend.NotThere, b.resume(4, doubt).Status)
	a.take(4, owner(portable))
	require.Equal(t, backend.Overtaken, b.resume(3).Status, "a resume of a hold that did not exist")
	a.has(4)
	require.Equal(t, backend.Resumed, b.resume(5, doubt).Status)
	require.Equal(t, backend.Resumed, b.resume(5, doubt).Status, "a copy of this one")
}
