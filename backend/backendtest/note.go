package backendtest

import (
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases about notes of holds. They are for Remotes that keep notes.
var noteCases = []testCase{
	{"Note/IsShownWithTheHold", noteShown},
	{"Note/LastsWhileTheHoldIsRenewedAndReentered", noteLasts},
	{"Note/IsNotShownWithTheNextHold", noteNotOfNext},
	{"Note/IsNotShownOfAFreeLock", noteNotOfFree},
	{"Note/MovesWithTheHold", noteMoves},
	{"Note/OfAHoldThatIsNotThereChangesNothing", noteGone},
	{"Note/IsAnyBytes", noteBytes},
	{"Note/LeavesTheHoldAsItIs", noteKeepsHold},
	{"Note/ThatIsTooLongIsRefused", noteTooLong},
}

// note keeps a note with a hold, and reports whether the hold exists. A Remote that keeps no notes skips the case.
func (r *remote) note(epoch uint64, text string) bool {
	r.t.Helper()
	kept, err := r.tryNote(epoch, text)
	require.NoError(r.t, err)
	return kept
}

func (r *remote) tryNote(epoch uint64, text string) (bool, error) {
	r.t.Helper()
	noter, ok := r.raw.(backend.Noter)
	if !ok {
		r.t.Skip("notes are not kept")
	}
	ctx, cancel := r.command()
	defer cancel()
	return noter.Note(ctx, backend.NoteRequest{Epoch: epoch, Text: text})
}

func noteShown(t *test) {
	a, b, _ := t.connect3()
	a.take(5)
	require.Empty(t, b.inspect().Note)
	require.True(t, a.note(5, "migration 42"))
	require.Equal(t, "migration 42", b.inspect().Note)
	require.True(t, a.note(5, "migration 43"))
	require.Equal(t, "migration 43", a.has(5).Note)
}

func noteLasts(t *test) {
	a := t.connect()
	a.take(5)
	require.True(t, a.note(5, "text"))
	require.True(t, a.renew(5, long))
	st := a.has(5)
	require.Equal(t, 2, a.reenter(backend.ReenterRequest{Epoch: 5, Owner: st.Owner, Op: 1, Holds: 2}).Holds)
	require.Equal(t, backend.Granted, a.acquire(5).Status, "a resend")
	require.Equal(t, "text", a.has(5).Note)
}

func noteNotOfNext(t *test) {
	a, b, _ := t.connect3()
	a.take(5)
	require.True(t, a.note(5, "text"))
	a.take(6)
	require.Empty(t, a.has(6).Note, "the session's next attempt")
	require.True(t, a.note(6, "text"))
	b.wait(5)
	a.release(6)
	require.Empty(t, b.has(5).Note, "another session's hold with the epoch of the first")
	require.True(t, b.note(5, "text"))
	b.release(5)
	a.take(7)
	require.Empty(t, a.has(7).Note)
}

func noteNotOfFree(t *test) {
	a := t.connect()
	a.take(5)
	require.True(t, a.note(5, "text"))
	a.release(5)
	require.Empty(t, a.inspect().Note)
}

func noteMoves(t *test) {
	a, b, _ := t.connect3()
	a.take(5, owner(portable))
	require.Empty(t, a.resume(6).Note)
	require.True(t, a.note(6, "text"))
	for range 2 {
		require.Equal(t, "text", b.resume(1).Note)
		require.Equal(t, "text", b.has(1).Note)
	}
	require.False(t, a.note(6, "of the session that had it"))
	require.True(t, b.note(1, "of the session that has it"))
	require.Equal(t, "of the session that has it", b.has(1).Note)
}

func noteGone(t *test) {
	a, b, _ := t.connect3()
	require.False(t, a.note(1, "text"))
	a.take(5)
	require.True(t, a.note(5, "text"))
	require.False(t, a.note(4, "earlier"))
	require.False(t, a.note(6, "later"))
	require.False(t, b.note(5, "another's"))
	require.Equal(t, "text", a.has(5).Note)
	a.release(5)
	require.False(t, a.note(5, "text"))
	a.free()
}

func noteBytes(t *test) {
	a := t.connect()
	a.take(5)
	for _, text := range []string{"7 8 9", " ", "a\nb\x00c%s\xff", strings.Repeat("x", backend.MaxNote), ""} {
		require.True(t, a.note(5, text))
		require.Equal(t, text, a.has(5).Note)
	}
}

func noteKeepsHold(t *test) {
	a, b, _ := t.connect3()
	got := a.take(5, holds(3))
	b.wait(1)
	require.True(t, a.note(5, "text"))
	st := a.has(5)
	require.Equal(t, 3, st.Holds)
	require.Equal(t, got.Last, st.Token)
	require.Equal(t, []string{b.id}, st.Waiting)
	t.full(long, st.TTL)
	require.True(t, a.renew(5, long))
}

func noteTooLong(t *test) {
	a := t.connect()
	a.take(5)
	_, err := a.tryNote(5, strings.Repeat("x", backend.MaxNote+1))
	require.Error(t, err)
	require.Empty(t, a.has(5).Note)
}
