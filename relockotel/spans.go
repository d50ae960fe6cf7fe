package relockotel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/relock-go/relock/reentrant"
)

// trace makes the span of a call that has ended, and begins the span of the hold if the call got one. If the caller is
// not traced it does nothing.
func (o *observer) trace(ctx context.Context, e reentrant.Event, r result) {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return
	}
	attrs := trace.WithAttributes(attributesOf(e)...) // at the start, so that samplers see them
	_, span := o.t.tracer.Start(ctx, "relock.acquire", attrs, trace.WithTimestamp(e.At.Add(-e.Wait)))
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(resultKey.String(string(r)))
	if e.Err != nil && r != notHeld { // not held is no failure, and neither is busy
		fail(span, r, e.Err)
	}
	span.End(trace.WithTimestamp(e.At))
	if e.Kind == reentrant.EventAcquired && !sharedMode(e.Mode) && !o.holds.resumed(e) {
		_, hold := o.t.tracer.Start(ctx, "relock.hold", attrs, trace.WithTimestamp(e.At),
			trace.WithLinks(trace.Link{SpanContext: span.SpanContext()}))
		o.holds.begin(e, hold)
	}
}

// sharedMode reports whether a lock can have many holds of a mode at a time. Those have no spans, because the event of
// an end does not say which of them has ended.
func sharedMode(m reentrant.Mode) bool { return m == reentrant.ModeRead || m == reentrant.ModePermits }

func attributesOf(e reentrant.Event) []attribute.KeyValue {
	attrs := []attribute.KeyValue{lockKey.String(e.Lock)}
	if e.Mode != reentrant.ModeLock {
		attrs = append(attrs, modeKey.String(e.Mode.String()))
	}
	if e.Token > 0 {
		attrs = append(attrs, tokenKey.Int64(int64(e.Token)))
	}
	return attrs
}

// finish ends the span of a hold.
func finish(span trace.Span, e reentrant.Event, r result) {
	span.SetAttributes(resultKey.String(string(r)))
	if e.Err != nil {
		fail(span, r, e.Err)
	}
	span.End(trace.WithTimestamp(e.At))
}

// fail marks a span as failed.
func fail(span trace.Span, r result, err error) {
	kind := r
	if r == released { // the release had an error: Redis did not confirm it
		kind = failed
	}
	span.SetAttributes(errorKey.String(string(kind)))
	span.SetStatus(codes.Error, err.Error())
}
