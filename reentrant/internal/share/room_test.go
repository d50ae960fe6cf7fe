package share

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
)

// The last user of a refused name may leave before the goroutine that sends commands has seen that there is nothing
// more to do. The name can be used as another kind at once.
func TestANameThatIsOutOfUseIsForgottenBeforeItsGoroutineEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPermits(t)
		n := s.name
		n.mu.Lock()
		n.running = true // the test acts as the goroutine
		n.mu.Unlock()
		n.Leave()
		assert.Nil(t, n.Ref().Name())
		assert.Nil(t, s.room.Find("x"))
		assert.Len(t, n.wake, 1, "the goroutine is notified")
	})
}
