package redisbackend_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// note writes a note to the member's hold.
func (m *member) note(epoch uint64, text string) {
	m.Helper()
	kept, err := m.remote.(backend.Noter).Note(m.ctx(), backend.NoteRequest{Epoch: epoch, Text: text})
	require.NoError(m.T, err)
	require.True(m.T, kept)
}

// A note is kept for at least as long as the record of the lock, and for at least five minutes.
func TestANoteIsKeptAsLongAsTheRecord(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.withoutScripts().join("b")
		for _, m := range []*member{a, b} {
			m.take(5)
			m.note(5, "migration 42")
			record, note := must(s.do("TTL", s.side("t")).AsInt64()), must(s.do("TTL", s.side("n")).AsInt64())
			assert.Greater(t, note, int64((5*time.Minute - limit).Seconds())) // at least five minutes
			assert.GreaterOrEqual(t, note, record)
			assert.Equal(t, "migration 42", b.inspect().Note)
			assert.Equal(t, "migration 42", a.inspect().Note)
			m.release(5)
			for range 2 { // the second one may be a copy, and the record is kept as long as such a lease needs it
				m.take(6, func(r *backend.AcquireRequest) { r.Lease = time.Hour })
			}
			m.note(6, "migration 43")
			record, note = must(s.do("TTL", s.side("t")).AsInt64()), must(s.do("TTL", s.side("n")).AsInt64())
			assert.GreaterOrEqual(t, note, record)
			assert.Greater(t, note, int64(time.Hour.Seconds()))
			m.release(6)
		}
		b.take(7)
		assert.Empty(t, b.inspect().Note)
	})
}

// A client such as Redisson acquires the lock without changing the record. Inspect does not show the note of the hold before
// with that client's hold.
func TestANoteIsNotShownWithAHoldThatTheRecordDoesNotKnow(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		for _, a := range []*member{s.join("a"), s.withoutScripts().join("b")} {
			a.take(5)
			a.note(5, "text")
			s.run("DEL", s.name)
			s.run("HSET", s.name, "another:1", "1")
			s.run("PEXPIRE", s.name, "30000")
			assert.Empty(t, a.inspect().Note)
			s.run("DEL", s.name)
		}
	})
}

// noteShared writes a note to the member's units.
func (m *member) noteShared(epoch uint64, text string) {
	m.Helper()
	kept, err := m.remote.(backend.ShareNoter).NoteShared(m.ctx(), backend.NoteRequest{Epoch: epoch, Text: text})
	require.NoError(m.T, err)
	require.True(m.T, kept)
}

// Sessions with scripts and sessions without see each other's notes. They see no note that is left of an earlier grant.
func TestANoteOfUnitsIsReadWithAndWithoutScripts(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		members := []*member{s.join("a"), s.withoutScripts().join("b")}
		seen := func(m *member) map[string]string {
			st, err := m.remote.(backend.Sharer).InspectShared(s.ctx())
			require.NoError(t, err)
			notes := map[string]string{}
			for _, h := range st.Holders {
				notes[h.Session] = h.Note
			}
			return notes
		}
		for _, m := range members {
			must(m.share(sharing(1, 0, 1)))
			m.noteShared(1, "of "+m.id)
		}
		for _, m := range members {
			assert.Equal(t, map[string]string{"a": "of a", "b": "of b"}, seen(m))
		}
		for _, m := range members {
			must(m.share(sharing(2, 0, 0)))
			must(m.share(sharing(3, 0, 1)))
		}
		for _, m := range members {
			assert.Equal(t, map[string]string{"a": "", "b": ""}, seen(m))
		}
	})
}
