package faults

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/relock-go/relock/faults/history"
)

// disorder finds calls in a calm that certainly break the order, and none that only seem to break it.
func TestTheCalmIsJudgedByWhatIsCertain(t *testing.T) {
	const second = int64(time.Second)
	did := func(client string, kind history.Kind, from, to float64, limit time.Duration) call {
		return call{
			Op: history.Op{
				Process: client[:1], Client: client, Lock: simRight, Kind: kind, Outcome: history.OK,
				Call: int64(from * float64(second)), Return: int64(to * float64(second)),
			},
			limit: limit,
		}
	}
	died := func(c call) call { c.Outcome, c.Return = history.Pending, 0; return c }
	late := func(c call) call { c.Outcome, c.Note = history.No, errNot.Error(); return c }
	holding := func(c call) call { c.held.depth = 1; return c }
	try := func(c call) call { c.way = atOnce; return c }
	seats := func(units int, c call) call { c.Lock, c.Units = simSeats, units; return c }
	for name, test := range map[string]struct {
		calls   []call
		cohorts bool
		found   int
	}{
		"a wait that is not reported": {[]call{
			late(did("a1", waitedFor, 1, 20, 0)), late(did("b1", history.Acquire, 3, 5, 2*time.Second)),
		}, false, 1},
		"a wait that is too short to be reported": {[]call{
			late(did("a1", waitedFor, 1, 20, 0)), late(did("b1", history.Acquire, 3, 3.01, 10*time.Millisecond)),
		}, false, 0},
		"a wait of a process that died is reported": {[]call{
			did("a1", waitedFor, 1, 3.1, 0), died(did("b1", history.Acquire, 3, 0, time.Minute)),
		}, false, 0},
		"a wait for permits that is not reported": {[]call{
			late(seats(1, did("a1", waitedFor, 200, 220, 0))), late(seats(2, did("b1", history.Acquire, 203, 205, 2*time.Second))),
			seats(1, holding(did("b2", history.Acquire, 150, 150.1, 0))),
		}, false, 1},
		"a wait for permits of the same process is not reported": {[]call{
			late(seats(1, did("a1", waitedFor, 200, 220, 0))), late(seats(2, did("b1", history.Acquire, 203, 205, 2*time.Second))),
			seats(2, holding(did("b2", history.Acquire, 150, 150.1, 0))),
		}, false, 0},
		"a report without a wait": {[]call{did("a1", waitedFor, 1, 3, 0), late(try(did("b1", history.Acquire, 2, 2.1, 0)))}, false, 1},
		"a try is reported to a cohort": {[]call{
			did("a1", waitedFor, 1, 1.1, 0), late(try(did("b1", history.Acquire, 0.8, 0.9, 0))),
		}, true, 0},
		"a wait that goes on when its time is up": {[]call{late(did("b1", history.Acquire, 3, 8, 2*time.Second))}, false, 1},
		"a try that does not get what is free": {[]call{
			late(try(did("b1", history.Acquire, 10, 10.1, 0))), did("a1", history.Unlock, 1, 1.1, 0),
		}, true, 1},
		"a try while a cohort may keep the lock": {[]call{
			late(try(did("b1", history.Acquire, 9, 9.1, 0))), did("a1", history.Unlock, 1, 1.1, 0),
		}, true, 0},
		"a try soon after an Unlock": {[]call{
			late(try(did("b1", history.Acquire, 2, 2.1, 0))), did("a1", history.Unlock, 1, 1.1, 0),
		}, false, 0},
		"a try while another has it": {[]call{
			late(try(did("b1", history.Acquire, 10, 10.1, 0))), holding(did("a1", history.Acquire, 1, 1.1, 0)),
		}, true, 0},
		"a grant that comes late": {[]call{did("a1", history.Unlock, 1, 1.1, 0), did("b1", history.Acquire, 0, 5, time.Minute)}, false, 1},
		"a grant by an Await of a process that dies later": {[]call{
			did("a1", history.Unlock, 1, 1.1, 0), died(did("a2", history.Await, 4.9, 0, time.Minute)),
			did("b1", history.Acquire, 0, 5, time.Minute),
		}, false, 0},
		"a signal that wakes no waiter": {[]call{did("a1", history.Await, 1, 21.1, 20*time.Second), did("b1", signalled, 10, 10.1, 0)}, false, 1},
		"a signal that wakes one whose process dies later": {[]call{
			died(did("c1", history.Await, 1, 0, 20*time.Second)), did("a1", history.Await, 2, 22.1, 20*time.Second), did("b1", signalled, 10, 10.1, 0),
		}, false, 0},
		"a signal that an Await has which ends at that time": {[]call{
			did("c1", history.Await, 1, 11, 9*time.Second), did("a1", history.Await, 2, 22.1, 20*time.Second), did("b1", signalled, 10, 10.1, 0),
		}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1)
			if test.cohorts {
				w = newWorld(2)
			}
			w.storm, w.calls = 300*second, test.calls
			assert.Len(t, w.disorder(), test.found, "%q", w.disorder())
		})
	}
}
