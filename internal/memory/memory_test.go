package memory_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
)

// backendtest tests the protocol. Tests here are about what it cannot see: faults, clocks, traces.

// A session is a session on one lock, as these tests use it.
type session struct {
	t *testing.T
	backend.Remote
	conn    backend.Conn
	grants  chan backend.Grant
	resumes chan struct{}
}

func (s *session) Granted(g backend.Grant)        { s.grants <- g }
func (s *session) Signalled(string, uint64, bool) {}
func (s *session) Wanted(string, uint64)          {}
func (s *session) Taken(string, uint64)           {}

func (s *session) Reconnected() { s.resumes <- struct{}{} }

// connect opens a session on lock L.
func connect(t *testing.T, server *memory.Backend, id string) *session {
	t.Helper()
	s := &session{t: t, grants: make(chan backend.Grant, 10), resumes: make(chan struct{}, 10)}
	conn, err := server.Connect(t.Context(), id, s)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	s.conn = conn
	s.Remote, err = conn.Bind("L")
	require.NoError(t, err)
	return s
}

// request makes an attempt that queues.
func request(epoch uint64) backend.AcquireRequest {
	return backend.AcquireRequest{
		Epoch: epoch, Owner: "7", Holds: 1, Lease: 10 * time.Second, NotAfter: time.Now().Add(time.Second), Queue: true,
		Tokens: 1, Patience: time.Minute, GrantTTL: 3 * time.Second,
	}
}

// acquire sends a copy of an attempt and waits a second for its reply.
func (s *session) acquire(epoch uint64) (backend.AcquireReply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return s.Acquire(ctx, request(epoch))
}

func (s *session) take(epoch uint64) backend.Token {
	s.t.Helper()
	reply, err := s.acquire(epoch)
	require.NoError(s.t, err)
	require.Equal(s.t, backend.Granted, reply.Status)
	return reply.First
}

func (s *session) wait(epoch uint64) {
	s.t.Helper()
	reply, err := s.acquire(epoch)
	require.NoError(s.t, err)
	require.Equal(s.t, backend.Waiting, reply.Status)
}

func (s *session) release(epoch uint64) backend.ReleaseResult {
	s.t.Helper()
	result, err := s.Release(context.Background(), backend.ReleaseRequest{Epoch: epoch})
	require.NoError(s.t, err)
	return result
}

func (s *session) locked() bool {
	s.t.Helper()
	st, err := s.Inspect(context.Background())
	require.NoError(s.t, err)
	return st.Locked
}

// unknown, refused and unsent require the three kinds of errors.
func unknown(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	require.True(t, backend.OutcomeUnknown(err), "%v", err)
	require.False(t, backend.Refused(err), "%v", err)
}

func refused(t *testing.T, err error, words string) {
	t.Helper()
	require.ErrorContains(t, err, words)
	require.True(t, backend.Refused(err), "%v", err)
	require.False(t, backend.OutcomeUnknown(err), "%v", err)
}

func unsent(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	require.False(t, backend.Refused(err), "%v", err)
	require.False(t, backend.OutcomeUnknown(err), "%v", err)
}

// bubble runs a test in virtual time, with a server of its own.
func bubble(f func(t *testing.T, server *memory.Backend)) func(t *testing.T) {
	return func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, memory.New()) })
	}
}

func TestTheTraceHasEveryCommandAndMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var story []string
		server := memory.New(memory.WithTrace(func(line string) { story = append(story, line) }))
		a := connect(t, server, "3f2b-random")
		b := connect(t, server, "91c0-random")
		a.take(1)
		b.wait(1)
		_, err := a.Reenter(t.Context(), backend.ReenterRequest{Epoch: 1, Owner: "7", Op: 1, Holds: 2})
		require.NoError(t, err)
		a.conn.Renew(t.Context(), []backend.Renewal{{Remote: a.Remote, Epoch: 1, Lease: time.Second}, {Remote: a.Remote, Epoch: 9}})
		server.SetFault(memory.Script(memory.Release, memory.LoseReply))
		_, err = a.Release(t.Context(), backend.ReleaseRequest{Epoch: 1})
		unknown(t, err)
		require.Equal(t, backend.Nothing, a.release(1))
		server.SetFault(memory.Script(memory.Force, memory.Refuse("NOPERM")))
		_, err = a.ForceUnlock(t.Context(), time.Now().Add(time.Minute))
		refused(t, err, "NOPERM")
		time.Sleep(3500 * time.Millisecond)
		a.take(2)
		a.release(2)
		server.Flush()
		require.Equal(t, []string{
			"connect A",
			"connect B",
			"acquire A L e1 owner=7 → granted 1",
			"acquire B L e1 owner=7 → waiting 10s",
			"reenter A L e1 op=1 holds=2 → 2",
			"renew A L e1 → renewed, L e9 → gone",
			"release A L e1 → released (reply lost)",
			"grant B L e1 2",
			"release A L e1 → nothing",
			"force A L → refused: NOPERM",
			"acquire A L e2 owner=7 → granted 3500000",
			"release A L e2 → released",
			"flush",
		}, story)
		require.Equal(t, 3, server.Count(memory.Acquire))
		require.Equal(t, 1, server.Count(memory.Push))
		require.Equal(t, 9, server.Commands())
	})
}

func TestNamesOfSessionsAreInTheOrderOfConnecting(t *testing.T) {
	server := memory.New()
	require.Equal(t, "A", server.Name("6a1f"))
	require.Equal(t, "C", server.Name("C"))
	require.Equal(t, "B", server.Name("77e0"))
	require.Equal(t, "D", server.Name("0b3d"))
	require.Equal(t, "A", server.Name("6a1f"))
}

// A test with this backend fails for a name that Redis's backend would refuse.
func TestNamesThatRedisbackendRefusesAreRefused(t *testing.T) {
	bubble(func(t *testing.T, server *memory.Backend) {
		conn := connect(t, server, "A").conn
		for name, want := range map[string]string{
			"": "empty", "{}": "braces", "a}": "braces", "relock:a": "reserved", strings.Repeat("x", 4097): "4097 bytes",
		} {
			_, err := conn.Bind(name)
			require.ErrorContains(t, err, want, "%q", name)
		}
		for _, name := range []string{"{a}", "{a}b}", "a{", strings.Repeat("x", 4096)} {
			_, err := conn.Bind(name)
			require.NoError(t, err, "%q", name)
		}
	})(t)
}

func TestLostCommand(t *testing.T) {
	bubble(func(t *testing.T, server *memory.Backend) {
		a := connect(t, server, "A")
		server.SetFault(memory.Script(memory.Acquire, memory.Lose))
		_, err := a.acquire(1)
		unsent(t, err)
		require.False(t, a.locked())
		a.take(1)
	})(t)
}

func TestLostReply(t *testing.T) {
	bubble(func(t *testing.T, server *memory.Backend) {
		a := connect(t, server, "A")
		server.SetFault(memory.Script(memory.Acquire, memory.LoseReply))
		_, err := a.acquire(1)
		unknown(t, err)
		require.True(t, a.locked())
		a.take(1)
	})(t)
}

func TestRefusal(t *testing.T) {
	bubble(func(t *testing.T, server *memory.Backend) {
		server.SetFault(memory.Script(memory.Connect, memory.Refuse("WRONGPASS")))
		_, err := server.Connect(t.Context(), "A", nil)
		refused(t, err, "WRONGPASS")
		a := connect(t, server, "A")
		server.SetFault(memory.Script(memory.Renew, memory.Refuse("NOPERM")))
		a.take(1)
		batch := []backend.Renewal{{Remote: a.Remote, Epoch: 1, Lease: time.Minute}}
		a.conn.Renew(t.Context(), batch)
		refused(t, batch[0].Err, "NOPERM")
		require.False(t, batch[0].Gone)
	})(t)
}

// A deadline counts even if the context does not end at it: sessions save the timer.
type deadlineOnly struct {
	context.Context
	deadline time.Time
}

