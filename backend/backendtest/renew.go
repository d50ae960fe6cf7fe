package backendtest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases about prolonging leases.
var renewCases = []testCase{
	{"Renew/ProlongsTheLeaseAndNothingElse", renewProlongs},
	{"Renew/NeedsTheVeryEpoch", renewNeedsTheEpoch},
	{"Renew/NeverRecreatesAHold", renewNeverRecreates},
	{"Renew/ManyLocksAtOnce", renewManyLocks},
	{"Renew/OfNothingDoesNothing", renewOfNothing},
}

func renewProlongs(t *test) {
	a, b, _ := t.connect3()
	got := a.take(1, owner("7"), holds(2), lease(medium))
	b.wait(1)
	require.True(t, a.renew(1, long))
	st := a.has(1)
	t.full(long, st.TTL)
	require.Equal(t, "7", st.Owner)
	require.Equal(t, 2, st.Holds)
	require.Equal(t, got.Last, st.Token)
	a.waiting(b)
}

func renewNeedsTheEpoch(t *test) {
	a, b, _ := t.connect3()
	a.take(5, lease(medium))
	require.False(t, a.renew(4, long), "a lower epoch")
	require.False(t, a.renew(6, long), "a higher epoch")
	require.False(t, b.renew(5, long), "another session")
	b.wait(5)
	require.False(t, b.renew(5, long), "a waiter")
	t.full(medium, a.has(5).TTL)
}

func renewNeverRecreates(t *test) {
	a := t.connect()
	require.False(t, a.renew(1, long))
	a.free()
	a.take(1)
	a.release(1)
	require.False(t, a.renew(1, long))
	a.free()
	a.brief(2)
	a.expired()
	require.False(t, a.renew(2, long))
	a.free()
}

func renewManyLocks(t *test) {
	const locks = 250
	const before, after = 10 * time.Minute, time.Hour // leases that are longer than these commands take on any machine
	a, b, _ := t.connect3()
	var batch []backend.Renewal
	var mine []*remote
	for i := range locks {
		r := a.bind(t, fmt.Sprint(t.name, i))
		r.take(uint64(i+1), lease(before))
		if lost(i) {
			r.release(uint64(i + 1))
			b.bind(t, r.name).take(1, lease(before))
		}
		mine = append(mine, r)
		batch = append(batch, backend.Renewal{Remote: r.raw, Epoch: uint64(i + 1), Lease: after})
	}
	a.renewAll(batch)
	for i, r := range mine {
		st := r.inspect()
		require.Equal(t, lost(i), batch[i].Gone, "lock %d", i)
		if lost(i) {
			require.Equal(t, b.id, st.Session)
			require.LessOrEqual(t, st.TTL, before)
		} else {
			require.Greater(t, st.TTL, before)
		}
	}
}

// lost reports whether lock i is one that the session loses: the first, the last, or one of two in between.
func lost(i int) bool { return i%83 == 0 }

func renewOfNothing(t *test) {
	a := t.connect()
	ctx, cancel := a.command()
	defer cancel()
	a.conn.Renew(ctx, nil)
}
