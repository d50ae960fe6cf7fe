package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/relock-go/relock/fence"
	"github.com/relock-go/relock/reentrant"
)

// The reasons for which a request is refused. A request that is refused has changed nothing.
var (
	errTaken  = errors.New("another visitor holds the seat")
	errSold   = errors.New("the seat is sold")
	errNoHold = errors.New("the visitor does not hold the seat")
	errFree   = errors.New("no visitor holds the seat")
)

// A desk is where visitors get seats at one server. The contexts of its methods carry the visitor as a portable owner ([as]).
// Any number of calls may be under way at once, even for one visitor: two windows of one browser are one owner.
type desk struct {
	session *reentrant.Session
	sales   *sales
	hold    time.Duration
	// charge takes the money. Each payment for a hold has the same key, even at the other server. A payment service takes such
	// a key so that a payment that is repeated is paid only once. If a sale fails, the money is given back.
	charge func(ctx context.Context, key string, euros int) error

	// If two windows send equal requests at the same moment, the request is done once. Otherwise the lock would count two picks
	// and one release, and two payments under one hold would disturb each other.
	picks    singleflight.Group // by visitor and seat
	payments singleflight.Group // by visitor
}

// as returns a context whose owner of locks is the visitor.
func as(ctx context.Context, visitor string) context.Context {
	return reentrant.WithPortableOwner(ctx, visitor)
}

// leaseOf returns the lease for a hold of the given length. A session trusts a lease only until 1 % before its end,
// because of the clocks. The visitor is promised the whole length, so the lease is a little longer.
func leaseOf(hold time.Duration) time.Duration { return hold + grace(hold) }

func grace(hold time.Duration) time.Duration { return hold/98 + 20*time.Millisecond }

// timed returns the lock of a seat for a pick. Its lease is fixed, and begins with the pick.
func (d *desk) timed(s seat) *reentrant.Lock {
	return d.session.NewLock(s.lockName(), reentrant.WithFixedLease(leaseOf(d.hold)))
}

// renewed returns the lock of a seat for a payment: it is renewed until the payment is done. The session's lease is as long
// as a hold, so if this server dies the visitor has as much time as after a pick to continue at the other one.
func (d *desk) renewed(s seat) *reentrant.Lock { return d.session.NewLock(s.lockName()) }

// pick holds a seat for the visitor. If the visitor already holds the seat, the hold stays as it is. pick returns errTaken,
// errSold, or, if this server does not learn within a second that its own hold of the seat is over, errFree.
func (d *desk) pick(ctx context.Context, visitor string, s seat) error {
	_, err, _ := d.picks.Do(visitor+string(s), func() (any, error) { return nil, d.pickOnce(ctx, s) })
	return err
}

func (d *desk) pickOnce(ctx context.Context, s seat) error {
	lock := d.timed(s)
	if lock.IsHeldByCurrentOwner(ctx) { // TryLock would count it as a second hold
		return nil
	}
	if err := take(ctx, lock); err != nil {
		return err
	}
	token, err := lock.Token(ctx)
	if err != nil {
		return err
	}
	// The result stays true only under the lock. The seat may have been bought under an earlier hold.
	buyer, err := d.sales.show(ctx, s, token)
	if err == nil && buyer == "" {
		return nil
	}
	if err == nil {
		err = errSold
	}
	return errors.Join(err, release(ctx, lock))
}

// take acquires a lock, or resumes the visitor's hold of it.
// If the other server has taken up a hold of this server, no owner here can get the lock until the message about that arrives.
// By then the hold may have ended at the other server. So while the lock is free in Redis, take tries again.
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

