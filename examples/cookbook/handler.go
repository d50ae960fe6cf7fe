package cookbook

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/relock-go/relock/reentrant"
)

// Handler serves requests that change an order. A request waits a second for an earlier one of the same order, and gets 409
// then. It gets 503 if the lock cannot be had at present, or was lost while change was at work.
func Handler(session *reentrant.Session, change func(ctx context.Context, order string) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		order := r.PathValue("order")
		lock := session.NewLock("order:"+order, reentrant.WithMaxWaiting(10))
		var result any
		done, err := lock.TryDoFor(r.Context(), time.Second, func(ctx context.Context) (err error) {
			result, err = change(ctx, order) // with this ctx, which ends if the lock is lost
			return err
		})
		switch { // only now: until the lock was given back, the change was not safe
		case err == nil && !done:
			http.Error(w, "another request changes this order", http.StatusConflict)
		case err == nil:
			_ = json.NewEncoder(w).Encode(result)
		case errors.Is(err, reentrant.ErrQueueFull), errors.Is(err, reentrant.ErrUnavailable),
			errors.Is(err, reentrant.ErrLost), errors.Is(err, reentrant.ErrClosed):
			w.Header().Set("Retry-After", "1")
			http.Error(w, "try again later", http.StatusServiceUnavailable)
		default:
			http.Error(w, "the order was not changed", http.StatusInternalServerError)
		}
	})
}
