package backendtest

import (
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases about notes of the units of shared names. They are for Remotes that keep notes.
var shareNoteCases = []testCase{
	{"ShareNote/IsShownWithTheUnits", shareNoteShown},
	{"ShareNote/LastsWhileTheUnitsAreRenewed", shareNoteLasts},
	{"ShareNote/IsNotShownAfterTheNextGrant", shareNoteNotOfNext},
	{"ShareNote/StaysWithWhatIsNotGivenBack", shareNoteStays},
	{"ShareNote/IsNotShownWithoutUnits", shareNoteLapsed},
	{"ShareNote/OfUnitsThatAreNotThereChangesNothing", shareNoteGone},
	{"ShareNote/IsAnyBytes", shareNoteBytes},
	{"ShareNote/LeavesTheNameAsItIs", shareNoteKeeps},
	{"ShareNote/ThatIsTooLongIsRefused", shareNoteTooLong},
	{"ShareNote/OfTheNameOfALockChangesNothing", shareNoteOfLock},
}

// note keeps a note with the units of an epoch, and reports whether the units exist. A Remote that keeps no notes skips the
// case.
func (s *sharer) note(epoch uint64, text string) bool {
	s.t.Helper()
	kept, err := s.tryNote(epoch, text)
	require.NoError(s.t, err)
	return kept
}

func (s *sharer) tryNote(epoch uint64, text string) (bool, error) {
	s.t.Helper()
	noter, ok := s.raw.(backend.ShareNoter)
	if !ok {
		s.t.Skip("notes of shared names are not kept")
	}
	ctx, cancel := s.command()
	defer cancel()
	return noter.NoteShared(ctx, backend.NoteRequest{Epoch: epoch, Text: text})
}

// noteOf returns another session's note as this session sees it. The other session has units.
func (s *sharer) noteOf(other *sharer) string {
	s.t.Helper()
	for _, h := range s.state().Holders {
		if h.Session == other.id {
			return h.Note
		}
	}
	require.Fail(s.t, "the session has no units")
	return ""
}

func shareNoteShown(t *test) {
	s := t.readers(2)
	a, b := s[0], s[1]
	require.Empty(t, b.noteOf(a))
	require.True(t, a.note(a.epoch, "report 42"))
	require.True(t, b.note(b.epoch, "report 43"))
	require.Equal(t, "report 42", b.noteOf(a))
	require.Equal(t, "report 43", a.noteOf(b))
	require.True(t, a.note(a.epoch, "report 44"))
	require.Equal(t, "report 44", b.noteOf(a))
	require.True(t, a.note(a.epoch, ""))
	require.Empty(t, b.noteOf(a))
	require.Equal(t, "report 43", a.noteOf(b))
}

func shareNoteLasts(t *test) {
	s := t.readers(2)
	a, b := s[0], s[1]
	require.True(t, a.note(a.epoch, "text"))
	units, _ := a.renewShared(a.epoch, a.under, long)
	require.Equal(t, 1, units)
	require.Equal(t, 1, a.again().Units)
	b.write(0)
	b.keep(0)
	require.Equal(t, "text", b.noteOf(a))
}

// tick is longer than the resolution of a server's clock.
const tick = 2 * time.Millisecond

func shareNoteNotOfNext(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	a.borrow(5, 0, 2)
	require.True(t, a.note(a.epoch, "text"))
	time.Sleep(tick) // a server may distinguish grants by its clock
	a.borrow(5, 2, 3)
	require.Empty(t, b.noteOf(a), "it asked for more")
	require.True(t, a.note(a.epoch, "text"))
	a.keep(0)
	time.Sleep(tick)
	a.borrow(5, 0, 2)
	require.Empty(t, b.noteOf(a), "it gave all back")
}

func shareNoteStays(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	a.borrow(5, 0, 3)
	require.True(t, a.note(a.epoch, "text"))
	a.keep(2)
	require.Equal(t, "text", b.noteOf(a))
	b.placed(b.borrow(5, 0, 4, least(4)))
	a.placed(a.borrow(5, 2, 4, least(4)))
	require.Equal(t, "text", b.noteOf(a), "it waits for more")
	a.keep(1)
	b.granted(4)
	require.Equal(t, "text", b.noteOf(a))
	require.True(t, a.note(a.epoch, "another"), "under its last epoch")
	require.Equal(t, "another", b.noteOf(a))
}

func shareNoteLapsed(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	for d := short; ; d *= 2 { // the lease may end before the note arrives
		a.read(0, shareLease(d))
		if a.note(a.epoch, "text") {
			break
		}
		require.LessOrEqual(t, d, limit, "the lease ends before the note comes")
	}
	b.lapsed(a)
	require.False(t, a.note(a.epoch, "text"))
	a.read(0)
	require.Empty(t, b.noteOf(a))
}

func shareNoteGone(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	require.False(t, a.note(1, "text"))
	a.write(0)
	require.True(t, a.note(a.epoch, "text"))
	require.False(t, a.note(a.epoch-1, "earlier"))
	require.False(t, a.note(a.epoch+1, "later"))
	require.False(t, a.note(a.epoch-1, ""))
	require.False(t, b.note(a.epoch, "another's"))
	b.placed(b.read(0))
	require.False(t, b.note(b.epoch, "of a session that waits"))
	require.Equal(t, "text", b.noteOf(a))
}

func shareNoteBytes(t *test) {
	a := t.readers(1)[0]
	for _, text := range []string{"7 8 9", " ", "a\nb\x00c%s\xff", strings.Repeat("x", backend.MaxNote), ""} {
		require.True(t, a.note(a.epoch, text))
		require.Equal(t, text, a.noteOf(a))
	}
}

func shareNoteKeeps(t *test) {
	s := t.sharers(3)
	a, b, c := s[0], s[1], s[2]
	a.write(0)
	b.placed(b.write(0))
	c.placed(c.read(0))
	was := c.state()
	require.True(t, a.note(a.epoch, "text"))
	is := c.state()
	require.Equal(t, was.Token, is.Token)
	c.queued(b, c)
	require.Equal(t, all, c.unitsOf(a))
	a.keep(0)
	b.granted(all)
	require.Empty(t, c.noteOf(b))
	b.keep(0)
	c.granted(1)
	require.Empty(t, c.noteOf(c))
}

func shareNoteTooLong(t *test) {
	a := t.readers(1)[0]
	_, err := a.tryNote(a.epoch, strings.Repeat("x", backend.MaxNote+1))
	require.Error(t, err)
	require.Empty(t, a.noteOf(a))
}

func shareNoteOfLock(t *test) {
	s := t.sharers(2)
	a, b := s[0], s[1]
	a.take(1)
	kept, err := b.tryNote(1, "text")
	require.False(t, kept)
	if err != nil {
		t.wrongKind(err)
	}
	require.Empty(t, a.has(1).Note)
}
