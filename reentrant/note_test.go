package reentrant_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// noteOf returns the note that another session sees with the holder.
func noteOf(t *testing.T, l *reentrant.Lock) string {
	t.Helper()
	synctest.Wait()
	st, err := l.Inspect(t.Context())
	require.NoError(t, err)
	return st.Note
}

// noted returns two sessions' handles of a lock, and an owner of the first session with a note.
func noted(t *testing.T, note string, opts ...reentrant.Option) (b *memory.Backend, l, m *reentrant.Lock, a context.Context) {
	t.Helper()
	b = memory.New()
	l, m = newSession(t, b, opts...).NewLock("x"), newSession(t, b, opts...).NewLock("x")
	return b, l, m, reentrant.WithNote(owner(t, "a"), note)
}

func TestANoteIsShownForAsLongAsItsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l, m, a := noted(t, "migration 42")
		require.NoError(t, l.Lock(a))
		assert.Equal(t, "migration 42", noteOf(t, m))
		require.NoError(t, l.Lock(reentrant.WithNote(a, "another")))
		assert.Equal(t, "migration 42", noteOf(t, m), "the note is that of the outermost acquire")
		require.NoError(t, l.Unlock(a))
		require.NoError(t, l.Unlock(a))
		assert.Empty(t, noteOf(t, m))
		assert.Equal(t, 1, b.Count(memory.Note))

		require.NoError(t, l.Lock(owner(t, "a")))
		assert.Empty(t, noteOf(t, m), "the same owner's next hold")
		require.NoError(t, l.Unlock(owner(t, "a")))
		require.NoError(t, m.Lock(owner(t, "b")))
		assert.Empty(t, noteOf(t, l), "another session's hold")
		require.NoError(t, m.Unlock(owner(t, "b")))
	})
}

// When a hold passes to a waiting owner, of this process or another, it has that owner's note.
func TestANoteIsThatOfTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, m, a := noted(t, "of a")
		require.NoError(t, l.Lock(a))
		for name, next := range map[string]*reentrant.Lock{"here": l, "there": m} {
			ctx := reentrant.WithNote(owner(t, name), "of "+name)
			go func() {
				if next.Lock(ctx) == nil {
					time.Sleep(time.Minute)
					_ = next.Unlock(ctx)
				}
			}()
			synctest.Wait()
		}
		require.NoError(t, l.Unlock(a))
		first := noteOf(t, m)
		time.Sleep(time.Minute)
		assert.ElementsMatch(t, []string{"of here", "of there"}, []string{first, noteOf(t, m)})
		time.Sleep(time.Minute)
		assert.Empty(t, noteOf(t, m))
	})
}

func TestHoldsWithoutANoteCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l, m, a := noted(t, "")
		require.NoError(t, l.Lock(a))
		time.Sleep(time.Hour)
		b.Restart()
		time.Sleep(time.Hour)
		assert.Empty(t, noteOf(t, m))
		assert.Zero(t, b.Count(memory.Note))
		require.NoError(t, l.Unlock(a))
	})
}

// The backend keeps a note for an hour. The session writes the note again before the hour is over, but not with each renewal.
func TestANoteOutlastsTheTimeForWhichItIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l, m, a := noted(t, "long work")
		require.NoError(t, l.Lock(a))
		time.Sleep(3 * time.Hour)
		assert.Equal(t, "long work", noteOf(t, m))
		assert.InDelta(t, 90, b.Count(memory.Note), 10)
		require.NoError(t, l.Unlock(a))
		written := b.Count(memory.Note)
		time.Sleep(time.Hour)
		assert.Equal(t, written, b.Count(memory.Note))
	})
}

// Lock returns when it has the lock, whatever happens to the note.
func TestANoteDelaysAndFailsNoLock(t *testing.T) {
	const way = 50 * time.Millisecond
	for what, verdict := range map[string]memory.Verdict{
		"slow": memory.Delay(time.Minute), "lost": memory.Lose, "unanswered": memory.LoseReply, "refused": memory.Refuse("NOPERM"),
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, l, _, a := noted(t, "text")
				b.SetFault(func(op memory.Op) memory.Verdict {
					if op.Verb == memory.Note {
						return verdict
					}
					return memory.Verdict{Delay: way, Late: way}
				})
				begun := time.Now()
				require.NoError(t, l.Lock(a))
				assert.Equal(t, 2*way, time.Since(begun))
				time.Sleep(time.Minute)
				require.NoError(t, l.Unlock(a))
			})
		})
	}
}

func TestANoteThatIsLostIsWrittenWithTheNextRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l, m, a := noted(t, "text")
		b.SetFault(memory.Script(memory.Note, memory.Lose))
		require.NoError(t, l.Lock(a))
		assert.Empty(t, noteOf(t, m))
		time.Sleep(reentrant.DefaultLease / 2)
		assert.Equal(t, "text", noteOf(t, m))
		require.NoError(t, l.Unlock(a))
	})
}

