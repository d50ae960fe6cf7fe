package tier

import (
	"context"
	"errors"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/share"
	"github.com/relock-go/relock/sharedqueue"
)

// An RWLock is the handle of a read-write lock.
type RWLock struct{ *Handle }

// TryRead takes the read side of a name if the session has units for it.
func TryRead(ctx context.Context, n *share.Name, owner core.Owner) (g Grant, ok bool) {
	o, life, look := n.Tier().(*rwTier).TryRead(owner)
	if look {
		n.Wake()
	}
	g, ok = Grant{n, life}, o == sharedqueue.Admitted || o == sharedqueue.Reentered
	if ok {
		g.note(ctx, owner)
	}
	return g, ok
}

// ExitRead gives up the read side of a name if the owner has it, in a session that reports no events.
func ExitRead(n *share.Name, owner core.Owner) bool {
	n.Check()
	q := n.Tier().(*rwTier)
	_, ok, look := q.ExitRead(owner)
	left(n, q, owner, look)
	return ok
}

// left drops the note of an owner that is no longer inside. If look is true, it also has the session look at what its users
// want.
func left(n *share.Name, q *rwTier, owner core.Owner, look bool) {
	if q.endNote(owner) {
		n.NoteChanged()
	}
	if look {
		n.Wake()
	}
}

// Take goes through the local queue for a side.
func (l RWLock) Take(ctx context.Context, owner core.Owner, side core.Mode, t Try) (g Grant, ok bool, err error) {
	n, err := l.join(l.newTier)
	if err != nil {
		return g, false, err
	}
	defer n.Leave()
	n.Check()
	life, ok, err := enterQueue(ctx, l.Handle, n, n.Tier().(*rwTier), owner, claimOf(side, owner), wish{mode: side}, t)
	g = Grant{n, life}
	if ok {
		g.note(ctx, owner)
	}
	return g, ok, err
}

// claimOf returns the claim of an owner in the local queue.
func claimOf(side core.Mode, owner core.Owner) sharedqueue.Mode {
	claim := sharedqueue.Read
	if side == core.ModeWrite {
		claim = sharedqueue.Write
	}
	if core.IsShared(owner) {
		claim |= sharedqueue.Shared
	}
	return claim
}

// Exit gives up a hold of one side. It returns ErrNotHeld if the owner has none, or ErrLost if the owner has lost one that it
// has not unlocked yet.
func (l RWLock) Exit(ctx context.Context, owner core.Owner, side core.Mode) error {
	if n := l.Find(); n != nil {
		n.Check()
		q := n.Tier().(*rwTier)
		exit := q.ExitRead
		if side == core.ModeWrite {
			exit = q.ExitWrite
		}
		var ok, look bool
		q.leave(l.callOf(ctx, time.Time{}), func() { _, ok, look = exit(owner) })
		left(n, q, owner, look)
		if ok {
			return nil
		}
		q.mu.Lock() // Lose records a loss before it unlocks this mutex
		defer q.mu.Unlock()
	}
	if l.Session.Debts.TakeOwed(core.DebtOf(side, l.Name, owner), 1, 1) > 0 {
		return core.ErrLost
	}
	return core.ErrNotHeld
}

// Readers returns how many read holds the owners of this session have together.
func (l RWLock) Readers() int {
	if n := l.Find(); n != nil {
		return n.Tier().(*rwTier).Readers()
	}
	return 0
}

// Writing returns how many write holds the writer of this session has, 0 if no owner writes.
func (l RWLock) Writing() (holds int) {
	if n := l.Find(); n != nil {
		q := n.Tier().(*rwTier)
		owner, _ := q.Writer()
		_, holds, _ = q.Holds(owner)
	}
	return holds
}

// Waiting returns the owners of this session that wait for either side, longest first.
func (l RWLock) Waiting() []core.Owner {
	if n := l.Find(); n != nil {
		_, _, all := n.Tier().(*rwTier).Waiters()
		return all
	}
	return nil
}

// An rwTier is the local tier of a read-write lock.
type rwTier struct {
	*sharedqueue.RW[core.Owner]
	alarm

	// since is when each owner inside came to its side, in a session that reports events. The queue's mutex guards it.
	since map[core.Owner]time.Time
}

func (l RWLock) newTier() share.Tier {
	s := l.Session
	q := &rwTier{RW: sharedqueue.NewRW(s.Age, core.HashOwner, core.NumberedOwner), alarm: alarm{session: s, name: l.Name}}
	if s.Reporting {
		q.since = make(map[core.Owner]time.Time)
		q.Watch(q.changed)
	}
	return q
}

