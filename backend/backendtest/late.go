package backendtest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases about copies of attempts that arrive after the attempt was given up.
var lateCases = []testCase{
	{"Late/NothingHappensAfterNotAfter", nothingAfterNotAfter},
	{"Late/ACopyIsRefusedAfterTheRelease", lateCopyIsRefused},
	{"Late/ACopyIsRefusedAfterTheWithdrawal", lateCopyAfterWithdrawal},
	{"Late/ACopyIsRefusedThoughItsReleaseCameFirst", releaseOvertakes},
	{"Late/ATombstoneIsTheSessionsAlone", aTombstoneIsTheSessionsAlone},
	{"Late/ATombstoneIsNotShortened", aTombstoneIsNotShortened},
	{"Late/ATombstoneEnds", aTombstoneEnds},
}

func nothingAfterNotAfter(t *test) {
	a, b, c := t.connect3()
	refused := func(s *session, epoch uint64, changes ...with) {
		t.Helper()
		ctx, cancel := s.command()
		defer cancel()
		reply, err := s.raw.Acquire(ctx, request(epoch, append(changes, notAfter(time.Now().Add(-short)))))
		require.Error(t, err, "%+v", reply)
		require.False(t, backend.OutcomeUnknown(err), "%v", err)
		require.False(t, backend.Refused(err), "%v", err)
	}
	refused(a, 1)
	a.free()
	a.take(1, lease(medium)) // the refused copy left nothing
	refused(a, 1, lease(long))
	refused(a, 2, lease(long))
	t.full(medium, a.has(1).TTL)
	b.wait(1)
	refused(c, 1, queue)
	refused(b, 2, queue)
	a.waiting(b)
	a.release(1)
	b.has(1)
}

// until gives up all of the session's epochs up to the given one. Copies of these epochs may be under way for d.
func (s *session) until(epoch uint64, d time.Duration) backend.ReleaseResult {
	s.t.Helper()
	return s.send(backend.ReleaseRequest{Epoch: epoch, Until: time.Now().Add(d)})
}

// use takes the lock and releases it, so that this session is in the server's record.
func (s *session) use(epoch uint64) {
	s.t.Helper()
	s.take(epoch)
	s.release(epoch)
}

func lateCopyIsRefused(t *test) {
	a, b, _ := t.connect3()
	a.take(5)
	require.Equal(t, backend.Released, a.until(5, long))
	b.use(1)
	a.stale(5)
	a.stale(5, queue)
	a.stale(4, barge)
	a.free()
	b.take(2)
	a.stale(5, queue)
	b.waiting()
	b.release(2)
	a.take(6)
}

func lateCopyAfterWithdrawal(t *test) {
	a, b, _ := t.connect3()
	a.take(1)
	b.wait(5)
	require.Equal(t, backend.Withdrawn, b.until(5, long))
	b.stale(5, queue)
	b.stale(4, queue)
	a.waiting()
	b.wait(6)
	a.release(1)
	b.has(6)
}

func releaseOvertakes(t *test) {
	a := t.connect()
	require.Equal(t, backend.Nothing, a.until(5, long))
	a.stale(5)
	a.free()
	a.take(6)
}

func aTombstoneIsTheSessionsAlone(t *test) {
	a, b, c := t.connect3()
	a.until(5, long)
	b.take(5)
	c.wait(5)
	b.until(5, long)
	c.until(5, long)
	a.stale(5)
	b.stale(5)
	c.stale(5)
}

func aTombstoneIsNotShortened(t *test) {
	a, b, _ := t.connect3()
	a.until(5, long)
	a.until(5, -short)
	a.release(4)
	a.until(4, short)
	b.brief(1)
	b.expired()
	a.stale(5)
}

func aTombstoneEnds(t *test) {
	a, b, _ := t.connect3()
	b.take(1)
	a.until(5, short)
	t.eventually("the session's attempts are no longer refused", func() bool {
		return a.acquire(5, queue).Status == backend.Waiting
	})
	b.waiting(a)
}