func (d deadlineOnly) Deadline() (time.Time, bool) { return d.deadline, true }

func TestLateCommandIsExecutedAfterItsCallerLeft(t *testing.T) {
	contexts := map[string]func() context.Context{
		"deadline": func() context.Context {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			context.AfterFunc(ctx, cancel)
			return ctx
		},
		"cancel": func() context.Context {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(time.Second, cancel)
			return ctx
		},
		"deadline without end": func() context.Context {
			return deadlineOnly{context.Background(), time.Now().Add(time.Second)}
		},
	}
	for name, newContext := range contexts {
		t.Run(name, bubble(func(t *testing.T, server *memory.Backend) {
			a := connect(t, server, "A")
			a.take(1)
			server.SetFault(memory.Script(memory.Release, memory.Delay(3*time.Second)))
			sent := time.Now()
			_, err := a.Release(newContext(), backend.ReleaseRequest{Epoch: 1})
			unknown(t, err)
			require.Equal(t, time.Second, time.Since(sent))
			require.True(t, a.locked())
			time.Sleep(2 * time.Second)
			synctest.Wait()
			require.False(t, a.locked())
		}))
	}
}

func TestLateAttemptIsRefusedAfterNotAfter(t *testing.T) {
	bubble(func(t *testing.T, server *memory.Backend) {
		a := connect(t, server, "A")
		server.SetFault(memory.Script(memory.Acquire, memory.Delay(2*time.Second)))
		_, err := a.acquire(1)
		unknown(t, err)
		time.Sleep(3 * time.Second)
		require.Equal(t, 1, server.Count(memory.Acquire))
		require.False(t, a.locked())
	})(t)
}

func TestLateReply(t *testing.T) {
	bubble(func(t *testing.T, server *memory.Backend) {
		a := connect(t, server, "A")
		server.SetFault(memory.Script(memory.Acquire, memory.DelayReply(500*time.Millisecond), memory.DelayReply(2*time.Second)))
		sent := time.Now()
		a.take(1)
		require.Equal(t, 500*time.Millisecond, time.Since(sent))
		_, err := a.acquire(2)
		unknown(t, err)
		a.take(2)
	})(t)
}

func TestDuplicateIsExecutedTwice(t *testing.T) {
	bubble(func(t *testing.T, server *memory.Backend) {
		a := connect(t, server, "A")
		server.SetFault(memory.Script(memory.Acquire, memory.Duplicate(100*time.Millisecond)))
		a.take(1)
		require.Equal(t, 1, server.Count(memory.Acquire))
		time.Sleep(200 * time.Millisecond)
		require.Equal(t, 2, server.Count(memory.Acquire))
	})(t)
}

func TestFaultIsAskedByName(t *testing.T) {
	bubble(func(t *testing.T, server *memory.Backend) {
		var asked []memory.Op
		server.SetFault(func(op memory.Op) memory.Verdict {
			asked = append(asked, op)
			return memory.Pass
		})
		a := connect(t, server, "1d7f")
		b := connect(t, server, "882a")
		a.take(4)
		b.wait(4)
		b.wait(4)
		a.release(4)
		synctest.Wait()
		require.Equal(t, []memory.Op{
			{Session: "A", Verb: memory.Connect, Try: 1},
			{Session: "B", Verb: memory.Connect, Try: 1},
			{Session: "A", Verb: memory.Acquire, Lock: "L", Epoch: 4, Try: 1},
			{Session: "B", Verb: memory.Acquire, Lock: "L", Epoch: 4, Try: 1},
			{Session: "B", Verb: memory.Acquire, Lock: "L", Epoch: 4, Try: 2},
			{Session: "A", Verb: memory.Release, Lock: "L", Epoch: 4, Try: 1},
			{Session: "B", Verb: memory.Push, Lock: "L", Epoch: 4, Try: 1},
		}, asked)
	})(t)
}

