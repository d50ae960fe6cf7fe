package relockotel

import (
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/relock-go/relock/reentrant"
)

// holds has the spans of the holds that have not ended. The events of a lock come in order, so each lock has one at most.
type holds struct {
	mu   sync.Mutex
	open map[string]openHold // by lock; under mu
}

type openHold struct {
	token reentrant.Token
	span  trace.Span
}

// begin keeps the span of a hold until the hold ends. If the lock has a span already, the event that ends that one was
// dropped.
func (h *holds) begin(e reentrant.Event, span trace.Span) {
	h.mu.Lock()
	before := h.open[e.Lock].span
	if h.open == nil {
		h.open = map[string]openHold{}
	}
	h.open[e.Lock] = openHold{token: e.Token, span: span}
	h.mu.Unlock()
	if before != nil {
		before.End(trace.WithTimestamp(e.At))
	}
}

// resumed reports whether a resumed hold has a span already, and adds an event to that span.
func (h *holds) resumed(e reentrant.Event) bool {
	span := h.find(e.Lock, e.Token)
	if span == nil {
		return false
	}
	span.AddEvent("lock resumed", trace.WithTimestamp(e.At))
	return true
}

// note adds an event to the span of a lock's hold: its renewal fails, or works again.
func (h *holds) note(e reentrant.Event) {
	h.mu.Lock()
	span := h.open[e.Lock].span
	h.mu.Unlock()
	at := trace.WithTimestamp(e.At)
	switch {
	case span == nil:
	case e.Err != nil:
		span.AddEvent(e.Kind.String(), at, trace.WithAttributes(messageKey.String(e.Err.Error())))
	default:
		span.AddEvent(e.Kind.String(), at)
	}
}

// end ends the span of a hold.
func (h *holds) end(e reentrant.Event, r result) {
	span := h.find(e.Lock, e.Token)
	if span == nil {
		return
	}
	h.mu.Lock()
	delete(h.open, e.Lock)
	h.mu.Unlock()
	finish(span, e, r)
}

// find returns the span of a hold, nil if there is none.
func (h *holds) find(lock string, token reentrant.Token) trace.Span {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o := h.open[lock]; o.token == token {
		return o.span
	}
	return nil
}
