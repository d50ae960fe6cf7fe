package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/relock-go/relock/reentrant"
)

// Why a visitor does not get what they asked for. Nothing was changed.
var (
	errTaken  = errors.New("somebody else holds the seat")
	errSold   = errors.New("the seat is sold")
	errNoHold = errors.New("the visitor does not hold the seat")
	errFree   = errors.New("nobody holds the seat")
)

// A desk is where visitors get seats at one server. The contexts of its methods carry the visitor as a portable owner
// ([as]), and any number of calls may be under way at once, for one visitor too: two windows of one browser are one
// owner.
type desk struct {
	session *reentrant.Session
	sales   *sales
	hold    time.Duration
	// charge takes the money. The key is the same whenever the same hold is paid for, at the other server too: a
	// payment service takes such a key so that repeating a payment is not paying twice. What it took for a sale that
	// does not come about is given back.
	charge func(ctx context.Context, key string) error

	// What two windows ask for at the same moment is done once. The lock would count two picks, and let go of one; and two
	// payments under one hold would get in each other's way.
	picks, payments singleflight.Group // by visitor and seat
}

// as gives the context in which a visitor is the owner of locks.
func as(ctx context.Context, visitor string) context.Context {
	return reentrant.WithPortableOwner(ctx, visitor)
}

// leaseOf is the lease for a hold of some length. A session stops believing in a lease 1 % before its end, because of the
// clocks. The visitor is promised the whole length, so the lease is a little longer.
func leaseOf(hold time.Duration) time.Duration { return hold + grace(hold) }

func grace(hold time.Duration) time.Duration { return hold/98 + 20*time.Millisecond }

// timed is the lock of a seat as it is held: to an end that is fixed when it is picked.
func (d *desk) timed(s seat) *reentrant.Lock {
	return d.session.NewLock(s.lockName(), reentrant.WithFixedLease(leaseOf(d.hold)))
}

// renewed is the same lock while the visitor pays: it does not end before that is done. The session's lease is as
// long as a hold, so if this server dies the visitor has as long as after a pick to go on at the other one.
func (d *desk) renewed(s seat) *reentrant.Lock { return d.session.NewLock(s.lockName()) }

// pick holds a seat for the visitor; one that they hold already stays as it is. It returns errTaken, errSold, or errFree
// if this server does not hear for a second that its hold of the seat is over.
func (d *desk) pick(ctx context.Context, visitor string, s seat) error {
	_, err, _ := d.picks.Do(visitor+string(s), func() (any, error) { return nil, d.pickOnce(ctx, s) })
	return err
}

func (d *desk) pickOnce(ctx context.Context, s seat) error {
	lock := d.timed(s)
	if lock.IsHeldByCurrentOwner(ctx) { // which TryLock would count as a second hold
		return nil
	}
	if err := take(ctx, lock); err != nil {
		return err
	}
	token, err := lock.Token(ctx)
	if err != nil {
		return err
	}
	// Only with the lock does the answer stay true. Whoever had it before may have bought the seat.
	buyer, err := d.sales.show(ctx, s, token)
	if err == nil && buyer == "" {
		return nil
	}
	if err == nil {
		err = errSold
	}
	return errors.Join(err, release(ctx, lock))
}

// take gets a lock, or takes it up where the visitor has it.
//
// A hold of this server's that was taken up at the other one keeps the lock from everybody here until the news of that
// arrives, and it may have ended there by then. So as long as nobody has the lock in Redis, take tries again.
func take(ctx context.Context, lock *reentrant.Lock) (err error) {
	for range newsWithin / newsEvery {
		if err = takeOnce(ctx, lock); !errors.Is(err, errFree) {
			return err
		}
		time.Sleep(newsEvery)
	}
	return err
}

const newsEvery, newsWithin = 10 * time.Millisecond, time.Second

// takeOnce tries first: of two windows that pick the seat at two servers at the same moment, the one that comes too late
// finds the other's hold.
func takeOnce(ctx context.Context, lock *reentrant.Lock) error {
	got, err := lock.TryLock(ctx)
	if errors.Is(err, reentrant.ErrLost) { // the visitor's last hold has just ended: this is about the next
		got, err = lock.TryLock(ctx)
	}
	if got || err != nil {
		return err
	}
	if err = takeUp(ctx, lock); errors.Is(err, reentrant.ErrNotHeld) {
		return errTaken
	}
	return err
}