// pushed grants a lock to B by a message, and returns the time.
func pushed(a, b *session, epoch uint64) time.Time {
	a.t.Helper()
	a.take(epoch)
	b.wait(epoch)
	a.release(epoch)
	return time.Now()
}

func TestPushIsExactAboutItsMoment(t *testing.T) {
	bubble(func(t *testing.T, server *memory.Backend) {
		a, b := connect(t, server, "A"), connect(t, server, "B")
		server.SetFault(memory.Script(memory.Push, memory.Delay(time.Second)))
		granted := pushed(a, b, 1)
		g := <-b.grants
		require.Equal(t, time.Second, time.Since(granted))
		require.True(t, granted.Equal(g.NotBefore), "%v", granted.Sub(g.NotBefore))
		require.Equal(t, 3*time.Second, g.TTL)
	})(t)
}

func TestPushIsLost(t *testing.T) {
	bubble(func(t *testing.T, server *memory.Backend) {
		a, b := connect(t, server, "A"), connect(t, server, "B")
		server.SetFault(memory.Script(memory.Push, memory.Lose))
		pushed(a, b, 1)
		time.Sleep(time.Second)
		require.Empty(t, b.grants)
		b.take(1)
	})(t)
}

func TestPushesAreDoubledAndOvertakeEachOther(t *testing.T) {
	bubble(func(t *testing.T, server *memory.Backend) {
		a, b := connect(t, server, "A"), connect(t, server, "B")
		server.SetFault(memory.Script(memory.Push, memory.Delay(time.Second), memory.Duplicate(5*time.Second)))
		for epoch := range uint64(2) {
			pushed(a, b, epoch+1)
			b.release(epoch + 1)
		}
		for _, epoch := range []uint64{2, 1, 2} {
			require.Equal(t, epoch, (<-b.grants).Epoch)
		}
	})(t)
}

func TestPartition(t *testing.T) {
	bubble(func(t *testing.T, server *memory.Backend) {
		a, b := connect(t, server, "4411"), connect(t, server, "70ff")
		a.take(1)
		b.wait(1)
		server.Partition("B", true)
		a.release(1) // messages to B are lost
		sent := time.Now()
		_, err := b.acquire(1)
		unknown(t, err)
		require.Equal(t, time.Second, time.Since(sent))
		require.Equal(t, 2, server.Count(memory.Acquire), "the command did not arrive")
		server.Partition("B", false)
		<-b.resumes
		require.Empty(t, b.grants)
		b.take(1)
		require.Empty(t, a.resumes)
	})(t)
}

func TestPartitionThatHealsEndsTheCommandsThatWait(t *testing.T) {
	bubble(func(t *testing.T, server *memory.Backend) {
		a := connect(t, server, "A")
		server.Partition("A", true)
		time.AfterFunc(300*time.Millisecond, func() { server.Partition("A", false) })
		sent := time.Now()
		_, err := a.acquire(1)
		unknown(t, err)
		require.Equal(t, 300*time.Millisecond, time.Since(sent))
		require.False(t, a.locked())
	})(t)
}

func TestRestart(t *testing.T) {
	bubble(func(t *testing.T, server *memory.Backend) {
		a, b := connect(t, server, "A"), connect(t, server, "B")
		a.take(1)
		b.wait(1)
		server.SetFault(memory.Script(memory.Push, memory.Delay(time.Second)))
		a.release(1)
		synctest.Wait()
		time.AfterFunc(500*time.Millisecond, server.Restart)
		server.SetFault(memory.Script(memory.Inspect, memory.DelayReply(time.Minute)))
		_, err := a.Inspect(t.Context())
		unknown(t, err)
		<-a.resumes
		<-b.resumes
		time.Sleep(time.Second)
		require.Empty(t, b.grants, "a message from before the restart")
		b.take(1) // the locks stay
	})(t)
}

func TestGrantAfterARestartIsNotDated(t *testing.T) {
	bubble(func(t *testing.T, server *memory.Backend) {
		a, b := connect(t, server, "A"), connect(t, server, "B")
		a.take(1)
		b.wait(1)
		server.Restart() // after a restart the connection may lead to another server
		a.release(1)
		require.Zero(t, (<-b.grants).NotBefore)
		b.take(1)
		b.release(1)
		pushed(a, b, 2)
		require.NotZero(t, (<-b.grants).NotBefore)
	})(t)
}

