package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// In these jobs the packet had 3 parts and 10 cents.
func TestJudge(t *testing.T) {
	for name, test := range map[string]struct {
		got   [][]int
		left  []int
		want  verdict
		clean bool
	}{
		"EachOne": {[][]int{{5}, {3}, {}, {2}}, nil,
			verdict{parts: 3, cents: 10, served: 3, due: 3, smallest: 2, largest: 5}, true},
		"FewerPeopleThanParts": {[][]int{{5}, {3}}, []int{2},
			verdict{parts: 2, cents: 8, served: 2, due: 2, left: 2, smallest: 3, largest: 5}, true},
		"OneTookTwo": {[][]int{{5, 3}, {}, {2}}, nil,
			verdict{parts: 3, cents: 10, served: 2, due: 3, thieves: 1, stolen: 3, smallest: 2, largest: 5}, false},
		"TookTwoAndTheOthersHaveTheirs": {[][]int{{5, 2}, {3}}, nil,
			verdict{parts: 3, cents: 10, served: 2, due: 2, thieves: 1, stolen: 2, smallest: 2, largest: 5}, false},
		"OneGotNone": {[][]int{{5}, {}, {3}}, []int{2},
			verdict{parts: 2, cents: 8, served: 2, due: 3, left: 2, smallest: 3, largest: 5}, false},
		"APartVanished": {[][]int{{5}, {3}}, nil,
			verdict{parts: 2, cents: 8, served: 2, due: 2, missing: 2, smallest: 3, largest: 5}, false},
		"APartCameTwice": {[][]int{{5}, {5}, {3}}, nil,
			verdict{parts: 3, cents: 13, served: 3, due: 3, missing: -3, smallest: 3, largest: 5}, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := judge(remains{got: test.got, left: test.left}, 3, 10)
			assert.Equal(t, test.want, v)
			assert.Equal(t, test.clean, v.clean())
		})
	}
}

func TestEveryFindingIsPrinted(t *testing.T) {
	assert.Contains(t, verdict{}.sentence(), "No person got two parts, everything was given out")
	assert.Contains(t, verdict{left: 2}.sentence(), "what is left add up")
	for text, finding := range map[string]verdict{
		"1 openids got more than one part and so stole 0.07": {thieves: 1, stolen: 7},
		"1 got none that was due":                            {due: 2, served: 1},
		"0.02 is missing":                                    {missing: 2},
		"-0.03 is missing":                                   {missing: -3},
	} {
		assert.Contains(t, finding.sentence(), "FAILED")
		assert.Contains(t, finding.sentence(), text)
	}
}

func TestMoney(t *testing.T) {
	assert.Equal(t, "200.00", money(20_000))
	assert.Equal(t, "0.05", money(5))
	assert.Equal(t, "-1.50", money(-150))
}
