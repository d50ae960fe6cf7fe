package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// In these jobs the two producers have items 1, 3 and 2, 4, and the buffer has two places.
func TestJudge(t *testing.T) {
	for name, test := range map[string]struct {
		items []int64
		left  int64
		want  verdict
	}{
		"Nothing":    {nil, 0, verdict{lost: 4}},
		"EachOnce":   {[]int64{1, 2, 3, 4}, 0, verdict{items: 4}},
		"Interwoven": {[]int64{2, 4, 1, 3}, 0, verdict{items: 4}},
		"OneTwice":   {[]int64{1, 2, 2, 3, 4}, 0, verdict{items: 4, doubled: 1}},
		"OneMissing": {[]int64{1, 2, 4}, 0, verdict{items: 3, lost: 1}},
		"Swapped":    {[]int64{3, 1, 2, 4}, 0, verdict{items: 4, disorder: 1}},
		"Left":       {[]int64{1, 2, 3, 4}, 1, verdict{items: 4, left: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			r := remains{left: test.left, fullest: 2}
			test.want.shares = map[string]int64{}
			for _, item := range test.items {
				r.taken = append(r.taken, record{item, "p1"})
				test.want.shares["p1"]++
			}
			assert.Equal(t, test.want, judge(r, 4, 2, 2))
		})
	}
	assert.EqualValues(t, 1, judge(remains{fullest: 3}, 4, 2, 2).overfull)
}

func TestEveryFindingIsPrinted(t *testing.T) {
	assert.True(t, verdict{items: 3}.clean())
	assert.Contains(t, verdict{items: 3}.sentence(), "exactly once")
	for text, finding := range map[string]verdict{
		"lost 1":               {lost: 1},
		"doubled 1":            {doubled: 1},
		"out of order 1":       {disorder: 1},
		"left in the buffer 1": {left: 1},
		"places too many 1":    {overfull: 1},
	} {
		assert.False(t, finding.clean(), text)
		assert.Contains(t, finding.sentence(), "FAILED")
		assert.Contains(t, finding.sentence(), text)
	}
}
