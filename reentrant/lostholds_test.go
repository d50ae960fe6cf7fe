package reentrant

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLossesAreOwedOncePerHold(t *testing.T) {
	var l lostHolds
	me := Owner{name: "me"}
	l.add("a", me, 2)
	assert.False(t, l.takeOwed("b", me), "another lock")
	assert.False(t, l.takeOwed("a", Owner{name: "you"}), "another owner")
	assert.True(t, l.isOwed("a", me))
	assert.True(t, l.takeOwed("a", me))
	assert.True(t, l.takeOwed("a", me))
	assert.False(t, l.takeOwed("a", me), "both are paid")
	assert.Empty(t, l.owed)
}

func TestLossesForgetTheOldest(t *testing.T) {
	var l lostHolds
	for i := range maxLostHolds + 10 {
		l.add(strconv.Itoa(i), Owner{}, 1)
	}
	assert.Len(t, l.owed, maxLostHolds)
	assert.False(t, l.isOwed("9", Owner{}))
	assert.True(t, l.isOwed("10", Owner{}))
}
