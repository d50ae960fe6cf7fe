package reentrant_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// While one owner takes the lock over from another, there is no hold. If the watchdog looks at that moment it must not
// go to sleep for good, or the next hold would have to wake it.
func TestAHandOverDoesNotWakeTheWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		var looks atomic.Int64
		s := newSession(t, b, reentrant.WithLook(func() { looks.Add(1) }))
		l := s.NewLock("orders")
		require.NoError(t, l.Lock(t.Context()))
		got := make(chan struct{})
		go func() {
			defer close(got)
			assert.NoError(t, l.Lock(t.Context()))
		}()
		synctest.Wait()
		time.Sleep(time.Millisecond)
		var nudged atomic.Bool
		b.SetFault(func(op memory.Op) memory.Verdict {
			if op.Verb == memory.Acquire && !nudged.Swap(true) {
				reentrant.NudgeWatchdog(s)
				return memory.DelayReply(time.Millisecond)
			}
			return memory.Pass
		})
		looked := time.Now()
		require.NoError(t, l.Unlock(t.Context()))
		<-got
		synctest.Wait()
		require.True(t, nudged.Load())
		before := looks.Load()
		time.Sleep(time.Until(looked.Add(doze)))
		synctest.Wait()
		assert.Equal(t, before+1, looks.Load(), "the watchdog has looked again before that")
	})
}
