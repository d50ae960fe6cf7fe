package deadline

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// Commands of different lengths begin at the same moment, and again while the shared context of others is still in use. No
// command ends before its deadline, and each ends soon after its deadline.
func TestASharedContextEndsNoCommandBeforeItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Shared
		var commands sync.WaitGroup
		for range 5 {
			for i := range 100 {
				commands.Go(func() {
					limit := time.Duration(i%10+1) * time.Second
					deadline := time.Now().Add(limit)
					ctx := s.Context(context.Background(), time.Now(), deadline)
					time.Sleep(limit - 1)
					assert.NoError(t, ctx.Err(), "the time limit is %v", limit)
					<-ctx.Done()
					assert.Less(t, time.Since(deadline), 21*time.Second)
				})
			}
			time.Sleep(3 * time.Second)
		}
		commands.Wait()
	})
}

func TestCloseEndsTheCommandsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Shared
		ctx := s.Context(context.Background(), time.Now(), time.Now().Add(time.Second))
		assert.NoError(t, ctx.Err())
		s.Close()
		assert.ErrorIs(t, ctx.Err(), context.Canceled)
		s.Close()
	})
}
