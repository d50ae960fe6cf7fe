package redistest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// An hour with a lock takes about half a second of real time: the session renews the lock 1200 times.
func ExampleInBubble() {
	_ = func(t *testing.T) { // func TestTheLockIsHeldForAnHour(t *testing.T)
		synctest.Test(t, func(t *testing.T) {
			server := redistest.InBubble(t)
			session, err := reentrant.NewSession(server.Backend())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = session.Close(context.Background()) }()

			lock := session.NewLock("report")
			if err := lock.Do(t.Context(), func(ctx context.Context) error {
				time.Sleep(time.Hour)
				return lock.Verify(ctx)
			}); err != nil {
				t.Error(err)
			}
		})
	}
}
