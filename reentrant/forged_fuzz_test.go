package reentrant_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/internal/protocol"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/reentrant"
)

// A victim is a pair of sessions that have holds of each kind and wait for others. Their channels receive messages that
// the server did not send. The server replies to every command at once.
type victim struct {
	*testing.T
	b         *memory.Backend
	one       *reentrant.Session
	cohort    *reentrant.Session // with lingering holds
	theirs    *reentrant.Session // has what one and cohort wait for, and waits for some of what one has
	holds     []victimHold
	releases  []func() error // they release what theirs has
	waiters   sync.WaitGroup
	mu        sync.Mutex
	served    bool // set when theirs has released everything; guarded by mu
	announced bool // set when the condition's waiters may end; guarded by the lock "condition"
}

// A victimHold is a hold that the server has too.
type victimHold struct {
	name    string
	lost    <-chan struct{}
	trusted func() (time.Time, error) // returns until when the hold is trusted; nil if that cannot be asked for
	lease   time.Duration
	verify  func() error
	release func() error
}

const victimLease = 10 * time.Second

func newVictim(t *testing.T) *victim {
	b := memory.New()
	v := &victim{T: t, b: b, one: newSession(t, b), theirs: newSession(t, b),
		cohort: newSession(t, b, reentrant.WithCohort(), reentrant.WithLinger(time.Hour))}
	v.has("held", owner(t, "a"), v.one.NewLock("held"), victimLease)
	v.has("fixed", owner(t, "a"), v.one.NewLock("fixed", reentrant.WithFixedLease(time.Hour)), time.Hour)
	v.has("moves", order(t), v.one.NewLock("moves"), victimLease)
	v.has("cohort", t.Context(), v.cohort.NewLock("cohort"), victimLease)
	lingers := v.cohort.NewLock("lingers")
	require.NoError(t, lingers.Lock(t.Context()))
	require.NoError(t, lingers.Unlock(t.Context()))
	v.hasShared()

	v.waits("waited", v.one.NewLock("waited"), v.theirs.NewLock("waited"))
	v.waits("waited cohort", v.cohort.NewLock("waited cohort"), v.theirs.NewLock("waited cohort"))
	write, theirs := v.one.NewRWLock("waited rw"), v.theirs.NewRWLock("waited rw")
	v.waits("waited rw", write, theirs)
	v.waitsForPermit()
	v.waitsForSignal()
	synctest.Wait()
	return v
}

// has takes a lock for an owner.
func (v *victim) has(name string, ctx context.Context, l *reentrant.Lock, lease time.Duration) {
	require.NoError(v, l.Lock(ctx))
	v.holds = append(v.holds, victimHold{name, l.Lost(ctx), func() (time.Time, error) { return l.TrustedUntil(ctx) }, lease,
		func() error { return l.Verify(ctx) }, func() error { return l.Unlock(ctx) }})
}

// hasShared takes sides and permits. For some of them no session waits, and for others one session waits.
func (v *victim) hasShared() {
	ctx := owner(v.T, "a")
	for _, name := range []string{"reads", "wanted reads", "writes"} {
		l := v.one.NewRWLock(name)
		take, release := l.RLock, l.RUnlock
		if name == "writes" {
			take, release = l.Lock, l.Unlock
		}
		require.NoError(v, take(ctx))
		v.holds = append(v.holds, victimHold{name, l.Lost(ctx), func() (time.Time, error) { return l.TrustedUntil(ctx) }, victimLease,
			func() error { return l.Verify(ctx) }, func() error { return release(ctx) }})
	}
	v.waiters.Go(func() {
		l := v.theirs.NewRWLock("wanted reads")
		assert.NoError(v, l.Lock(ctx))
		assert.NoError(v, l.Unlock(ctx))
	})
	m, theirs := v.one.NewSemaphore("permits", 4), v.theirs.NewSemaphore("permits", 4)
	require.NoError(v, theirs.Acquire(ctx, 3))
	require.NoError(v, m.Acquire(ctx, 1))
	v.releases = append(v.releases, func() error { return theirs.Release(context.Background(), 3) })
	has := func() error {
		st, err := m.Inspect(ctx)
		for _, h := range st.Holders {
			if h.Session == v.one.ID() && h.Units >= 1 {
				return err
			}
		}
		return fmt.Errorf("no permit of the session in %+v: %w", st, err)
	}
	v.holds = append(v.holds, victimHold{"permits", m.Lost(), nil, victimLease, has, func() error { return m.Release(ctx, 1) }})
	v.waiters.Go(func() { // its session keeps a permit meanwhile
		require.NoError(v, m.Acquire(ctx, 2))
		assert.True(v, v.isServed(), "the other session has the permits")
		assert.NoError(v, m.Release(ctx, 2))
	})
}