func TestFlushForgetsAndTokensRise(t *testing.T) {
	bubble(func(t *testing.T, server *memory.Backend) {
		a, b := connect(t, server, "A"), connect(t, server, "B")
		before := a.take(1)
		b.wait(1)
		time.Sleep(time.Millisecond)
		server.Flush()
		require.False(t, a.locked())
		require.Equal(t, backend.Nothing, a.release(1))
		require.Greater(t, b.take(1), before)
	})(t)
}

// When the server's clock jumps, leases end. Sessions notice the jump and go on.
func TestClockJumpsForward(t *testing.T) {
	bubble(func(t *testing.T, server *memory.Backend) {
		a, b := connect(t, server, "A"), connect(t, server, "B")
		a.take(1)
		server.SetSkew(time.Hour)
		b.take(1) // by the time that B knows, this copy is late
		require.Equal(t, 3, server.Count(memory.Acquire), "the copy was sent again")
		a.wait(2)
		b.release(1)
		require.True(t, (<-a.grants).NotBefore.Equal(time.Now()))
		a.release(2)

		b.take(2)
		a.wait(3)
		server.SetSkew(time.Hour + 5*time.Second)
		b.release(2)
		require.Zero(t, (<-a.grants).NotBefore, "by A's clock the grant was made in the future")
	})(t)
}

func TestClockJumpsBackward(t *testing.T) {
	bubble(func(t *testing.T, server *memory.Backend) {
		a, b := connect(t, server, "A"), connect(t, server, "B")
		a.take(1)
		b.wait(1)
		server.SetSkew(-time.Minute)
		a.release(1)
		g := <-b.grants
		require.Equal(t, time.Minute, time.Since(g.NotBefore), "a NotBefore that is too early is safe: the grant is not trusted")
		b.take(1)
	})(t)
}

// If a place is given up while the lock is free, the next session gets the lock.
func TestWithdrawalHandsAFreeLockOn(t *testing.T) {
	bubble(func(t *testing.T, server *memory.Backend) {
		a, b, c := connect(t, server, "A"), connect(t, server, "B"), connect(t, server, "C")
		a.take(1)
		b.wait(1)
		c.wait(1)
		time.Sleep(11 * time.Second)
		require.False(t, a.locked())
		require.Equal(t, backend.Withdrawn, b.release(1))
		require.EqualValues(t, 1, (<-c.grants).Epoch)
	})(t)
}

// A token that is ahead of the clock is remembered until the clock has passed it.
func TestTokensThatRanAheadAreKept(t *testing.T) {
	bubble(func(t *testing.T, server *memory.Backend) {
		a, b := connect(t, server, "A"), connect(t, server, "B")
		req := request(1)
		req.Seen = backend.Token((10 * time.Hour).Microseconds())
		block, err := a.Acquire(t.Context(), req)
		require.NoError(t, err)
		a.release(1)
		time.Sleep(9 * time.Hour)
		require.Greater(t, b.take(1), block.Last)
	})(t)
}

func TestClosedConnSendsNothing(t *testing.T) {
	bubble(func(t *testing.T, server *memory.Backend) {
		a := connect(t, server, "A")
		require.NoError(t, a.conn.Close())
		_, err := a.acquire(1)
		unsent(t, err)
		require.Zero(t, server.Count(memory.Acquire))
	})(t)
}

func TestCommandOfAnEndedContextIsNotSent(t *testing.T) {
	bubble(func(t *testing.T, server *memory.Backend) {
		a := connect(t, server, "A")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := a.Acquire(ctx, request(1))
		require.ErrorIs(t, err, context.Canceled)
		unsent(t, err)
		_, err = a.Acquire(deadlineOnly{context.Background(), time.Now()}, request(1))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		unsent(t, err)
	})(t)
}
