package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	charge func(ctx context.Context, key string, euros int) error

	// What two windows ask for at the same moment is done once. The lock would count two picks, and let go of one; and two
	// payments under one hold would get in each other's way.
	picks    singleflight.Group // by visitor and seat
	payments singleflight.Group // by visitor
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

// pay sells seats to the visitor who holds them, wherever they were picked: all of them, in one payment, or none. The holds
// last for as long as that takes. What the visitor has bought already is not paid for again. It returns lapsed if there are
// holds that have ended, on the way too; the charge's error, and the holds are as they were; another error if it is not
// known whether the seats are sold: paying again is right.
func (d *desk) pay(ctx context.Context, visitor string, wanted ...seat) error {
	for {
		done, err, _ := d.payments.Do(visitor, func() (any, error) { return wanted, d.payOnce(ctx, visitor, wanted) })
		if slices.Equal(done.([]seat), wanted) {
			return err
		}
		// That was another window's payment, for other seats.
	}
}

// A payment is for one seat, with the lock that is held for that.
type payment struct {
	seat seat
	lock *reentrant.Lock
	err  error // why the hold was not taken up
}

func (d *desk) payOnce(ctx context.Context, visitor string, wanted []seat) error {
	due := d.unpaid(ctx, visitor, wanted)
	if len(due) == 0 {
		return nil
	}
	payments := d.takeUpAll(ctx, due)
	var err error
	for _, p := range payments {
		err = errors.Join(err, p.err)
	}
	if err == nil {
		err = noHold(d.sellUnder(ctx, visitor, payments))
	}
	ended, left := d.settle(ctx, payments, err == nil)
	err = errors.Join(err, left)
	switch {
	case !errors.Is(err, errNoHold):
		return err
	case len(d.unpaid(ctx, visitor, due)) == 0: // they were bought in another window, or when no answer came
		return nil
	case len(ended) == 0: // the rows of the seats know of later holds
		ended = due
	}
	return fmt.Errorf("%w: %w", lapsed{ended}, err)
}

// takeUpAll takes up the visitor's holds of seats, to be renewed from then on.
func (d *desk) takeUpAll(ctx context.Context, due []seat) []payment {
	payments := make([]payment, len(due))
	for i, s := range due {
		lock := d.renewed(s)
		payments[i] = payment{s, lock, noHold(takeUp(ctx, lock))}
	}
	return payments
}

// lapsed is an error: the visitor does not hold these seats any more.
type lapsed struct{ seats []seat }

func (l lapsed) Error() string { return "no hold of " + list(l.seats) }

// unpaid gives the seats that the visitor is not known to have bought.
func (d *desk) unpaid(ctx context.Context, visitor string, wanted []seat) []seat {
	buyers, err := d.sales.sold(ctx)
	if err != nil {
		return wanted
	}
	return slices.DeleteFunc(slices.Clone(wanted), func(s seat) bool { return buyers[s] == visitor })
}

// settle gives the holds back after a sale. Without one, what is left of them is the visitor's, to try again; but they are
// not renewed any more. It returns the seats whose holds have ended.
func (d *desk) settle(ctx context.Context, payments []payment, sold bool) (ended []seat, err error) {
	for _, p := range payments {
		switch {
		case errors.Is(p.err, errNoHold):
			ended = append(ended, p.seat)
		case p.err != nil: // it is as it was
		case !p.lock.IsHeldByCurrentOwner(ctx): // one that went to the other server is not taken back
			ended = append(ended, p.seat)
		case sold:
			// A lock that cannot be given back ends by itself.
			_ = release(ctx, p.lock)
		default:
			err = errors.Join(err, d.timed(p.seat).Resume(ctx))
		}
	}
	return ended, err
}

// sellUnder charges the visitor and writes the sales down, under their holds.
func (d *desk) sellUnder(ctx context.Context, visitor string, payments []payment) error {
	charging, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all []sale
	var keys []string
	for _, p := range payments {
		token, err := p.lock.Token(ctx)
		if err != nil {
			return err
		}
		all = append(all, sale{p.seat, token})
		keys = append(keys, fmt.Sprintf("%s-%d", p.seat, token))
		lost := p.lock.Lost(ctx)
		go func() { // the hold may end here: at the other server the same visitor goes on with it
			select {
			case <-lost:
				cancel(reentrant.ErrLost)
			case <-charging.Done():
			}
		}()
	}
	if err := d.charge(charging, strings.Join(keys, ","), price*len(payments)); err != nil {
		return errors.Join(err, context.Cause(charging))
	}
	// Another window may have let a seat go meanwhile.
	for _, p := range payments {
		if err := p.lock.Verify(ctx); err != nil {
			return err
		}
	}
	return d.sales.sell(ctx, visitor, all...)
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
func waiting(d time.Duration) func(ctx context.Context, key string, euros int) error {
	return func(ctx context.Context, _ string, _ int) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