// takeUp resumes the visitor's hold, whichever server has it. It looks first whether there is one: a Resume that is
// under way keeps others of this server from trying.
func takeUp(ctx context.Context, lock *reentrant.Lock) error {
	state, err := lock.Inspect(ctx)
	switch {
	case err != nil:
		return err
	case !state.Locked:
		return errFree
	case state.Owner != reentrant.CurrentOwner(ctx).String():
		return reentrant.ErrNotHeld
	}
	return lock.Resume(ctx)
}

// release gives up the visitor's hold. If that has ended by itself, so much the better.
func release(ctx context.Context, lock *reentrant.Lock) error {
	err := lock.Unlock(ctx)
	if errors.Is(err, reentrant.ErrLost) || errors.Is(err, reentrant.ErrNotHeld) {
		return nil
	}
	return err
}

// letGo ends the visitor's hold, wherever it was picked. It returns errNoHold.
func (d *desk) letGo(ctx context.Context, _ string, s seat) error {
	lock := d.timed(s)
	if err := takeUp(ctx, lock); err != nil {
		return noHold(err)
	}
	return release(ctx, lock)
}

// pay sells a seat to the visitor who holds it, wherever it was picked. The hold lasts for as long as that takes. Paying
// for what the visitor has bought already is nothing. It returns errNoHold if there is no hold, or if it ended on the way
// all the same; the charge's error, and the hold is as it was; another error if it is not known whether the seat is
// sold: paying again is right.
func (d *desk) pay(ctx context.Context, visitor string, s seat) error {
	_, err, _ := d.payments.Do(visitor+string(s), func() (any, error) { return nil, d.payOnce(ctx, visitor, s) })
	return err
}

func (d *desk) payOnce(ctx context.Context, visitor string, s seat) error {
	lock := d.renewed(s)
	err := takeUp(ctx, lock)
	if err == nil {
		if err = d.sellUnder(ctx, lock, visitor, s); err == nil {
			// A lock that cannot be given back ends by itself.
			_ = release(ctx, lock)
			return nil
		}
		// What is left of the hold is the visitor's, to try again; but it is not renewed any more. One that went to the
		// other server meanwhile is not taken back.
		if lock.IsHeldByCurrentOwner(ctx) {
			err = errors.Join(err, d.timed(s).Resume(ctx))
		}
	}
	err = noHold(err)
	if errors.Is(err, errNoHold) && d.bought(ctx, visitor, s) { // in another window, or when no answer came
		return nil
	}
	return err
}

// bought tells whether the visitor is known to have bought the seat.
func (d *desk) bought(ctx context.Context, visitor string, s seat) bool {
	buyers, err := d.sales.sold(ctx)
	return err == nil && buyers[s] == visitor
}

// sellUnder charges the visitor and writes the sale down, under a hold.
func (d *desk) sellUnder(ctx context.Context, lock *reentrant.Lock, visitor string, s seat) error {
	token, err := lock.Token(ctx)
	if err != nil {
		return err
	}
	charging, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // the hold may end here: at the other server the same visitor goes on with it
		select {
		case <-lock.Lost(ctx):
			cancel(reentrant.ErrLost)
		case <-charging.Done():
		}
	}()
	if err := d.charge(charging, fmt.Sprintf("%s-%d", s, token)); err != nil {
		return errors.Join(err, context.Cause(charging))
	}
	// Another window may have let the seat go meanwhile.
	if err := lock.Verify(ctx); err != nil {
		return err
	}
	return d.sales.sell(ctx, s, token, visitor)
}

// noHold says errNoHold where an error means that the hold is over.
func noHold(err error) error {
	switch {
	case errors.Is(err, errFree), errors.Is(err, reentrant.ErrNotHeld), errors.Is(err, reentrant.ErrLost), errors.Is(err, errOldToken):
		return fmt.Errorf("%w: %w", errNoHold, err)
	}
	return err
}

// waiting is a payment service that says yes after a while.
func waiting(d time.Duration) func(ctx context.Context, key string) error {
	return func(ctx context.Context, _ string) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
