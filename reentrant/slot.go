package reentrant

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/tier"
)

// A Slot is a permit with a number, which no other slot of the semaphore has in the whole deployment: a node id for a key
// generator, a port, a partition. It is held like a permit, and comes back with the lease of a session that died.
//
// The number is a [Lock], which the Slot holds besides its permit: number i of the semaphore NAME is the lock NAME#i, which
// [Lock.Inspect] and the relock command show. (If NAME has more than 4,085 bytes, its first 4,021 and the SHA-256 of all of
// them, in hexadecimal digits, take its place.) A number does not linger ([WithLinger]).
//
// When Release has returned, the number is free. The permit is given back in the background, as all permits of a
// [Semaphore] are. What a process has when it exits, without Release or without [Session.Close], is free when its lease ends.
//
// A Slot is a value: its copies are the same slot. The zero Slot is not held.
type Slot struct{ hold *slotHold }

// A slotHold is what a Slot holds. It does not change.
type slotHold struct {
	m      *Semaphore
	permit *tier.PermitCall
	lock   *Lock // of the number
	number int
	owner  Owner              // of the lock
	lost   *core.LossNotifier // of the slot: it notifies when the permit or the lock is lost
	forget func()             // ends the notifications of lost
}

// AcquireSlot takes a permit, as [Semaphore.Acquire] does, and with it the lowest number that is free: from 0, below the
// limit. It asks for one number after the other, so it sends one command for each that is taken, and one more. The numbers of
// a session that died become free a moment before or after its permits, and a number may become free after AcquireSlot has
// passed it; AcquireSlot then tries again after pauses that grow from a millisecond to a heartbeat. A number whose lock's
// name is in use as another kind of lock is skipped; if that is so for all numbers, AcquireSlot returns [ErrWrongKind].
// [Slot.Release] gives back the permit and the number; [Semaphore.Release] would give back a permit and keep the number.
//
// Like Acquire, AcquireSlot keeps trying while the server cannot be reached. If that takes so long that the permit is lost, it
// takes another permit. Its errors are those of Acquire. After an error the caller has neither a permit nor a number.
func (s *Semaphore) AcquireSlot(ctx context.Context) (Slot, error) {
	for {
		permit, _, err := s.acquire(ctx, 1, tier.Try{Op: "acquire slot", Waits: true})
		if err != nil {
			return Slot{}, err
		}
		h, err := s.takeNumber(ctx, permit)
		if err == nil {
			return Slot{h}, nil
		}
		released := s.error("release", s.release(ctx, 1, permit))
		if !errors.Is(err, errPermitLost) {
			return Slot{}, errors.Join(s.error("acquire slot", err), released)
		}
	}
}

// errPermitLost is returned by takeNumber when the permit, or the number, was lost meanwhile.
var errPermitLost = errors.New("the permit was lost before there was a number for it")

// takeNumber takes the lowest free number for a permit. The error is errPermitLost if the permit, or the number, was lost
// meanwhile.
func (s *Semaphore) takeNumber(ctx context.Context, permit *tier.PermitCall) (*slotHold, error) {
	h := &slotHold{m: s, permit: permit, owner: core.NewSlotOwner()}
	within, stop := core.UntilLost(ctx, permit.LossNotifier())
	defer stop()
	err := h.lockNumber(within)
	switch {
	case err == nil && h.notifyOfLoss():
		return h, nil
	case err == nil:
		_ = h.lock.Unlock(h.context(ctx)) // what it cannot give back expires
	case !errors.Is(context.Cause(within), ErrLost):
		return nil, err
	}
	return nil, errPermitLost
}

// lockNumber locks the lowest free number. The caller has a permit, so one is free, or soon will be.
func (h *slotHold) lockNumber(ctx context.Context) error {
	within := h.context(ctx)
	config := &h.m.session.core.Config
	var last error // of the latest attempt that got no reply
	for try := 0; ; try++ {
		ok, again, err := h.tryNumbers(within)
		switch {
		case ok:
			return nil
		case err != nil:
			err = core.MergeOutcome(last, err)
			last = err
		}
		if !again {
			return err
		}
		pause := core.RetryPause(try, config.Heartbeat)
		if !core.Pause(ctx, pause-config.Jitter(pause/2), h.m.session.core.Closing) {
			return core.InterruptedBy(ctx, "waiting for a number", last)
		}
	}
}

