package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestJudge(t *testing.T) {
	for name, test := range map[string]struct {
		records []record
		want    verdict
	}{
		"Nothing": {nil,
			verdict{gaps: 3, shares: map[string]int64{}}},
		"EachOnce": {[]record{{key: 1, server: "a", token: 5}, {key: 2, server: "b", token: 6}, {key: 3, server: "a", token: 9}},
			verdict{numbers: 3, shares: map[string]int64{"a": 2, "b": 1}}},
		"OneTwice": {[]record{{key: 1, token: 5}, {key: 2, token: 6}, {key: 2, token: 7}, {key: 3, token: 8}},
			verdict{numbers: 3, duplicates: 1, shares: map[string]int64{"": 4}}},
		"OneThreeTimes": {[]record{{key: 1, token: 5}, {key: 1, token: 6}, {key: 1, token: 7}},
			verdict{numbers: 1, duplicates: 2, gaps: 2, shares: map[string]int64{"": 3}}},
		"FirstMissing": {[]record{{key: 2, token: 6}, {key: 3, token: 8}},
			verdict{numbers: 2, gaps: 1, shares: map[string]int64{"": 2}}},
		"LastMissing": {[]record{{key: 1, token: 6}, {key: 2, token: 8}},
			verdict{numbers: 2, gaps: 1, shares: map[string]int64{"": 2}}},
		"TokenWentBack": {[]record{{key: 1, token: 5}, {key: 2, token: 9}, {key: 3, token: 8}},
			verdict{numbers: 3, reversals: 1, shares: map[string]int64{"": 3}}},
		"TokenStoodStill": {[]record{{key: 1, token: 5}, {key: 2, token: 5}, {key: 3, token: 8}},
			verdict{numbers: 3, reversals: 1, shares: map[string]int64{"": 3}}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, judge(test.records, 3))
		})
	}
}

func TestEveryFindingIsPrinted(t *testing.T) {
	clean := result{opts: options{lock: lockRelock}, verdict: verdict{numbers: 3}}
	assert.True(t, clean.Clean())
	assert.Contains(t, clean.sentence(), "exactly once")
	for name, finding := range map[string]verdict{
		"duplicates 1":          {numbers: 3, duplicates: 1},
		"gaps 1":                {numbers: 3, gaps: 1},
		"out-of-order tokens 1": {numbers: 3, reversals: 1},
	} {
		r := clean
		r.verdict = finding
		assert.False(t, r.Clean(), name)
		assert.Contains(t, r.sentence(), "FAILED")
		assert.Contains(t, r.sentence(), name)
	}
}

func TestWithoutALockTokensAreNotJudged(t *testing.T) {
	r := result{opts: options{lock: lockNone}, verdict: verdict{numbers: 3, reversals: 2}}
	assert.True(t, r.Clean())
	assert.NotContains(t, r.sentence(), "token")
}

// id returns an id of a node in a millisecond.
func id(millisecond, node, sequence int64) int64 {
	return millisecond<<(nodeBits+sequenceBits) | node<<sequenceBits | sequence
}

func TestJudgeIDs(t *testing.T) {
	for name, test := range map[string]struct {
		records []record
		want    verdict
	}{
		"Nothing": {nil, verdict{shares: map[string]int64{}}},
		"TwoNodesAtOnce": {[]record{{key: id(1, 3, 0), token: 8}, {key: id(1, 4, 0), token: 7}, {key: id(2, 3, 0), token: 8}},
			verdict{numbers: 3, nodes: 2, shares: map[string]int64{"": 3}}},
		"ANumberPassedOn": {[]record{{key: id(1, 3, 0), token: 7}, {key: id(2, 3, 0), token: 8}},
			verdict{numbers: 2, nodes: 1, successions: 1, shares: map[string]int64{"": 2}}},
		"OneTwice": {[]record{{key: id(1, 3, 0), token: 7}, {key: id(1, 3, 0), token: 8}},
			verdict{numbers: 1, duplicates: 1, nodes: 1, successions: 1, shares: map[string]int64{"": 2}}},
		"TwoHoldersTimesOverlap": {[]record{{key: id(1, 3, 0), token: 8}, {key: id(1, 3, 1), token: 7}},
			verdict{numbers: 2, nodes: 1, reversals: 1, shares: map[string]int64{"": 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, judgeIDs(test.records))
		})
	}
}
