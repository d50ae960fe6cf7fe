package backendtest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases about reading a lock's state.
var inspectCases = []testCase{
	{"Inspect/ShowsAFreeLock", inspectFree},
	{"Inspect/ShowsEveryField", inspectEverything},
	{"Inspect/KnowsTheTokenOfALockThatWasReleased", inspectAfterRelease},
	{"Inspect/ShowsTheSameToAllSessions", inspectByOthers},
	{"Inspect/ChangesNothing", inspectChangesNothing},
	{"Inspect/ShowsManyLocksAtOnce", inspectMany},
	{"Inspect/OneBadLockDoesNotHideTheOthers", inspectManyWithBad},
}

func inspectFree(t *test) {
	st := t.connect().inspect()
	require.False(t, st.Locked)
	require.Empty(t, st.Session)
	require.Empty(t, st.Owner)
	require.Zero(t, st.Holds)
	require.Zero(t, st.Token)
	require.Empty(t, st.Waiting)
}

func inspectEverything(t *test) {
	a, b, c := t.connect3()
	before := time.Now()
	got := a.take(17, owner("~worker"), holds(4), lease(medium))
	c.wait(1)
	b.wait(2)
	st := b.inspect()
	t.full(medium, st.TTL)
	if !st.Since.IsZero() {
		require.WithinRange(t, st.Since, before.Add(-limit), time.Now().Add(limit))
	}
	st.TTL, st.Since = 0, time.Time{}
	require.Equal(t, backend.State{
		Locked: true, Session: a.id, Owner: "~worker", Holds: 4, Epoch: 17, First: st.First, Token: got.Last,
		Waiting: []string{c.id, b.id},
	}, st)
}

func inspectAfterRelease(t *test) {
	a := t.connect()
	got := a.take(1)
	a.release(1)
	st := a.inspect()
	require.False(t, st.Locked)
	require.Empty(t, st.Session)
	require.Equal(t, got.Last, st.Token)
}

func inspectByOthers(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(1)
	began := time.Now()
	want := a.inspect()
	ends := endsIn(want.TTL, began)
	for _, s := range []*session{b, c} {
		began = time.Now()
		st := s.inspect()
		ends.agrees(t, endsIn(st.TTL, began))
		require.WithinDuration(t, want.Since, st.Since, limit)
		st.TTL, st.Since = want.TTL, want.Since
		require.Equal(t, want, st)
	}
}

func inspectChangesNothing(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(1)
	a.lapse() // Inspect finds the lock free and b waiting, and does not grant it to b
	c.take(1, barge)
	c.waiting(b)
}

// inspectAll reads many locks at once. The case is skipped for a Conn that cannot do that.
func (s *session) inspectAll(remotes ...*remote) []backend.Inspection {
	s.t.Helper()
	inspector, ok := s.conn.(backend.Inspector)
	if !ok {
		s.t.Skip("locks are read one by one")
	}
	inspections := make([]backend.Inspection, len(remotes))
	for i, r := range remotes {
		inspections[i].Remote = r.raw
	}
	ctx, cancel := s.command()
	defer cancel()
	inspector.InspectAll(ctx, inspections)
	return inspections
}

// An ending has two moments between which a hold ends. They follow from a TTL that was read at an unknown moment of a call.
type ending struct{ earliest, latest time.Time }

// endsIn returns when a hold ends. Its TTL was read by a call that began at the moment began and has just returned.
func endsIn(ttl time.Duration, began time.Time) ending {
	return ending{began.Add(ttl), time.Now().Add(ttl)}
}

// agrees requires that two reads of a hold's TTL can mean the same end, however long the reads took.
func (e ending) agrees(t *test, other ending) {
	t.Helper()
	require.False(t, other.latest.Before(e.earliest.Add(-limit)), "%v ends earlier than %v", other, e)
	require.False(t, other.earliest.After(e.latest.Add(limit)), "%v ends later than %v", other, e)
}

func inspectMany(t *test) {
	const locks = 40
	a, b, _ := t.connect3()
	var seen []*remote
	var want []backend.State
	var ends []ending
	for i := range uint64(locks) {
		r, mine := b.bind(t, fmt.Sprint(t.name, i)), a.bind(t, fmt.Sprint(t.name, i))
		if i%3 != 0 { // the other locks are free and were never used
			mine.take(i+1, holds(int(i)), owner(fmt.Sprint("owner ", i)), lease(locks*medium))
		}
		began := time.Now()
		seen, want = append(seen, r), append(want, mine.inspect())
		ends = append(ends, endsIn(want[i].TTL, began))
	}
	began := time.Now()
	for i, got := range b.inspectAll(seen...) {
		require.NoError(t, got.Err)
		if want[i].Locked {
			ends[i].agrees(t, endsIn(got.State.TTL, began))
			got.State.TTL = want[i].TTL
		}
		require.WithinDuration(t, want[i].Since, got.State.Since, limit)
		got.State.Since = want[i].Since
		require.Equal(t, want[i], got.State)
	}
}

func inspectManyWithBad(t *test) {
	a, b, _ := t.connect3()
	a.take(3)
	other := a.bind(t, t.name+"other")
	got := a.inspectAll(b.remote, a.remote, other)
	require.Error(t, got[0].Err, "the lock of another session")
	require.NoError(t, got[1].Err)
	require.Equal(t, a.id, got[1].State.Session)
	require.NoError(t, got[2].Err)
	require.False(t, got[2].State.Locked)
}
