package relockotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/relock-go/relock/reentrant"
)

// The keys of attributes. tokenKey, errorKey and messageKey are for spans alone; the last two are of OpenTelemetry's
// conventions.
const (
	resultKey  = attribute.Key("relock.result")
	lockKey    = attribute.Key("relock.lock.name")
	modeKey    = attribute.Key("relock.lock.mode")
	causeKey   = attribute.Key("relock.cause")
	tokenKey   = attribute.Key("relock.token")
	errorKey   = attribute.Key("error.type")
	messageKey = attribute.Key("exception.message")
)

// A result is how a call that asked for a lock, or a hold, ended.
type result string

const (
	acquired  result = "acquired"
	reentered result = "reentered"
	busy      result = "busy"      // another owner had the lock until the call's wait was over
	notHeld   result = "not_held"  // Resume found no hold
	timedOut  result = "timeout"   // the context's deadline came
	cancelled result = "cancelled" // the context was cancelled
	deadlock  result = "deadlock"
	refused   result = "refused" // the server refused the command
	closed    result = "closed"  // the session was closed
	lost      result = "lost"
	failed    result = "error" // anything else
	released  result = "released"
)

// plain has the attributes of every result, made once.
var plain = func() map[result]metric.MeasurementOption {
	made := map[result]metric.MeasurementOption{}
	for _, r := range []result{acquired, reentered, busy, notHeld, timedOut, cancelled, deadlock, refused, closed, lost, failed, released} {
		made[r] = metric.WithAttributeSet(attribute.NewSet(resultKey.String(string(r))))
	}
	return made
}()

// resultOf returns the result of a call that asked for a lock.
func resultOf(ctx context.Context, e reentrant.Event) result {
	switch e.Kind {
	case reentrant.EventAcquired:
		return acquired
	case reentrant.EventReentered:
		return reentered
	}
	return resultOfError(ctx, e.Err)
}

// resultOfError returns the result of a call that got no lock. It looks for a deadlock first, because a deadlock ends the
// wait by cancelling a context. It asks the caller's context whether that has ended, and does not trust the error alone,
// because a client of Redis has deadlines of its own.
func resultOfError(ctx context.Context, err error) result {
	_, inDeadlock := errors.AsType[*reentrant.DeadlockError](err)
	ended := ctx.Err()
	switch {
	case err == nil:
		return busy
	case inDeadlock:
		return deadlock
	case ended != nil && errors.Is(err, ended):
		if errors.Is(ended, context.DeadlineExceeded) {
			return timedOut
		}
		return cancelled
	case reentrant.Refused(err):
		return refused
	case errors.Is(err, reentrant.ErrClosed):
		return closed
	case errors.Is(err, reentrant.ErrLost):
		return lost
	case errors.Is(err, reentrant.ErrNotHeld):
		return notHeld
	}
	return failed
}

// Causes of a long wait: another has the lock, or the backend does not answer. The order is that of causeOf.
var causes = []metric.MeasurementOption{
	metric.WithAttributeSet(attribute.NewSet(causeKey.String("held"))),
	metric.WithAttributeSet(attribute.NewSet(causeKey.String("backend"))),
}

func causeOf(err error) metric.MeasurementOption {
	if err == nil {
		return causes[0]
	}
	return causes[1]
}
