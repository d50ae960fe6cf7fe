package reentrant_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// notesOf returns the notes that a session sees with the holders of a shared name; "-" for one without a note.
func notesOf(t *testing.T, l interface {
	Inspect(context.Context) (reentrant.SharedState, error)
}) (notes []string) {
	t.Helper()
	synctest.Wait()
	st, err := l.Inspect(t.Context())
	require.NoError(t, err)
	for _, h := range st.Holders {
		if h.Note == "" {
			h.Note = "-"
		}
		notes = append(notes, h.Note)
	}
	return notes
}

func withNote(t *testing.T, name, note string) context.Context {
	return reentrant.WithNote(owner(t, name), note)
}

func TestASideShowsTheNoteOfItsUserForAsLongAsThatIsInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l, m := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		for name, side := range map[string]struct{ lock, unlock func(context.Context) error }{
			"read": {l.RLock, l.RUnlock}, "write": {l.Lock, l.Unlock},
		} {
			a := withNote(t, "a", "text")
			require.NoError(t, side.lock(a))
			require.NoError(t, side.lock(withNote(t, "a", "another")))
			assert.Equal(t, []string{"text"}, notesOf(t, m), "%s: the note is that of the outermost call", name)
			require.NoError(t, side.unlock(a))
			assert.Equal(t, []string{"text"}, notesOf(t, m), name)
			require.NoError(t, side.unlock(a))
			assert.NotContains(t, notesOf(t, m), "text", name)
			require.NoError(t, side.lock(owner(t, "a")))
			assert.Equal(t, []string{"-"}, notesOf(t, m), "%s: the next hold", name)
			require.NoError(t, side.unlock(owner(t, "a")))
			time.Sleep(time.Minute)
		}
	})
}

func TestASessionShowsTheNoteOfItsLatestReaderThatIsInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l, m := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		a, c, none := withNote(t, "a", "of a"), withNote(t, "c", "of c"), owner(t, "none")
		require.NoError(t, l.RLock(none))
		assert.Equal(t, []string{"-"}, notesOf(t, m))
		require.NoError(t, l.RLock(a))
		require.NoError(t, l.RLock(c))
		assert.Equal(t, []string{"of c"}, notesOf(t, m))
		require.NoError(t, l.RUnlock(c))
		assert.Equal(t, []string{"of a"}, notesOf(t, m))
		require.NoError(t, m.RLock(withNote(t, "a", "of another session")))
		assert.ElementsMatch(t, []string{"of a", "of another session"}, notesOf(t, m))
		require.NoError(t, l.RUnlock(a))
		assert.ElementsMatch(t, []string{"-", "of another session"}, notesOf(t, m), "a reader without a note is left")
		require.NoError(t, l.RUnlock(none))
		require.NoError(t, m.RUnlock(withNote(t, "a", "")))
	})
}

func TestAWriterThatGoesOnAsAReaderKeepsItsNote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l, m := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		a := withNote(t, "a", "text")
		require.NoError(t, l.Lock(a))
		require.NoError(t, l.RLock(a))
		go func() {
			if m.RLock(owner(t, "b")) == nil {
				time.Sleep(time.Minute)
				assert.NoError(t, m.RUnlock(owner(t, "b")))
			}
		}()
		synctest.Wait()
		require.NoError(t, l.Unlock(a))
		assert.ElementsMatch(t, []string{"text", "-"}, notesOf(t, m), "the session gave back all but one unit, under a new epoch")
		require.NoError(t, l.RUnlock(a))
		time.Sleep(2 * time.Minute)
	})
}

func TestPermitsShowTheNoteOfTheirCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l, m := newSession(t, b).NewSemaphore("x", 5), newSession(t, b).NewSemaphore("x", 5)
		a, c, none := withNote(t, "a", "of a"), withNote(t, "c", "of c"), owner(t, "none")
		require.NoError(t, l.Acquire(none, 1))
		require.NoError(t, l.Acquire(a, 2))
		require.NoError(t, l.Do(c, 1, func(context.Context) error {
			assert.Equal(t, []string{"of c"}, notesOf(t, m))
			return nil
		}))
		assert.Equal(t, []string{"of a"}, notesOf(t, m))
		require.NoError(t, l.Release(a, 1))
		assert.Equal(t, []string{"of a"}, notesOf(t, m))
		require.NoError(t, l.Release(a, 1))
		assert.Equal(t, []string{"-"}, notesOf(t, m))
		require.NoError(t, l.Acquire(a, 1))
		require.NoError(t, l.Release(c, 1), "another goroutine releases it")
		assert.Equal(t, []string{"of a"}, notesOf(t, m))
		require.NoError(t, l.Release(none, 1))
		assert.Empty(t, notesOf(t, m))
		require.NoError(t, l.Acquire(none, 1))
		assert.Equal(t, []string{"-"}, notesOf(t, m))
		require.NoError(t, l.Release(none, 1))
	})
}

// The server forgets a session's note when it grants the session more, so the session sends the note again.
func TestANoteOfPermitsStaysWhenTheSessionIsGrantedMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l, m := newSession(t, b).NewSemaphore("x", 5), newSession(t, b).NewSemaphore("x", 5)
		a, none := withNote(t, "a", "text"), owner(t, "none")
		require.NoError(t, m.Acquire(none, 4))
		require.NoError(t, l.Acquire(a, 1))
		assert.ElementsMatch(t, []string{"-", "text"}, notesOf(t, m))
		require.NoError(t, m.Release(none, 4))
		require.NoError(t, l.Acquire(none, 4))
		assert.Equal(t, []string{"text"}, notesOf(t, m))
		require.NoError(t, l.Release(none, 4))
		require.NoError(t, l.Release(a, 1))
	})
}

func TestASlotShowsTheNoteOfItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l, m := newSession(t, b).NewSemaphore("x", 5), newSession(t, b).NewSemaphore("x", 5)
		first, err := l.AcquireSlot(withNote(t, "a", "first"))
		require.NoError(t, err)
		second, err := l.AcquireSlot(withNote(t, "a", "second"))
		require.NoError(t, err)
		assert.Equal(t, []string{"second"}, notesOf(t, m))
		require.NoError(t, second.Release(t.Context()))
		assert.Equal(t, []string{"first"}, notesOf(t, m))
		require.NoError(t, first.Release(t.Context()))
	})
}

func TestPartsWithoutANoteCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		l, m, a := s.NewRWLock("x"), s.NewSemaphore("y", 2), withNote(t, "a", "")
		require.NoError(t, l.RLock(a))
		require.NoError(t, m.Acquire(a, 1))
		time.Sleep(time.Hour)
		b.Restart()
		time.Sleep(time.Hour)
		require.NoError(t, m.Release(a, 1))
		require.NoError(t, l.RUnlock(a))
		require.NoError(t, l.Do(a, func(context.Context) error { return nil }))
		time.Sleep(time.Minute)
		assert.Zero(t, b.Count(memory.Note))
	})
}

func TestANoteOfAShortPartIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l, m := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		b.SetFault(memory.Script(memory.Note, memory.Delay(time.Second)))
		a := withNote(t, "a", "text")
		for range 10 {
			require.NoError(t, l.RLock(a))
			require.NoError(t, l.RUnlock(a))
		}
		time.Sleep(time.Minute)
		assert.Less(t, b.Count(memory.Note), 10)
		assert.Empty(t, notesOf(t, m))
	})
}

// A note that is lost is sent again with the next renewal, and so is the command that ends an earlier note.
func TestANoteOfASideThatIsLostIsSentAgain(t *testing.T) {
	for what, verdict := range map[string]memory.Verdict{"lost": memory.Lose, "unanswered": memory.LoseReply, "refused": memory.Refuse("NOPERM")} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New()
				l, m := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
				a, none := withNote(t, "a", "text"), owner(t, "none")
				require.NoError(t, l.RLock(none))
				b.SetFault(memory.Script(memory.Note, verdict))
				require.NoError(t, l.RLock(a))
				synctest.Wait()
				time.Sleep(reentrant.DefaultLease / 2)
				assert.Equal(t, []string{"text"}, notesOf(t, m))
				b.SetFault(memory.Script(memory.Note, verdict))
				require.NoError(t, l.RUnlock(a))
				time.Sleep(reentrant.DefaultLease / 2)
				assert.Equal(t, []string{"-"}, notesOf(t, m))
				written := b.Count(memory.Note)
				time.Sleep(time.Hour)
				assert.Equal(t, written, b.Count(memory.Note))
				require.NoError(t, l.RUnlock(none))
			})
		})
	}
}

// Another server may have taken over that does not have the note.
func TestANoteOfASideIsSentAgainWhenTheChannelIsReopened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l, a := newSession(t, b).NewRWLock("x"), withNote(t, "a", "text")
		require.NoError(t, l.RLock(a))
		synctest.Wait()
		require.Equal(t, 1, b.Count(memory.Note))
		time.Sleep(time.Second)
		b.Restart()
		time.Sleep(time.Second)
		assert.Equal(t, 2, b.Count(memory.Note))
		require.NoError(t, l.RUnlock(a))
	})
}

func TestANoteOfALostSideIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l, m := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		a := withNote(t, "a", "text")
		require.NoError(t, l.RLock(a))
		writes, end := make(chan error), make(chan struct{})
		go func() {
			writes <- l.Do(owner(t, "b"), func(context.Context) error { writes <- nil; <-end; return nil })
		}()
		synctest.Wait()
		_, err := m.ForceUnlock(t.Context())
		require.NoError(t, err)
		require.NoError(t, <-writes)
		assert.Equal(t, []string{"-"}, notesOf(t, m), "of a writer of the same session that waited")
		close(end)
		require.NoError(t, <-writes)
		require.ErrorIs(t, l.RUnlock(a), reentrant.ErrLost)
	})
}

func TestANoteOfAWriterComesBackAfterAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l, m := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		a, back := withNote(t, "a", "text"), make(chan struct{})
		go func() {
			defer close(back)
			if l.Lock(a) == nil {
				assert.NoError(t, l.NewCondition("c").Await(a))
			}
		}()
		synctest.Wait()
		assert.NotContains(t, notesOf(t, m), "text", "a side that was given up has no note")
		c := owner(t, "b")
		require.NoError(t, m.Do(c, func(context.Context) error { return m.NewCondition("c").Signal(c) }))
		<-back
		assert.Equal(t, []string{"text"}, notesOf(t, m))
		require.NoError(t, l.Unlock(a))
	})
}

// The log and the errors of callers that wait show the note of the holder, whether it is an owner of this session or of
// another.
func TestThoseWhoWaitForASideSeeTheNote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l, m := newSession(t, b).NewRWLock("x"), newSession(t, b).NewRWLock("x")
		a := withNote(t, "a", "text")
		require.NoError(t, l.Lock(a))
		for _, other := range []*reentrant.RWLock{l, m} {
			ctx, cancel := context.WithTimeout(owner(t, "b"), 2*reentrant.DefaultLease)
			err := other.RLock(ctx)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorContains(t, err, `("text")`)
		}
		require.NoError(t, l.Unlock(a))
	})
}
