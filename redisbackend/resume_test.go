package redisbackend_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// resume resumes the hold of the owner @w.
func (m *member) resume(epoch uint64, fixed bool) backend.ResumeReply {
	m.Helper()
	reply, err := m.remote.(backend.Resumer).Resume(m.ctx(), backend.ResumeRequest{
		Epoch: epoch, Owner: "@w", Lease: lease, Fixed: fixed, NotAfter: time.Now().Add(time.Minute),
	})
	require.NoError(m, err)
	return reply
}

// reenterAs re-enters the lock for an owner.
func (m *member) reenterAs(owner string, epoch, op uint64, holds int) {
	m.Helper()
	_, err := m.remote.Reenter(m.ctx(), backend.ReenterRequest{Epoch: epoch, Owner: owner, Op: op, Holds: holds})
	require.NoError(m, err)
}

func TestResumeKeepsTheRecordWithTheHold(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		token := a.take(1, owned("@w"))
		a.reenterAs("@w", 1, 1, 2)
		got := b.resume(7, false)
		assert.Equal(t, backend.Resumed, got.Status)
		assert.Equal(t, 2, got.Holds)
		assert.Equal(t, token, got.Token)
		assert.Equal(t, "b:@w=2", s.hash())
		assert.Equal(t, uint64(1), <-a.taken)
		b.reenterAs("@w", 7, 1, 3)
		assert.Equal(t, "b:@w=3", s.hash(), "operations are counted anew")
		assert.False(t, a.renews(1, lease))
		assert.Equal(t, backend.Nothing, a.release(1))
		assert.Equal(t, backend.Released, b.release(7))
		assert.Greater(t, a.take(2), token)
	})
}

func TestResumeGivesUpThePlaceOfItsSession(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		a.take(1, owned("@w"))
		b.wait(3)
		assert.Equal(t, backend.Resumed, b.resume(4, false).Status)
		assert.Empty(t, b.inspect().Waiting)
	})
}

// Redis may have forgotten the record but not the hold, or the hold but not the record.
func TestResumeWithoutARecordHasANewToken(t *testing.T) {
	each(t, func(t *testing.T, scripted *site) {
		for _, s := range []*site{scripted, scripted.withoutScripts()} {
			a, b := s.join("a"), s.join("b")
			token := a.take(1, owned("@w"))
			s.run("DEL", s.side("t"))
			got := b.resume(7, false)
			assert.Equal(t, backend.Resumed, got.Status)
			assert.Greater(t, got.Token, token)
			assert.Equal(t, text(int64(got.Token)), s.record()[1])
			assert.True(t, b.renews(7, lease), "the record says that the hold is b's")
			assert.Equal(t, backend.Released, b.release(7))
			assert.Equal(t, backend.NotThere, a.resume(8, false).Status)
			s.run("FLUSHALL")
		}
	})
}
