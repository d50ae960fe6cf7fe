package reentrant

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLossesAreOwedOncePerHold(t *testing.T) {
	var l losses
	me := Owner{name: "me"}
	l.add("a", me, 2)
	assert.False(t, l.pay("b", me), "another lock")
	assert.False(t, l.pay("a", Owner{name: "you"}), "another owner")
	assert.True(t, l.owes("a", me))
	assert.True(t, l.pay("a", me))
	assert.True(t, l.pay("a", me))
	assert.False(t, l.pay("a", me), "both are paid")
	assert.Empty(t, l.owed)
}

func TestLossesForgetTheOldest(t *testing.T) {
	var l losses
	for i := range maxLosses + 10 {
		l.add(strconv.Itoa(i), Owner{}, 1)
	}
	assert.Len(t, l.owed, maxLosses)
	assert.False(t, l.owes("9", Owner{}))
	assert.True(t, l.owes("10", Owner{}))
}
