package backendtest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// forceShared takes all units of a shared name away from their sessions.
func (s *sharer) forceShared(kind backend.ShareKind) (bool, error) {
	s.t.Helper()
	ctx, cancel := s.command()
	defer cancel()
	return s.raw.(backend.Sharer).ForceShared(ctx, kind, time.Now().Add(limit))
}

// forced calls forceShared, and requires that a session had units.
func (s *sharer) forced(kind backend.ShareKind) {
	s.t.Helper()
	had, err := s.forceShared(kind)
	require.NoError(s.t, err, "ForceShared")
	require.True(s.t, had, "ForceShared")
}

func forceShared(t *test) {
	s := t.sharers(3)
	a, b, c := s[0], s[1], s[2]
	a.borrow(5, 0, 2)
	b.borrow(5, 0, 3)
	token := c.state().Token
	c.forced(backend.Permits)
	require.Empty(t, c.state().Holders)
	require.Equal(t, token, c.state().Token)
	_, gone := a.renewShared(a.epoch, a.under, long)
	require.True(t, gone, "a renewal")
	require.Equal(t, backend.ShareLost, a.borrow(5, 1, 1).Status, "the session says that it keeps units that were taken away")
	reply := b.again()
	require.Equal(t, backend.Shared, reply.Status)
	require.Zero(t, reply.Units, "a copy")
	require.False(t, reply.Placed)
	require.Equal(t, 5, c.borrow(5, 0, 5, least(5)).Units)
	require.Equal(t, backend.StaleShare, a.say(a.copyOf(a.epoch-1)).Status, "an older copy is still refused")
}

// copyOf returns the last request with the given epoch, which is older.
func (s *sharer) copyOf(epoch uint64) backend.ShareRequest {
	req := s.last
	req.Epoch = epoch
	return req
}

func forceServes(t *test) {
	s := t.sharers(4)
	a, b, c, d := s[0], s[1], s[2], s[3]
	a.write(0)
	last := a.state().Token
	b.placed(b.read(0))
	c.placed(c.read(0))
	d.placed(d.write(0))
	d.forced(backend.ReadWrite)
	b.granted(1)
	require.Equal(t, 1, c.granted(1).Units)
	require.Equal(t, last, c.under, "tokens that the writer may have used are lower")
	d.queued(d)
	d.forced(backend.ReadWrite)
	require.Greater(t, d.granted(all).First, last)
	require.Zero(t, d.unitsOf(b))
}

// A session that waits for more units than it has must learn that it has no units any more, even if other sessions have had the
// name meanwhile.
func forceDropsPlace(t *test) {
	s := t.readers(3)
	a, b, c := s[0], s[1], s[2]
	c.keep(0)
	a.placed(a.write(1))
	c.placed(c.write(0))
	b.forced(backend.ReadWrite)
	c.granted(all)
	c.queued()
	reply := a.again()
	require.Zero(t, reply.Units)
	require.False(t, reply.Placed)
}

func forceFreeName(t *test) {
	a := t.sharers(1)[0]
	for range 2 {
		for _, kind := range []backend.ShareKind{backend.ReadWrite, backend.Permits} {
			if st := a.state(); st.Kind != 0 && st.Kind != kind {
				continue
			}
			had, err := a.forceShared(kind)
			require.NoError(t, err)
			require.False(t, had)
		}
		a.read(0)
		a.keep(0)
	}
}

func forceOtherKind(t *test) {
	s := t.readers(2)
	a, b := s[0], s[1]
	_, err := b.forceShared(backend.Permits)
	t.wrongKind(err)
	require.Equal(t, 1, b.unitsOf(a))
}