// Keep lowers the units to the given number or, if more are in use, to the number in use. It returns how many are left, and
// the last token used.
func (t *rwTier) Keep(units int) (int, backend.Token) {
	kept, used := t.RW.Keep(units)
	return kept, backend.Token(used)
}

// Lose takes all holds from their owners, and records how many Unlocks each still owes.
func (t *rwTier) Lose(why string) (notify func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	writer, writes := t.Writer()
	_, _, token := t.Holds(writer)
	for _, x := range t.RW.Lose() {
		if x.Reads > 0 {
			t.session.Debts.Add(core.DebtOf(core.ModeRead, t.name, x.Owner), x.Reads)
		}
		e := core.Event{Mode: core.ModeRead, Owner: x.Owner, Held: t.heldFor(x.Owner)}
		if x.Writes > 0 {
			e.Mode = core.ModeWrite
			t.session.Debts.Add(core.DebtOf(core.ModeWrite, t.name, x.Owner), x.Writes)
			if writes && writer == x.Owner {
				e.Token = backend.Token(token)
			}
		}
		t.report(e, why)
	}
	return t.tripLocked()
}

// A Grant is the hold of one side that a call got. life distinguishes that hold from later ones: before the call goes on, the
// hold may be lost, and another goroutine of the same owner may have got a new one.
type Grant struct {
	name *share.Name
	life uint64
}

// LossNotifier returns the loss notifier of the hold, nil if it is lost already.
func (g Grant) LossNotifier(owner core.Owner) *core.LossNotifier {
	g.name.Check()
	q := g.name.Tier().(*rwTier)
	q.mu.Lock()
	defer q.mu.Unlock()
	if reads, writes, _ := q.Holds(owner); reads+writes == 0 || q.Life() != g.life {
		return nil
	}
	return q.notifierLocked()
}

// LossNotifier returns the loss notifier of an owner's holds, nil if the owner has no holds.
func (l RWLock) LossNotifier(owner core.Owner) *core.LossNotifier {
	n := l.Find()
	if n == nil {
		return nil
	}
	return Grant{n, n.Tier().(*rwTier).Life()}.LossNotifier(owner)
}

// Wanted returns the channel of reentrant.RWLock.Wanted for an owner.
func (l RWLock) Wanted(owner core.Owner) <-chan struct{} {
	if n := l.Find(); n != nil {
		n.Check()
		if c := n.Tier().(*rwTier).Wanted(owner); c != nil {
			return c
		}
	}
	return core.AlreadyLost
}

// HoldsOf returns an owner's holds, as far as this process can trust them.
func (l RWLock) HoldsOf(owner core.Owner) (reads, writes int, token backend.Token, err error) {
	n := l.Find()
	if n == nil {
		return 0, 0, 0, l.lostOr(owner, core.ErrNotHeld)
	}
	n.Check()
	q := n.Tier().(*rwTier)
	q.mu.Lock()
	defer q.mu.Unlock()
	reads, writes, t := q.Holds(owner)
	if reads+writes == 0 {
		err = l.lostOr(owner, core.ErrNotHeld)
	}
	return reads, writes, backend.Token(t), err
}

// lostOr returns ErrLost if the owner lost a hold that it has not unlocked yet. If not, it returns the error other.
func (l RWLock) lostOr(owner core.Owner, other error) error {
	if l.lost(core.ModeWrite, owner) || l.lost(core.ModeRead, owner) {
		return core.ErrLost
	}
	return other
}

// Version returns the version of an owner that reads: one more than the token of the last write before it began to read.
func (l RWLock) Version(owner core.Owner) (backend.Token, error) {
	_, writes, _, err := l.HoldsOf(owner)
	n := l.Find()
	switch {
	case err != nil:
		return 0, err
	case writes > 0:
		return 0, errVersionOfWriter
	case n == nil:
		return 0, core.ErrNotHeld
	}
	used, ok := n.Tier().(*rwTier).ReadToken(owner)
	if !ok {
		return 0, core.ErrNotHeld
	}
	return backend.Token(used) + 1, nil
}

// errVersionOfWriter is returned by Version to a writer.
var errVersionOfWriter = errors.New("a writer has no version: what it reads before it writes is not what comes after")

// lost reports whether the owner has lost a hold of the side that it has not unlocked since.
func (l RWLock) lost(side core.Mode, owner core.Owner) bool {
	return l.Session.Debts.Owed(core.DebtOf(side, l.Name, owner)) > 0
}
