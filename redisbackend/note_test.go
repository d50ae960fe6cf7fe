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

// A note is kept for no less than the record of the lock, and five minutes at least.
func TestANoteIsKeptAsLongAsTheRecord(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.withoutScripts().join("b")
		for _, m := range []*member{a, b} {
			m.take(5)
			m.note(5, "migration 42")
			record, note := must(s.do("TTL", s.side("t")).AsInt64()), must(s.do("TTL", s.side("n")).AsInt64())
			assert.GreaterOrEqual(t, note, int64((5*time.Minute - limit).Seconds()))
			assert.GreaterOrEqual(t, note, record)
			assert.Equal(t, "migration 42", b.inspect().Note)
			assert.Equal(t, "migration 42", a.inspect().Note)
			m.release(5)
		}
		b.take(6)
		assert.Empty(t, b.inspect().Note)
	})
}

// A client such as Redisson acquires the lock without a change of the record. Its hold is not shown with the note of
// the hold before.
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