// An exclusive is a Lock or the write side of an RWLock.
type exclusive interface {
	Lock(context.Context) error
	Unlock(context.Context) error
	Lost(context.Context) <-chan struct{}
	TrustedUntil(context.Context) (time.Time, error)
}

// waits makes an owner wait for a lock that theirs holds. Forged grants may make the owner believe for a moment, again and
// again, that it holds the lock.
func (v *victim) waits(name string, ours, theirs exclusive) {
	require.NoError(v, theirs.Lock(owner(v.T, "holder")))
	v.releases = append(v.releases, func() error { return theirs.Unlock(owner(v.T, "holder")) })
	v.waiters.Go(func() {
		ctx := v.Context() // this goroutine is the owner
		for {
			require.NoError(v, ours.Lock(ctx))
			begun := time.Now()
			if until, err := ours.TrustedUntil(ctx); err == nil && !v.isServed() {
				assert.LessOrEqual(v, until.Sub(begun), grantTTL, name)
			}
			if v.isReal(name, begun, ours.Lost(ctx)) {
				assert.NoError(v, ours.Unlock(ctx))
				return
			}
			assert.ErrorIs(v, ours.Unlock(ctx), reentrant.ErrLost)
		}
	})
}

// isReal waits until a hold is lost, or is certain to be real, and reports which. A forged hold ends at the first renewal.
func (v *victim) isReal(name string, begun time.Time, lost <-chan struct{}) bool {
	timer := time.NewTimer(grantTTL)
	defer timer.Stop()
	select {
	case <-lost:
		assert.LessOrEqual(v, time.Since(begun), grantTTL/10+10*time.Millisecond, name)
		return false
	case <-timer.C:
		assert.True(v, v.isServed(), "%s: the other session has the lock", name)
		return true
	}
}

// waitsForPermit makes a caller wait for a permit while its session has none.
func (v *victim) waitsForPermit() {
	ours, theirs := v.one.NewSemaphore("waited permits", 2), v.theirs.NewSemaphore("waited permits", 2)
	require.NoError(v, theirs.Acquire(v.Context(), 2))
	v.releases = append(v.releases, func() error { return theirs.Release(context.Background(), 2) })
	v.waiters.Go(func() {
		for {
			require.NoError(v, ours.Acquire(v.Context(), 1))
			if v.isReal("waited permits", time.Now(), ours.Lost()) {
				assert.NoError(v, ours.Release(v.Context(), 1))
				return
			}
			assert.ErrorIs(v, ours.Release(v.Context(), 1), reentrant.ErrLost)
		}
	})
}

// waitsForSignal makes two owners wait for a condition. Forged messages may wake them, and make them believe that they
// have the lock again, but no signal is lost.
func (v *victim) waitsForSignal() {
	l := v.one.NewLock("condition")
	for range 2 {
		v.waiters.Go(func() {
			ctx := v.Context()
			require.NoError(v, l.Lock(ctx))
			c := l.NewCondition("ready")
			for !v.announced {
				if err := c.Await(ctx); err != nil {
					require.ErrorIs(v, err, reentrant.ErrLost)
					require.ErrorIs(v, l.Unlock(ctx), reentrant.ErrLost)
					require.NoError(v, l.Lock(ctx))
				}
			}
			_ = l.Unlock(ctx) // this may happen under a forged grant
		})
	}
}

func (v *victim) isServed() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.served
}

// victimNames are the names that forged messages are about.
var victimNames = []string{"held", "fixed", "moves", "cohort", "lingers", "reads", "wanted reads", "writes", "permits",
	"waited", "waited cohort", "waited rw", "waited permits", "condition", "unused"}

