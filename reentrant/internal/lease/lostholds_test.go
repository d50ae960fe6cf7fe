package lease

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLossesAreOwedOncePerHold(t *testing.T) {
	for name, add := range map[string]func(*LostHolds[string], string, int){
		"renewed": (*LostHolds[string]).Add, "fixed": (*LostHolds[string]).AddLapsed,
	} {
		t.Run(name, func(t *testing.T) {
			var l LostHolds[string]
			add(&l, "a", 2)
			assert.Zero(t, l.TakeOwed("b", 1, 1), "another hold")
			assert.Equal(t, 2, l.Owed("a"))
			assert.Equal(t, 1, l.TakeOwed("a", 1, 1))
			assert.Equal(t, 1, l.TakeOwed("a", 1, 1))
			assert.Zero(t, l.TakeOwed("a", 1, 1), "no Unlock is owed")
			assert.Nil(t, l.owed, "nothing is kept")
			assert.Nil(t, l.lapsed)
		})
	}
}

func TestManyAreTakenTogetherOrNone(t *testing.T) {
	var l LostHolds[string]
	l.Add("a", math.MaxInt32)
	tooMany := int64(math.MaxInt32) + 1
	assert.Zero(t, l.TakeOwed("a", int(tooMany), int(tooMany)), "too few")
	assert.Equal(t, math.MaxInt32-1, l.TakeOwed("a", 1, math.MaxInt32-1))
	l.AddLapsed("a", 1)
	assert.Equal(t, 2, l.TakeOwed("a", -1, 3), "of both kinds")
	assert.Zero(t, l.Owed("a"))
}

func TestOnlyFixedLeasesAreForgotten(t *testing.T) {
	var l LostHolds[int]
	const many = 10 * maxLapsed
	for i := range many {
		l.Add(i, 1)
		l.AddLapsed(many+i, 1)
	}
	for i := range many {
		assert.Equal(t, 1, l.Owed(i))
	}
	for i := many - maxLapsed; i < many; i++ {
		assert.Equal(t, 1, l.Owed(many+i), "one of the latest %d", maxLapsed)
	}
	assert.LessOrEqual(t, len(l.lapsed)+len(l.before), 2*maxLapsed)
	for i := range many {
		l.TakeOwed(i, 1, 1)
	}
	assert.Nil(t, l.owed, "the list's memory is free")
}
