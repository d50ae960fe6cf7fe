package tier

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/relock-go/relock/reentrant/internal/core"
)

// notes are the notes of the users inside, in the order in which they came. Guarded by alarm.mu, except any.
type notes struct {
	all []*noted
	any atomic.Bool // whether there are some; written with alarm.mu
}

// A noted is the note of a user.
type noted struct {
	text    string
	owner   core.Owner
	permits int         // of a semaphore: how many are left of the permits that the call took
	call    *PermitCall // of a semaphore: the call that took the permits
}

// add adds the note of a user that came in.
func (n *notes) add(one *noted) {
	n.all = append(n.all, one)
	n.any.Store(true)
}

// remove removes the notes for which gone returns true, and returns the last of them, nil if there are none.
func (n *notes) remove(gone func(*noted) bool) (last *noted) {
	n.all = slices.DeleteFunc(n.all, func(one *noted) bool {
		if !gone(one) {
			return false
		}
		last = one
		return true
	})
	n.any.Store(len(n.all) > 0)
	return last
}

func (n *notes) clear() { n.remove(func(*noted) bool { return true }) }

// Note returns the note of the user that came last, "" if there is none.
func (a *alarm) Note() string {
	if !a.notes.any.Load() {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.notes.all) == 0 {
		return ""
	}
	return a.notes.all[len(a.notes.all)-1].text
}

// notesOf returns the last note of each owner.
func (a *alarm) notesOf() map[core.Owner]string {
	if !a.notes.any.Load() {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	by := make(map[core.Owner]string)
	for _, one := range a.notes.all {
		by[one.owner] = one.text
	}
	return by
}

// note keeps the note that ctx carries, if g is the only hold of the owner: a call that adds a hold changes no note.
func (g Grant) note(ctx context.Context, owner core.Owner) {
	text := core.NoteOf(ctx)
	if text == "" {
		return
	}
	if g.name.Tier().(*rwTier).note(owner, g.life, text) {
		g.name.NoteChanged()
	}
}

func (t *rwTier) note(owner core.Owner, life uint64, text string) (first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	reads, writes, _ := t.Holds(owner)
	first = t.Life() == life && reads+writes == 1
	if first {
		t.notes.add(&noted{text: text, owner: owner})
	}
	return first
}

// endNote drops the note of an owner that has left. It reports whether there was one.
func (t *rwTier) endNote(owner core.Owner) bool {
	if !t.notes.any.Load() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	reads, writes, _ := t.Holds(owner)
	return reads+writes == 0 && t.dropNoteLocked(owner) != nil
}

// dropNoteLocked drops the note of an owner, and returns it. t.mu is held.
func (t *rwTier) dropNoteLocked(owner core.Owner) *noted {
	return t.notes.remove(func(one *noted) bool { return one.owner == owner })
}

// keepNote keeps the note of the context with which a call got permits.
func (c *PermitCall) keepNote(ctx context.Context, permits int) {
	text := core.NoteOf(ctx)
	if text == "" {
		return
	}
	c.mu.Lock()
	if c.Life() == c.life {
		c.notes.add(&noted{text, core.CurrentOwner(ctx), permits, c})
	}
	c.mu.Unlock()
	c.name.NoteChanged()
}

// endNotesLocked drops the note of the call c, whose permits are given back. If c is nil, the permits can be those of several
// calls: n permits are subtracted from the owner's latest notes, and each note that has no permits left is dropped. t.mu is
// held.
func (t *permitTier) endNotesLocked(owner core.Owner, n int, c *PermitCall) {
	switch {
	case !t.notes.any.Load():
		return
	case t.InUse() == 0:
		t.notes.clear()
		return
	case c != nil:
		t.notes.remove(func(one *noted) bool { return one.call == c })
		return
	}
	for _, one := range slices.Backward(t.notes.all) {
		if one.owner == owner {
			ended := min(n, one.permits)
			n, one.permits = n-ended, one.permits-ended
		}
	}
	t.notes.remove(func(one *noted) bool { return one.permits == 0 })
}