// tryNumbers tries to lock one number after the other. If it got none, again reports whether it may get one later.
func (h *slotHold) tryNumbers(ctx context.Context) (ok, again bool, err error) {
	skipped := 0
	for i := range h.m.permits {
		lock := h.m.session.NewLock(lockOfNumber(h.m.handle.Name, i))
		ok, failed := lock.TryLock(ctx)
		switch {
		case ok:
			h.lock, h.number = lock, i
			return true, false, nil
		case errors.Is(failed, ErrWrongKind):
			skipped, err = skipped+1, failed
		case failed != nil: // AcquireSlot keeps trying while the server cannot be reached, as Acquire does
			return false, errors.Is(failed, ErrUnavailable) && ctx.Err() == nil, failed
		}
	}
	return false, skipped < h.m.permits, err
}

// maxNumbered is the length of the longest semaphore name that the names of its numbers' locks contain in full. The highest
// number has ten digits.
const maxNumbered = core.MaxName - len("#2147483646")

// lockOfNumber returns the name of the lock of a semaphore's number.
func lockOfNumber(name string, i int) string {
	if len(name) > maxNumbered {
		digest := sha256.Sum256([]byte(name))
		name = name[:maxNumbered-2*len(digest)] + hex.EncodeToString(digest[:])
	}
	return name + "#" + strconv.Itoa(i)
}

// notifyOfLoss makes h.lost notify of the loss of the permit and of the number. It returns false if one of them is lost already.
func (h *slotHold) notifyOfLoss() bool {
	permit, number := h.permit.LossNotifier(), h.lock.handle.NotifierOf(h.owner)
	if permit == nil || number == nil {
		return false
	}
	h.lost = core.NewLossNotifier()
	closeLost := context.CancelCauseFunc(func(error) { h.lost.CloseLost() })
	permit.Add(&closeLost)
	number.Add(&closeLost)
	h.forget = func() {
		permit.Remove(&closeLost)
		number.Remove(&closeLost)
	}
	return true
}

// context returns ctx with the owner of the number.
func (h *slotHold) context(ctx context.Context) context.Context {
	return core.WithOwner(ctx, h.owner)
}

// token returns the token of the number. Before it returns ErrLost, it closes the slot's Lost.
func (h *slotHold) token() (Token, error) {
	token, err := h.lock.Token(h.context(context.Background()))
	if err == nil && h.permit.LossNotifier() == nil {
		token, err = 0, h.lock.error("token", ErrLost)
	}
	if errors.Is(err, ErrLost) {
		h.lost.CloseLost()
	}
	return token, err
}

// Number returns the slot's number, from 0. It is 0 for the zero Slot.
func (s Slot) Number() int {
	if s.hold == nil {
		return 0
	}
	return s.hold.number
}

// Token returns the fencing token of the slot, which is higher than that of every earlier holder of the number. It
// returns [ErrLost] from the moment at which this process can no longer trust the lease of the number or of the permit,
// and [ErrNotHeld] after Release and of the zero Slot. It sends nothing.
func (s Slot) Token() (Token, error) {
	if s.hold == nil {
		return 0, ErrNotHeld
	}
	return s.hold.token()
}

// String returns the semaphore's name and the number.
func (s Slot) String() string {
	if s.hold == nil {
		return "no slot"
	}
	return fmt.Sprintf("%s#%d", s.hold.m.handle.Name, s.hold.number)
}

// Lost returns a channel that is closed when the number or the permit is lost, before another session can have it. If
// only the permit is lost, the number is free for others after Release. The channel stays open if the slot is released
// before. It is closed already if Lost is called after Release, and for the zero Slot.
func (s Slot) Lost() <-chan struct{} {
	if s.hold == nil {
		return core.AlreadyLost
	}
	if _, err := s.hold.token(); errors.Is(err, ErrNotHeld) {
		return core.AlreadyLost
	}
	return s.hold.lost.Lost
}

// Release gives the number and its permit back. Any goroutine can call Release, once. It works under a ctx that has ended. It
// returns [ErrLost] if the slot was lost, [ErrNotHeld] if it was released before, and otherwise what [Lock.Unlock] returns.
// Even with [WithAsyncUnlock] it waits for Redis, so that the permit comes back after the number: until ctx ends, and for the
// time of one command at most.
func (s Slot) Release(ctx context.Context) error {
	switch {
	case ctx == nil:
		return errors.New("reentrant: release of a slot: nil context")
	case s.hold == nil:
		return ErrNotHeld
	}
	h := s.hold
	err := h.lock.Unlock(h.context(ctx))
	if errors.Is(err, ErrNotHeld) {
		return err
	}
	if err == nil { // with WithAsyncUnlock the number may still be taken
		h.lock.handle.AwaitCleanUp(ctx)
	}
	h.forget()
	h.permit.Forget()
	err = errors.Join(err, h.m.error("release", h.m.release(ctx, 1, h.permit)))
	if errors.Is(err, ErrLost) { // Lost may still be open
		h.lost.CloseLost()
	}
	return err
}
