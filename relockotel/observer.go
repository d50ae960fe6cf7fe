package relockotel

import (
	"context"
	"errors"

	"github.com/relock-go/relock/reentrant"
)

// An observer turns the events of one session into measurements and spans.
type observer struct {
	t     *Telemetry
	holds holds
}

// Observe implements [reentrant.Observer]. It passes the context to every measurement, so that an exemplar can name the
// trace.
func (o *observer) Observe(ctx context.Context, e reentrant.Event) {
	switch e.Kind {
	case reentrant.EventAcquired, reentrant.EventReentered, reentrant.EventFailed:
		o.asked(ctx, e)
	case reentrant.EventReleased:
		// If the error is ErrLost, an EventLost follows, which ends the hold.
		if !errors.Is(e.Err, reentrant.ErrLost) {
			o.ended(ctx, e, released)
		}
	case reentrant.EventLost:
		o.ended(ctx, e, lost)
	case reentrant.EventWaitingLong:
		o.t.longWaits.Add(ctx, 1, causeOf(e.Err))
	case reentrant.EventRenewalFailing:
		o.t.failures.Add(ctx, 1)
		o.holds.note(e)
	case reentrant.EventRenewalRecovered:
		o.t.recoveries.Add(ctx, 1)
		o.holds.note(e)
	}
}

// asked handles the end of a call that asked for a lock.
func (o *observer) asked(ctx context.Context, e reentrant.Event) {
	r := resultOf(ctx, e)
	attrs := o.t.about(e, r)
	o.t.acquisitions.Add(ctx, 1, attrs)
	if r != reentered { // a re-entry does not wait, and would hide the calls that do
		o.t.wait.Record(ctx, e.Wait.Seconds(), attrs)
	}
	o.trace(ctx, e, r)
}

// ended handles the end of a hold.
func (o *observer) ended(ctx context.Context, e reentrant.Event, r result) {
	o.t.hold.Record(ctx, e.Held.Seconds(), o.t.about(e, r))
	if !sharedMode(e.Mode) {
		o.holds.end(e, r)
	}
}
