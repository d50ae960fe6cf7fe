package tier

import (
	"context"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/share"
	"github.com/relock-go/relock/sharedqueue"
)

// A Semaphore is the handle of a semaphore.
type Semaphore struct{ *Handle }

// Take goes through the local queue for n permits of a semaphore that has limit permits in all.
func (s Semaphore) Take(ctx context.Context, n, limit int, t Try) (c *PermitCall, ok bool, err error) {
	x, err := s.join(s.newTier)
	if err != nil {
		return nil, false, err
	}
	defer x.Leave()
	x.Check()
	c = &PermitCall{permitTier: x.Tier().(*permitTier), name: x}
	if c.Limit(limit) {
		x.Wake()
	}
	c.life, ok, err = enterQueue(ctx, s.Handle, x, c.permitTier, n, sharedqueue.Read, wish{core.ModePermits, n}, t)
	if ok {
		c.keepNote(ctx, n)
	}
	return c, ok, err
}

// Release gives back n permits: those of c, if c is not nil. It returns ErrNotHeld, and changes nothing, if the session has
// fewer than n permits, lost ones included, and ErrLost if some of the n were lost.
func (s Semaphore) Release(ctx context.Context, n int, c *PermitCall) error {
	x := s.Find()
	if x == nil {
		if s.Session.Debts.TakeOwed(core.DebtOfPermits(s.Name), n, n) == 0 {
			return core.ErrNotHeld
		}
		return core.ErrLost
	}
	x.Check()
	q := x.Tier().(*permitTier)
	noted, owner := q.notes.any.Load(), core.Owner{}
	if noted {
		owner = core.CurrentOwner(ctx)
	}
	look, err := q.release(s.callOf(ctx, time.Time{}), owner, n, c)
	if noted {
		x.NoteChanged()
	}
	if look {
		x.Wake()
	}
	return err
}

// LossNotifier returns the loss notifier of the session's permits, nil if no caller has any.
func (s Semaphore) LossNotifier() *core.LossNotifier {
	x := s.Find()
	if x == nil {
		return nil
	}
	x.Check()
	q := x.Tier().(*permitTier)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.InUse() == 0 {
		return nil
	}
	return q.notifierLocked()
}

// Wanted returns the channel of reentrant.Semaphore.Wanted for the permits that callers of the session have now.
func (s Semaphore) Wanted() <-chan struct{} {
	if x := s.Find(); x != nil {
		x.Check()
		if c := x.Tier().(*permitTier).Wanted(nil); c != nil {
			return c
		}
	}
	return core.AlreadyLost
}

// A permitTier is the local tier of a semaphore.
type permitTier struct {
	*sharedqueue.Permits
	alarm
	stays stays // empty in a session that reports no events. The queue's mutex guards it.
}

func (s Semaphore) newTier() share.Tier {
	session := s.Session
	q := &permitTier{Permits: sharedqueue.NewPermits(session.Age), alarm: alarm{session: session, name: s.Name}}
	if session.Reporting {
		q.Watch(q.changed)
	}
	return q
}

// Keep lowers the units to the given number or, if more permits are in use, to the number in use. It returns how many are left.
func (t *permitTier) Keep(units int) (int, backend.Token) { return t.Permits.Keep(units), 0 }

// Rest reports whether no permit is in use and no caller is in line, and none was admitted since the last call.
func (t *permitTier) Rest() bool { return t.Permits.Rest() }

// release gives back n permits: lost ones first, so that a caller that lost its permits does not give back another's. The
// permits of c are not lost if the session has lost none since c got them.
func (t *permitTier) release(call *sharedCall, owner core.Owner, n int, c *PermitCall) (look bool, err error) {
	t.mu.Lock() // Lose records a loss before it unlocks this mutex
	defer t.mu.Unlock()
	held, lost := t.InUse(), 0 // while t.mu is locked, InUse can only grow
	if c == nil || c.permitTier != t || c.life != t.Life() || held < n {
		lost = t.session.Debts.TakeOwed(core.DebtOfPermits(t.name), n-held, n)
	}
	if lost+held < n {
		return false, core.ErrNotHeld
	}
	if lost < n {
		t.leaveLocked(call, func() { _, look = t.Exit(n - lost) })
		look = look || t.InUse() == 0 // idle permits go back to the server now
		t.endNotesLocked(owner, n-lost, c)
	}
	if lost > 0 {
		err = core.ErrLost
	}
	return look, err
}

// Lose takes all permits from the callers, and records how many Releases they still owe.
func (t *permitTier) Lose(why string) (notify func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.Permits.Lose(); n > 0 {
		t.session.Debts.Add(core.DebtOfPermits(t.name), n)
		e := core.Event{Mode: core.ModePermits, Permits: n}
		if t.session.Reporting {
			e.Held = time.Since(t.stays.end(core.Owner{}, n))
		}
		t.report(e, why)
	}
	return t.tripLocked()
}

// A PermitCall is the permits that a call got. life distinguishes them from later ones: before the call goes on, they may be
// lost, and other callers may have got new ones.
type PermitCall struct {
	*permitTier
	name *share.Name
	life uint64
}

// LossNotifier returns the loss notifier of the call's permits, nil if they are lost already.
func (c *PermitCall) LossNotifier() *core.LossNotifier {
	c.name.Check()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Life() != c.life {
		return nil
	}
	return c.notifierLocked()
}

// Wanted returns the channel of reentrant.Semaphore.Wanted for the call's permits. After Forget the channel is not closed.
func (c *PermitCall) Wanted() <-chan struct{} {
	c.name.Check()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Life() != c.life {
		return core.AlreadyLost
	}
	if wanted := c.permitTier.Wanted(c); wanted != nil {
		return wanted
	}
	return core.AlreadyLost
}

// Forget drops the channel of Wanted without closing it, because the call's permits are given back.
func (c *PermitCall) Forget() { c.permitTier.Forget(c) }
