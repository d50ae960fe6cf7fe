package history

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The functions reads to gives make operations on shared holds.
func reads(client string, call, ret int64) Op {
	return Op{Client: client, Process: client, Kind: Acquire, Read: true, Call: call, Return: ret, Outcome: OK}
}

func writes(client string, call, ret int64) Op { return did(client, Acquire, call, ret, OK) }

func sits(client string, call, ret int64, permits int) Op {
	op := did(client, Acquire, call, ret, OK)
	op.Units = permits
	return op
}

// sees and sawToken make checks of a read hold and of a write hold.
func sees(client string, call int64, version uint64) Op {
	op := did(client, Look, call, call+1, OK)
	op.Read, op.Token = true, version
	return op
}

func sawToken(client string, call int64, token uint64) Op {
	op := did(client, Look, call, call+1, OK)
	op.Token = token
	return op
}

func reading(op Op) Op {
	op.Read = true
	return op
}

func TestJudgeShared(t *testing.T) {
	flush := []Span{{From: 20, To: 25}}
	failover := []Span{{From: 20, To: 25, Partly: true}}
	leaves := func(client string, call int64) Op { return reading(gave(client, call, call+1)) }
	for name, test := range map[string]struct {
		ops     []Op
		deaths  map[string]int64
		forgets []Span
		want    string // a part of the expected finding; "" if the history is legal
	}{
		"readers together": {ops: []Op{
			reads("a", 1, 2), reads("b", 3, 4), sees("a", 5, 11), sees("b", 7, 11), leaves("a", 9), leaves("b", 11)}},
		"a writer after a reader": {ops: []Op{
			reads("a", 1, 2), sees("a", 3, 11), leaves("a", 5), writes("b", 1, 6), sawToken("b", 8, 12), gave("b", 10, 11)}},
		"a writer beside a reader": {want: "at once", ops: []Op{
			reads("a", 1, 2), writes("b", 3, 4), sawToken("b", 5, 12), sees("a", 7, 11), leaves("a", 9), gave("b", 11, 12)}},
		"a writer that waits while another writes": {ops: []Op{
			writes("a", 1, 2), sawToken("a", 3, 10), awaited("a", 5, 20, OK, 0), writes("b", 1, 6), sawToken("b", 8, 12),
			gave("b", 10, 11), sawToken("a", 21, 14), gave("a", 23, 24)}},
		"a writer that waits, and writes beside another": {want: "at once", ops: []Op{
			writes("a", 1, 2), sawToken("a", 3, 10), awaited("a", 5, 7, OK, 0), writes("b", 1, 6), sawToken("b", 12, 12),
			sawToken("a", 11, 14), gave("a", 23, 24), gave("b", 30, 31)}},
		"a writer that does not come back from its wait": {ops: []Op{
			writes("a", 1, 2), sawToken("a", 3, 10), awaited("a", 5, 20, Lost, 0), did("a", Unlock, 21, 22, Lost)}},
		"two writers": {want: "at once", ops: []Op{
			writes("a", 1, 2), writes("b", 3, 4), sawToken("b", 5, 12), sawToken("a", 7, 10), gave("a", 9, 10), gave("b", 11, 12)}},
		"a reader that is notified of its loss in time": {ops: []Op{
			reads("a", 1, 2), sees("a", 3, 11), writes("b", 4, 6), sawToken("b", 8, 12), reading(did("a", Look, 12, 13, Lost)),
			reading(did("a", Unlock, 14, 15, Lost)), gave("b", 16, 17)}},
		"a reader that is not notified of its loss": {want: "was not notified", ops: []Op{
			reads("a", 1, 2), sees("a", 3, 11), reading(did("a", Look, 12, 13, Untold)), leaves("a", 14)}},
		"a downgrade": {ops: []Op{
			writes("a", 1, 2), sawToken("a", 3, 10), reads("a", 5, 6), gave("a", 7, 8), sees("a", 9, 11), reads("b", 10, 12),
			sees("b", 13, 11), leaves("a", 15), leaves("b", 17)}},
		"a downgrade that lets a writer in": {want: "at once", ops: []Op{
			writes("a", 1, 2), sawToken("a", 3, 10), reads("a", 5, 6), gave("a", 7, 8), writes("b", 9, 10), sawToken("b", 12, 14),
			sees("a", 15, 11), leaves("a", 17), gave("b", 19, 20)}},
		"equal versions around a write": {want: "came after", ops: []Op{
			reads("a", 1, 2), sees("a", 3, 13), leaves("a", 5), writes("b", 7, 8), sawToken("b", 9, 12), gave("b", 11, 12),
			reads("a", 13, 14), sees("a", 15, 13), leaves("a", 17)}},
		"an old version": {want: "came after", ops: []Op{
			writes("b", 1, 2), sawToken("b", 3, 12), gave("b", 5, 6), reads("a", 7, 8), sees("a", 9, 11), leaves("a", 11)}},
		"a version within a hold that is of a later write": {want: "no order", ops: []Op{
			reads("a", 1, 2), sees("a", 3, 11), sees("a", 5, 13), writes("b", 4, 20), leaves("a", 9), sawToken("b", 21, 12), gave("b", 23, 24)}},
		"a writer out of the order of its token": {want: "no order", ops: []Op{
			writes("a", 1, 9), writes("b", 1, 4), sawToken("b", 5, 12), gave("b", 7, 8), sawToken("a", 10, 10), gave("a", 12, 13)}},
		"a token that is a version": {want: "tokens are even", ops: []Op{writes("b", 1, 2), sawToken("b", 3, 11), gave("b", 5, 6)}},
		"a token twice": {want: "was given to", ops: []Op{
			writes("a", 1, 5), writes("b", 1, 8), sawToken("a", 6, 12), gave("a", 8, 9), sawToken("b", 10, 12), gave("b", 12, 13)}},
		"permits up to the limit": {ops: []Op{
			sits("a", 1, 2, 2), sits("b", 3, 4, 1), did("a", Look, 5, 6, OK), did("b", Look, 7, 8, OK), gave("a", 9, 10), gave("b", 11, 12)}},
		"a permit too many": {want: "at once", ops: []Op{
			sits("a", 1, 2, 2), sits("b", 3, 4, 2), did("a", Look, 5, 6, OK), did("b", Look, 7, 8, OK), gave("a", 9, 10), gave("b", 11, 12)}},
		"a permit that was not shown proves nothing": {ops: []Op{
			sits("a", 1, 2, 2), sits("b", 3, 4, 2), did("b", Look, 7, 8, OK), gave("a", 9, 10), gave("b", 11, 12)}},
		"a Release too many":                 {want: "Unlock returned", ops: []Op{sits("a", 1, 2, 2), gave("a", 3, 4), gave("a", 5, 6)}},
		"a Release that is refused":          {want: "Unlock returned", ops: []Op{sits("a", 1, 2, 2), did("a", Unlock, 3, 4, NotHeld)}},
		"permits that are never released":    {want: "in use", ops: []Op{sits("a", 1, 2, 2)}},
		"permits of a process that has died": {deaths: map[string]int64{"a": 10}, ops: []Op{sits("a", 1, 2, 2)}},
		"forgotten, and trusted for a lease": {forgets: flush, ops: []Op{
			reads("a", 1, 2), sees("a", 3, 11), writes("b", 26, 27), sawToken("b", 28, 12), sees("a", 120, 11), leaves("a", 122), gave("b", 123, 124)}},
		"forgotten, and trusted for too long": {forgets: flush, want: "at once", ops: []Op{
			reads("a", 1, 2), sees("a", 3, 11), writes("b", 26, 27), sawToken("b", 140, 12), sees("a", 140, 11), leaves("a", 142), gave("b", 143, 144)}},
		"a version that rose although nothing was written, beside a session that read all along": {ops: []Op{
			reads("a", 1, 2), sees("a", 3, 11), reads("b", 5, 6), sees("b", 7, 15), leaves("b", 9), sees("a", 11, 11), leaves("a", 13),
			writes("b", 15, 16), sawToken("b", 17, 20), gave("b", 19, 20)}},
		"a version that falls in a process": {want: "came after", ops: []Op{
			reads("a", 1, 2), sees("a", 3, 15), leaves("a", 5), reads("a", 7, 8), sees("a", 9, 11), leaves("a", 11)}},
		"a token below a version": {want: "came after", ops: []Op{
			reads("a", 1, 2), sees("a", 3, 15), leaves("a", 5), writes("b", 7, 8), sawToken("b", 9, 12), gave("b", 11, 12)}},
		"a version from before a write that is seen after it": {want: "no order", ops: []Op{
			writes("b", 1, 4), sawToken("b", 5, 12), gave("b", 7, 8), reads("a", 1, 10), sees("a", 11, 11), leaves("a", 13)}},
		"an older version after a flush": {forgets: flush, want: "came after", ops: []Op{
			writes("b", 1, 2), sawToken("b", 3, 12), gave("b", 5, 6), reads("a", 200, 201), sees("a", 203, 11), leaves("a", 205)}},
		"an older version after a failover, in a process that has seen no later one": {forgets: failover, ops: []Op{
			writes("b", 1, 2), sawToken("b", 3, 12), gave("b", 5, 6), reads("a", 200, 201), sees("a", 203, 11), leaves("a", 205)}},
		"an older version after a failover, in a process that has seen a later one": {forgets: failover, want: "came after", ops: []Op{
			writes("b", 1, 2), sawToken("b", 3, 12), gave("b", 5, 6), reads("b", 200, 201), sees("b", 203, 11), leaves("b", 205)}},
		"an older token after a failover": {forgets: failover, want: "came after", ops: []Op{
			writes("b", 1, 2), sawToken("b", 3, 12), gave("b", 5, 6), writes("a", 200, 201), sawToken("a", 203, 10), gave("a", 205, 206)}},
		"not forgotten yet": {forgets: flush, want: "at once", ops: []Op{
			reads("a", 1, 2), sees("a", 3, 11), writes("b", 5, 6), sawToken("b", 8, 12), sees("a", 12, 11), leaves("a", 14), gave("b", 16, 17)}},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range test.ops {
				test.ops[i].Lock = "lock"
			}
			h := SharedHistory{Ops: test.ops, Deaths: test.deaths, Forgets: test.forgets, Lease: lease}
			if strings.Contains(name, "ermit") || strings.Contains(name, "Release") {
				h.Permits = map[string]int{"lock": 3}
			}
			var found []string
			for _, f := range JudgeShared(h).Findings {
				found = append(found, f.String())
			}
			if test.want == "" {
				assert.Empty(t, found)
				return
			}
			assert.Contains(t, strings.Join(found, "\n"), test.want)
		})
	}
}
