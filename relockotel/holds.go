package relockotel

import (
	"slices"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/relock-go/relock/reentrant"
)

// holds has the spans of the holds that have not ended. When a lock is handed over within the process, the next owner may
// be heard of before the last one's end: so a lock can have several.
type holds struct {
	mu   sync.Mutex
	open map[string][]openHold // by lock, in the order of their tokens; under mu
	// early are the last holds that were lost before they were heard of: a process that was paused just when it got a
	// lock notices the loss and returns from Lock at the same time. Only the first of these can be late. Under mu.
	early [8]holdID
	next  int // where the next goes; under mu
}

type holdID struct {
	lock  string
	token reentrant.Token
}

type openHold struct {
	token reentrant.Token
	span  trace.Span
}

// begin keeps the span of a hold until its end.
func (h *holds) begin(e reentrant.Event, span trace.Span) {
	h.mu.Lock()
	missed := slices.Contains(h.early[:], holdID{e.Lock, e.Token})
	if !missed {
		if h.open == nil {
			h.open = map[string][]openHold{}
		}
		h.open[e.Lock] = append(h.open[e.Lock], openHold{token: e.Token, span: span})
	}
	h.mu.Unlock()
	if missed {
		e.Err = reentrant.ErrLost
		finish(span, e, lost)
	}
}

// resumed tells whether a hold goes on that has a span, and says so there.
func (h *holds) resumed(e reentrant.Event) bool {
	h.mu.Lock()
	span := h.find(e.Lock, e.Token)
	h.mu.Unlock()
	if span == nil {
		return false
	}
	span.AddEvent("lock resumed")
	return true
}

// note says on the span of a lock's hold that its renewal fails, or works again.
func (h *holds) note(e reentrant.Event) {
	h.mu.Lock()
	var span trace.Span
	if of := h.open[e.Lock]; len(of) > 0 {
		span = of[len(of)-1].span
	}
	h.mu.Unlock()
	switch {
	case span == nil:
	case e.Err != nil:
		span.AddEvent(e.Kind.String(), trace.WithAttributes(messageKey.String(e.Err.Error())))
	default:
		span.AddEvent(e.Kind.String())
	}
}

// end ends the span of a hold.
func (h *holds) end(e reentrant.Event, r result) {
	h.mu.Lock()
	span := h.find(e.Lock, e.Token)
	switch {
	case span != nil:
		h.drop(e.Lock, e.Token)
	case r == lost:
		h.early[h.next] = holdID{e.Lock, e.Token}
		h.next = (h.next + 1) % len(h.early)
	}
	h.mu.Unlock()
	if span != nil {
		finish(span, e, r)
	}
}

// find is the span of a hold, nil if there is none. mu is held.
func (h *holds) find(lock string, token reentrant.Token) trace.Span {
	for _, o := range h.open[lock] {
		if o.token == token {
			return o.span
		}
	}
	return nil
}

// drop forgets it. mu is held.
func (h *holds) drop(lock string, token reentrant.Token) {
	left := slices.DeleteFunc(h.open[lock], func(o openHold) bool { return o.token == token })
	if h.open[lock] = left; len(left) == 0 {
		delete(h.open, lock)
	}
}
