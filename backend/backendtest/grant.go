package backendtest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

// Cases about locks that are handed to a waiter, and about the message that the waiter receives.
var grantCases = []testCase{
	{"Grant/HasAllThatTheWaiterNeeds", grantIsComplete},
	{"Grant/SaysWhenItWasMade", grantHasItsTime},
	{"Grant/IsSentOnlyToTheNewHolder", grantIsForTheHolderOnly},
	{"Grant/LastsForItsTTL", grantLasts},
	{"Grant/IsConfirmedByItsAttempt", grantIsConfirmed},
	{"Grant/IsTakenOverByANewAttempt", grantIsTakenOver},
	{"Grant/IsAHoldWithoutBeingConfirmed", grantIsAHold},
	{"Grant/ThatIsNotAcceptedGoesToTheNext", grantNotAccepted},
	{"Grant/AFixedLeaseStartsWhenItIsAccepted", grantStartsFixedLease},
	{"Grant/IsNeverLostSilently", grantIsNeverLost},
}

func grantIsComplete(t *test) {
	a, b, _ := t.connect3()
	p := t.handOver(a, b, tokens(5), grantTTL(medium))
	require.Equal(t, medium, p.TTL)
	require.Equal(t, p.First+4, p.Last)
	require.Equal(t, p.Last, b.has(b.epoch).Token)
}

// A grant is trusted from NotBefore on. If NotBefore is too late, there can be two holders. If it is much too early, the
// message is useless.
func grantHasItsTime(t *test) {
	const precision = 100 * time.Millisecond
	begun := time.Now()
	a, b, _ := t.connect3()
	p := t.handOver(a, b)
	if !p.NotBefore.IsZero() {
		require.False(t, p.NotBefore.After(p.released), "NotBefore is after the grant: %v", p.NotBefore.Sub(p.released))
		require.True(t, p.NotBefore.After(begun.Add(-precision)), "NotBefore is long before the grant: %v", p.NotBefore.Sub(p.released))
	}
}

func grantIsForTheHolderOnly(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(2)
	c.wait(3)
	a.release(1)
	b.mail.wait(t.Context(), t.name, 2, limit)
	b.release(2)
	c.mail.wait(t.Context(), t.name, 3, limit)
	c.release(3)
	told := func(s *session, epochs ...uint64) {
		t.Helper()
		for _, g := range s.mail.all(t.name) {
			require.Contains(t, epochs, g.Epoch, "a grant of another epoch")
		}
	}
	told(a)
	told(b, 2)
	told(c, 3)
}

func grantLasts(t *test) {
	a, b, _ := t.connect3()
	a.take(1)
	b.wait(1, lease(long), grantTTL(medium))
	a.release(1)
	t.full(medium, b.has(1).TTL)
}

func grantIsConfirmed(t *test) {
	a, b, _ := t.connect3()
	p := t.handOver(a, b, tokens(3), grantTTL(medium))
	got := b.take(b.epoch, lease(long), queue)
	require.Equal(t, p.First, got.First)
	require.Equal(t, p.Last, got.Last)
	t.full(long, b.has(b.epoch).TTL)
}

func grantIsTakenOver(t *test) {
	a, b, _ := t.connect3()
	p := t.handOver(a, b)
	got := b.take(b.epoch+1, owner("9"))
	require.Greater(t, got.First, p.Last)
	require.Equal(t, "9", b.has(b.epoch+1).Owner)
	b.stale(b.epoch, queue)
	a.release(a.epoch)
	b.release(b.epoch + 1)
	t.handOver(a, b)
	b.take(b.epoch+1, fixed(medium)) // b's lease begins now, and not again with a copy of the confirmation
	b.take(b.epoch+1, fixed(long))
	t.full(medium, b.has(b.epoch+1).TTL)
}

func grantIsAHold(t *test) {
	a, b, _ := t.connect3()
	a.take(1)
	b.wait(1, grantTTL(medium))
	a.release(1)
	require.Equal(t, 2, b.reenter(backend.ReenterRequest{Epoch: 1, Op: 1, Holds: 2}).Holds)
	require.True(t, b.renew(1, long))
	st := b.has(1)
	require.Equal(t, 2, st.Holds)
	t.full(long, st.TTL)
	require.Equal(t, backend.Released, b.release(1))
	b.free()
}

func grantNotAccepted(t *test) {
	a, b, c := t.connect3()
	a.take(1)
	b.wait(1, grantTTL(short))
	c.wait(1)
	a.release(1)
	t.eventually("the next waiter gets the lock", func() bool { return c.acquire(1, queue).Status == backend.Granted })
	require.NotEqual(t, backend.Granted, b.acquire(1, queue).Status)
	c.has(1)
}

func grantStartsFixedLease(t *test) {
	a, b, _ := t.connect3()
	a.take(1)
	b.wait(1, fixed(medium), grantTTL(long))
	a.release(1)
	t.full(long, b.has(1).TTL)
	b.take(1, queue, fixed(medium))
	t.full(medium, b.has(1).TTL)
	b.take(1, queue, fixed(long))
	t.full(medium, b.has(1).TTL)
}

// Each session begins to wait as soon as it is connected.
func grantIsNeverLost(t *test) {
	a := t.connect()
	for range 20 {
		b := t.connect()
		t.handOver(a, b)
		require.Equal(t, backend.Released, b.release(b.epoch))
	}
}
