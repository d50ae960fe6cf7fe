package background

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// The timer of a job may fire at the moment at which the job ends. It then comes too late to count the job as stalled.
func TestAJobThatHasEndedNeverCountsAsStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := Workers{Size: 1, Stall: time.Second}
		for range 1000 { // which of the two gets the mutex first is Go's choice
			end := w.begin()
			w.mu.Lock()
			time.Sleep(w.Stall)
			w.mu.Unlock()
			end()
			synctest.Wait()
			assert.Zero(t, w.stalled)
		}
	})
}
