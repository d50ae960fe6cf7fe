package lease

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLossesAreOwedOncePerHold(t *testing.T) {
	var l LostHolds[string]
	me := "me"
	l.Add("a", me, 2)
	assert.False(t, l.TakeOwed("b", me), "another lock")
	assert.False(t, l.TakeOwed("a", "you"), "another owner")
	assert.True(t, l.IsOwed("a", me))
	assert.True(t, l.TakeOwed("a", me))
	assert.True(t, l.TakeOwed("a", me))
	assert.False(t, l.TakeOwed("a", me), "both are paid")
	assert.Empty(t, l.owed)
}

func TestLossesForgetTheOldest(t *testing.T) {
	var l LostHolds[string]
	for i := range maxLostHolds + 10 {
		l.Add(strconv.Itoa(i), "", 1)
	}
	assert.Len(t, l.owed, maxLostHolds)
	assert.False(t, l.IsOwed("9", ""))
	assert.True(t, l.IsOwed("10", ""))
}