// takeOnce first tries to acquire the lock. If two windows pick the seat at two servers at the same moment, the later request
// finds the hold of the other one.
func takeOnce(ctx context.Context, lock *reentrant.Lock) error {
	got, err := lock.TryLock(ctx)
	if errors.Is(err, reentrant.ErrLost) { // the visitor's last hold has just ended: this is about the next hold
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

// takeUp resumes the visitor's hold from any server. It first checks whether there is a hold, because a Resume that is under
// way keeps other calls of this server from trying.
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

// release gives up the visitor's hold. If the hold has ended by itself, that is not an error.
func release(ctx context.Context, lock *reentrant.Lock) error {
	err := lock.Unlock(ctx)
	if errors.Is(err, reentrant.ErrLost) || errors.Is(err, reentrant.ErrNotHeld) {
		return nil
	}
	return err
}

// letGo ends the visitor's hold, whether it was picked at this server or the other. If there is no hold, it returns errNoHold.
func (d *desk) letGo(ctx context.Context, _ string, s seat) error {
	lock := d.timed(s)
	if err := takeUp(ctx, lock); err != nil {
		return noHold(err)
	}
	return release(ctx, lock)
}

// pay sells seats to the visitor who holds them, at whichever server they were picked: all of them, in one payment, or
// none. The holds last until that is done. Seats that the visitor has bought already are not paid for again. It returns
// lapsed if there are holds that have ended, on the way too; the charge's error, and the holds are as they were;
// another error if it is not known whether the seats are sold: paying again is right.
func (d *desk) pay(ctx context.Context, visitor string, wanted ...seat) error {
	for {
		done, err, _ := d.payments.Do(visitor, func() (any, error) { return wanted, d.payOnce(ctx, visitor, wanted) })
		if slices.Equal(done.([]seat), wanted) {
			return err
		}
		// That was another window's payment, for other seats.
	}
}

// A payment is a seat to pay for, with the lock that is held for it.
type payment struct {
	seat seat
	lock *reentrant.Lock
	err  error // why the hold could not be resumed
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
	case len(d.unpaid(ctx, visitor, due)) == 0: // another window has bought them, or a payment whose result was lost
		return nil
	case len(ended) == 0: // the rows of the seats have seen later holds
		ended = due
	}
	return fmt.Errorf("%w: %w", lapsed{ended}, err)
}

// takeUpAll resumes the visitor's holds of seats. From then on the holds are renewed.
func (d *desk) takeUpAll(ctx context.Context, due []seat) []payment {
	payments := make([]payment, len(due))
	for i, s := range due {
		lock := d.renewed(s)
		payments[i] = payment{s, lock, noHold(takeUp(ctx, lock))}
	}
	return payments
}

// lapsed is the error for a visitor who no longer holds these seats.
type lapsed struct{ seats []seat }

func (l lapsed) Error() string { return "no hold of " + list(l.seats) }

// unpaid returns the seats that the visitor is not known to have bought.
func (d *desk) unpaid(ctx context.Context, visitor string, wanted []seat) []seat {
	buyers, err := d.sales.sold(ctx)
	if err != nil {
		return wanted
	}
	return slices.DeleteFunc(slices.Clone(wanted), func(s seat) bool { return buyers[s] == visitor })
}

// settle gives the holds back after a sale. If there was no sale, the visitor keeps the holds that have not ended, to try
// again, but they are no longer renewed. settle returns the seats whose holds have ended.
func (d *desk) settle(ctx context.Context, payments []payment, sold bool) (ended []seat, err error) {
	for _, p := range payments {
		switch {
		case errors.Is(p.err, errNoHold):
			ended = append(ended, p.seat)
		case p.err != nil: // the hold stays as it was
		case !p.lock.IsHeldByCurrentOwner(ctx): // a hold that went to the other server is not taken back
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

// sellUnder charges the visitor and records the sales, all under the visitor's holds.
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
		go func() { // the hold may end here because the same visitor continues at the other server
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
	// Another window may have let a seat go in the meantime.
	for _, p := range payments {
		if err := p.lock.Verify(ctx); err != nil {
			return err
		}
	}
	return d.sales.sell(ctx, visitor, all...)
}

// noHold returns errNoHold for errors which mean that the hold is over.
func noHold(err error) error {
	switch {
	case errors.Is(err, errFree), errors.Is(err, reentrant.ErrNotHeld), errors.Is(err, reentrant.ErrLost),
		errors.Is(err, fence.ErrStale), errors.Is(err, errBought):
		return fmt.Errorf("%w: %w", errNoHold, err)
	}
	return err
}

// waiting is a payment service that accepts every payment after a pause.
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
