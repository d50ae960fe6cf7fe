package cookbook

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// reply is what a handler replies to a change of order 7.
func reply(handler http.Handler) *httptest.ResponseRecorder {
	routes, w := http.NewServeMux(), httptest.NewRecorder()
	routes.Handle("POST /orders/{order}", handler)
	routes.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/orders/7", nil))
	return w
}

func TestRequestsForOneOrderGetTheirStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redistest.InBubble(t)
		session, other := virtual(t, server), virtual(t, server)
		change := func(context.Context, string) (any, error) { return "changed", nil }

		w := reply(Handler(session, change))
		assert.Equal(t, http.StatusOK, w.Code)
		assert.JSONEq(t, `"changed"`, w.Body.String())

		w = reply(Handler(session, func(context.Context, string) (any, error) { return "half", assert.AnError }))
		assert.Equal(t, http.StatusInternalServerError, w.Code)
		assert.NotContains(t, w.Body.String(), "half")

		begun := time.Now()
		require.NoError(t, other.NewLock("order:7").Do(t.Context(), func(context.Context) error {
			assert.Equal(t, http.StatusConflict, reply(Handler(session, change)).Code)
			return nil
		}))
		assert.Equal(t, time.Second, time.Since(begun))

		w = reply(Handler(session, func(ctx context.Context, order string) (any, error) {
			_, err := other.NewLock("order:" + order).ForceUnlock(ctx)
			<-ctx.Done()
			return "too late", err
		}))
		assert.Equal(t, http.StatusServiceUnavailable, w.Code, "the lock was lost")
		assert.Equal(t, "1", w.Header().Get("Retry-After"))
		assert.NotContains(t, w.Body.String(), "too late")
	})
}

func TestRequestsAreRefusedForATimeWhenThereIsNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		change := func(context.Context, string) (any, error) { t.Error("changed"); return nil, nil }
		server := redistest.InBubble(t)
		session, err := reentrant.NewSession(server.Backend())
		require.NoError(t, err)
		server.Close()
		assert.Equal(t, http.StatusServiceUnavailable, reply(Handler(session, change)).Code, "the server is gone")
		_ = session.Close(context.Background()) // what it could not give back
		assert.Equal(t, http.StatusServiceUnavailable, reply(Handler(session, change)).Code, "the session is closed")
	})
}
