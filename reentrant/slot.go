package reentrant

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// A Slot is a permit with a number, which no other slot of the semaphore has in the whole deployment: a node id for a key
// generator, a port, a partition. It is held like a permit, and comes back with the lease of a session that died.
type Slot struct {
	m      *Semaphore
	lock   *Lock // of the number
	owner  string
	number int
}

// AcquireSlot takes a permit, as [Semaphore.Acquire] does, and with it the lowest number that is free: from 0, below the
// limit. It asks for one number after the other, so it sends one command for each that is taken, and one more. Numbers of
// a session that died come back a moment apart from its permits; meanwhile AcquireSlot tries again at each heartbeat.
//
// Like Acquire it keeps trying while the server cannot be reached. Its errors are those of Acquire; after an error
// nothing is held.
func (m *Semaphore) AcquireSlot(ctx context.Context) (Slot, error) {
	if err := m.Acquire(ctx, 1); err != nil {
		return Slot{}, err
	}
	s, err := m.number(ctx)
	if err != nil {
		return Slot{}, errors.Join(m.error("acquire slot", err), m.Release(ctx, 1))
	}
	return s, nil
}

// number takes the lock of the lowest free number. The caller has a permit, so one is free, or soon will be.
func (m *Semaphore) number(ctx context.Context) (Slot, error) {
	owner := newID()
	within := WithOwner(ctx, owner)
	for {
		for i := range m.permits {
			lock := m.session.NewLock(m.name + "#" + strconv.Itoa(i))
			ok, err := lock.TryLock(within)
			if ok {
				return Slot{m, lock, owner, i}, nil
			}
			if errors.Is(err, ErrUnavailable) && ctx.Err() == nil {
				break // as Acquire, it waits for the server
			}
			if err != nil {
				return Slot{}, err
			}
		}
		if !pause(ctx, m.session.config.heartbeat, m.session.closing) {
			return Slot{}, interruptedBy(ctx, "waiting for a number", nil)
		}
	}
}

// Number returns the slot's number, from 0.
func (s Slot) Number() int { return s.number }

// Token returns the fencing token of the slot, which is higher than that of every earlier holder of the number. It
// returns [ErrLost] from the moment at which this process can no longer trust the slot's lease, and [ErrNotHeld] after
// Release and of the zero Slot. It sends nothing.
func (s Slot) Token() (Token, error) {
	if s.lock == nil {
		return 0, ErrNotHeld
	}
	return s.lock.Token(WithOwner(context.Background(), s.owner))
}

// String returns the semaphore's name and the number.
func (s Slot) String() string {
	if s.lock == nil {
		return "no slot"
	}
	return fmt.Sprintf("%s#%d", s.m.name, s.number)
}

// Lost returns a channel that is closed when the number is lost: another session may have it soon. It is closed already
// after Release, and of the zero Slot.
func (s Slot) Lost() <-chan struct{} {
	if s.lock == nil {
		return alreadyLost
	}
	return s.lock.Lost(WithOwner(context.Background(), s.owner))
}

// Release gives the number and its permit back. Any goroutine can call it, once. It works under a ctx that has ended.
// It returns [ErrLost] if the slot was lost, [ErrNotHeld] if it was released before, and otherwise what [Lock.Unlock]
// returns.
func (s Slot) Release(ctx context.Context) error {
	switch {
	case ctx == nil:
		return errors.New("reentrant: release of a slot: nil context")
	case s.lock == nil:
		return ErrNotHeld
	}
	err := s.lock.Unlock(WithOwner(ctx, s.owner))
	if errors.Is(err, ErrNotHeld) {
		return err
	}
	return errors.Join(err, s.m.Release(ctx, 1))
}