// Another server may have taken over that does not have the note.
func TestANoteIsWrittenAgainWhenTheChannelIsReopened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l, _, a := noted(t, "text")
		time.Sleep(time.Second)
		require.NoError(t, l.Lock(a))
		synctest.Wait()
		require.Equal(t, 1, b.Count(memory.Note))
		time.Sleep(time.Second)
		b.Restart()
		time.Sleep(time.Second)
		assert.Equal(t, 2, b.Count(memory.Note))
		require.NoError(t, l.Unlock(a))
	})
}

func TestANoteOfAShortHoldIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l, m, a := noted(t, "text")
		b.SetFault(memory.Script(memory.Note, memory.Delay(time.Second)))
		for range 10 {
			require.NoError(t, l.Lock(a))
			require.NoError(t, l.Unlock(a))
		}
		time.Sleep(time.Minute)
		assert.Less(t, b.Count(memory.Note), 10)
		assert.Empty(t, noteOf(t, m))
	})
}

func TestANoteStaysWithAHoldThatIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		l, m := newSession(t, b).NewLock("x"), newSession(t, b).NewLock("x")
		flow := reentrant.WithPortableOwner(t.Context(), "flow")
		require.NoError(t, l.Lock(reentrant.WithNote(flow, "step 1")))
		synctest.Wait()
		require.NoError(t, m.Resume(flow))
		time.Sleep(3 * time.Hour)
		assert.Equal(t, "step 1", noteOf(t, l))
		require.NoError(t, m.Resume(flow), "of its own hold")
		assert.Equal(t, "step 1", noteOf(t, l))
		require.NoError(t, m.Resume(reentrant.WithNote(flow, "step 2")))
		assert.Equal(t, "step 2", noteOf(t, l))
		require.NoError(t, l.Resume(reentrant.WithNote(flow, "step 3")))
		assert.Equal(t, "step 3", noteOf(t, m))
		require.NoError(t, l.Unlock(flow))
	})
}

func TestANoteThatIsNotWrittenYetStaysWithAHoldThatIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l, m, _ := noted(t, "")
		b.SetFault(memory.Script(memory.Note, memory.Lose))
		flow := reentrant.WithPortableOwner(t.Context(), "flow")
		require.NoError(t, l.Lock(reentrant.WithNote(flow, "text")))
		require.Empty(t, noteOf(t, m))
		require.NoError(t, l.Resume(flow))
		assert.Equal(t, "text", noteOf(t, m))
		require.NoError(t, l.Unlock(flow))
	})
}

func TestANoteComesBackAfterAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, m, a := noted(t, "reader")
		back := make(chan struct{})
		go func() {
			defer close(back)
			if l.Lock(a) == nil {
				assert.NoError(t, l.NewCondition("c").Await(a))
			}
		}()
		synctest.Wait()
		assert.Empty(t, noteOf(t, m), "a hold that was given up has no note")
		b := owner(t, "b")
		require.NoError(t, m.Do(b, func(context.Context) error { return m.NewCondition("c").Signal(b) }))
		<-back
		assert.Equal(t, "reader", noteOf(t, m))
		require.NoError(t, l.Unlock(a))
	})
}

// Redis does not know which owner of a cohort has the lock, so it shows no note, which might be another owner's.
func TestACohortHasNoNotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l, m, a := noted(t, "text", reentrant.WithCohort())
		require.NoError(t, l.Lock(a))
		assert.Empty(t, noteOf(t, m))
		assert.Zero(t, b.Count(memory.Note))
		require.NoError(t, l.Unlock(a))
		flow := reentrant.WithNote(reentrant.WithPortableOwner(t.Context(), "flow"), "its own hold")
		require.NoError(t, l.Lock(flow))
		assert.Equal(t, "its own hold", noteOf(t, m))
		require.NoError(t, l.Unlock(flow))
	})
}

func TestMultiLockNotesEachLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		s := newSession(t, b)
		var locks []*reentrant.Lock
		for _, name := range "abcdefghijklmnopqrst" {
			locks = append(locks, s.NewLock(string(name)))
		}
		all := reentrant.NewMultiLock(locks...)
		a := reentrant.WithNote(owner(t, "a"), "all of them")
		require.NoError(t, all.Lock(a))
		for _, l := range locks {
			assert.Equal(t, "all of them", noteOf(t, l))
		}
		require.NoError(t, all.Unlock(a))
	})
}

func TestNotesAreCutAndMadeUTF8(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fits := strings.Repeat("ä", backend.MaxNote/2)
		for given, want := range map[string]string{
			fits: fits, fits + "x": strings.Repeat("ä", 126) + "…", "a\xff\xfeb": "a\uFFFDb", "": "",
		} {
			_, l, m, a := noted(t, given)
			require.NoError(t, l.Lock(a))
			assert.Equal(t, want, noteOf(t, m))
			require.NoError(t, l.Unlock(a))
		}
	})
}