// forge sends a message that is described by eight bytes. Its tokens are plausible, because the connection to Redis checks
// tokens.
func (v *victim) forge(x []byte) {
	ttls := []time.Duration{time.Millisecond, time.Second, grantTTL, grantTTL + time.Second, victimLease, 1e11 * time.Millisecond}
	m := protocol.Message{
		Kind: protocol.MessageKind(x[0] % 6), Name: victimNames[int(x[1])%len(victimNames)], Epoch: uint64(x[2] % 16),
		TTL: ttls[int(x[3])%len(ttls)], At: time.Duration(int8(x[4])) * 10 * time.Millisecond,
		Units: []int{0, 1, 2, 3, 4, backend.AllUnits}[x[5]%6], May: []int{0, 1, 2, backend.Unlimited}[x[5]/6%4], Placed: x[5] >= 128,
		First: backend.Token(2 * x[6]), Last: backend.Token(2*x[6] + x[7]%4),
	}
	if x[2] >= 240 {
		m.Epoch = 1 << 50
	}
	to := v.one
	if x[7] >= 128 {
		to = v.cohort
	}
	v.b.Publish(to.ID(), m)
	if x[7]%8 == 7 {
		time.Sleep(time.Duration(x[6]) * 10 * time.Millisecond)
	}
	synctest.Wait()
}

// check asserts that the real holds still exist, and are trusted for no longer than their leases.
func (v *victim) check() {
	for _, h := range v.holds {
		select {
		case <-h.lost:
			require.Fail(v, "a message ended a hold", h.name)
		default:
		}
		if h.trusted == nil {
			continue
		}
		until, err := h.trusted()
		require.NoError(v, err, h.name)
		require.Less(v, time.Until(until), h.lease, h.name)
	}
}

// finish releases what the others wait for, and requires that they get it.
func (v *victim) finish() {
	for _, h := range v.holds {
		require.NoError(v, h.verify(), h.name)
	}
	l := v.cohort.NewLock("lingers")
	require.NoError(v, l.Lock(v.Context()))
	require.NoError(v, l.Verify(v.Context()), "lingers")
	require.NoError(v, l.Unlock(v.Context()))

	time.Sleep(grantTTL) // holds that come from forged grants end
	v.mu.Lock()
	v.served = true
	v.mu.Unlock()
	for _, release := range v.releases {
		require.NoError(v, release())
	}
	for _, h := range v.holds {
		require.NoError(v, h.release(), h.name)
	}
	l = v.theirs.NewLock("condition")
	require.NoError(v, l.Lock(v.Context()))
	v.announced = true
	require.NoError(v, l.NewCondition("ready").SignalAll(v.Context()))
	require.NoError(v, l.Unlock(v.Context()))
	all := make(chan struct{})
	go func() {
		v.waiters.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-time.After(time.Minute):
		require.Fail(v, "a waiter did not get the lock", "%v", v.one)
	}
	require.NoError(v, v.cohort.Close(v.Context()))
	time.Sleep(time.Minute)
	for _, name := range victimNames {
		assert.Empty(v, v.b.Left(name), name)
	}
}

// runForged sends the messages that x describes.
func runForged(t *testing.T, x []byte) {
	synctest.Test(t, func(t *testing.T) {
		v := newVictim(t)
		for ; len(x) >= 8; x = x[8:] {
			v.forge(x[:8])
			v.check()
		}
		v.finish()
	})
}

// FuzzForgedMessages checks that messages alone never end a hold, lengthen the trust in one, or keep a waiter from what
// it waits for. A forged grant is trusted for a tenth of the TTL that the session asked for.
func FuzzForgedMessages(f *testing.F) {
	const most = 100 // the number of messages; longer inputs find nothing that shorter ones would not
	for kind := range byte(6) {
		for name := range byte(len(victimNames)) {
			for terms := byte(0); terms < 6; terms += byte(testsize.Of(1, 3)) { // a TTL, and units
				if terms > 0 && (kind == byte(protocol.Signalled) || kind == byte(protocol.Wanted) || kind == byte(protocol.Taken)) {
					break
				}
				var x []byte
				for epoch := range byte(16) {
					for _, to := range []byte{0, 128} {
						x = append(x, kind, name, epoch, terms, 0, 2+terms%2+epoch%2, 1, to)
						x = append(x, kind, name, epoch, 2, 0, terms, 1, to)
					}
				}
				f.Add(x)
			}
		}
	}
	f.Fuzz(func(t *testing.T, x []byte) { runForged(t, x[:min(len(x), 8*most)]) })
}

// TestForgedMessagesEndNoHoldAndLengthenNone makes the checks of FuzzForgedMessages on random messages in every test run.
func TestForgedMessagesEndNoHoldAndLengthenNone(t *testing.T) {
	for range testsize.Of(2000, 60) {
		seed := rand.Uint64()
		rnd := rand.New(rand.NewPCG(seed, 0))
		x := make([]byte, 8*(1+rnd.IntN(60)))
		for i := range x {
			x[i] = byte(rnd.Uint32())
		}
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { runForged(t, x) }) {
			return
		}
	}
}
