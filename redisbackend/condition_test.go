package redisbackend_test

import (
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend"
)

// The conformance suite cannot see the keys, so this test looks at them. All keys of a condition expire, but not while a
// session beats for a waiter. The keys are deleted with the last waiter.
func TestConditionsLeaveNoKeysAndLetThemExpire(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		m := s.join("a")
		m.take(1)
		status, err := m.conditions().Await(s.ctx(), backend.AwaitRequest{Condition: "ready", Epoch: 1, Ticket: 2, Owner: "o\x00 1",
			Holds: 3, Patience: patience, GrantTTL: grantTTL})
		require.NoError(s, err)
		require.Equal(s, backend.Waited, status)
		rest := "5:ready:" + s.name
		lasts := func(kinds ...string) {
			for _, kind := range kinds {
				key := "relock:{" + s.name + "}:" + kind + ":" + rest
				assert.Positive(s, must(s.do("TTL", key).ToInt64()), "%s expires", kind)
				s.run("EXPIRE", key, "60")
			}
			_, err := m.conditions().Beat(s.ctx(), "ready", []uint64{2}, nil)
			require.NoError(s, err)
			for _, kind := range kinds {
				ttl := must(s.do("TTL", "relock:{"+s.name+"}:"+kind+":"+rest).ToInt64())
				assert.Greater(s, ttl, int64(200), "%s lasts while its session beats", kind)
			}
		}
		lasts("c", "h")
		other := s.join("b")
		other.take(1)
		_, err = other.conditions().Signal(s.ctx(), backend.SignalRequest{Condition: "ready", Epoch: 1, Op: 1})
		require.NoError(s, err)
		select {
		case got := <-m.signals:
			assert.Equal(s, signal{2, true}, got)
		case <-time.After(silence):
			s.Fatal("no signal arrived")
		}
		lasts("s", "h")
		other.release(1)
		assert.Equal(s, "3", must(s.do("HGET", s.name, "a:o\x00 1").ToString()), "the owner's name is unchanged, whatever bytes it has")
		_, err = m.conditions().Beat(s.ctx(), "ready", nil, []uint64{2})
		require.NoError(s, err)
		for _, kind := range []string{"c", "s", "h"} {
			n, err := s.do("EXISTS", "relock:{"+s.name+"}:"+kind+":"+rest).ToInt64()
			require.NoError(s, err)
			assert.Zero(s, n, "%s is deleted", kind)
		}
	})
}

// awaits takes the lock and exchanges it for a ticket whose epoch is one higher.
func (m *member) awaits(epoch uint64) {
	m.Helper()
	m.take(epoch)
	status, err := m.conditions().Await(m.ctx(), backend.AwaitRequest{Condition: "ready", Epoch: epoch, Ticket: epoch + 1, Owner: "o",
		Holds: 1, Patience: patience, GrantTTL: grantTTL})
	require.NoError(m, err)
	require.Equal(m, backend.Waited, status)
}

func (m *member) signal(epoch, op uint64) {
	m.Helper()
	_, err := m.conditions().Signal(m.ctx(), backend.SignalRequest{Condition: "ready", Epoch: epoch, Op: op})
	require.NoError(m, err)
}

// status sends a beat for a waiter's ticket, and returns the ticket's status.
func (m *member) status(ticket uint64) backend.TicketStatus {
	m.Helper()
	status, err := m.conditions().Beat(m.ctx(), "ready", []uint64{ticket}, nil)
	require.NoError(m, err)
	return status[0]
}

// late changes Redis's data as if a waiter had not acknowledged its signal in time.
func (m *member) late(ticket uint64) {
	m.Helper()
	m.run("ZADD", "relock:{"+m.name+"}:s:5:ready:"+m.name, "XX", "1", m.id+":"+text(int64(ticket)))
}

// A signal has woken its waiter if the waiter acknowledges it before another waiter gets it, even if that is too late. Then the
// signal goes to no other waiter.
func TestASignalThatIsAcknowledgedLateGoesToNoOther(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b, c := s.join("a"), s.join("b"), s.join("c")
		a.awaits(1)
		c.awaits(1)
		b.take(1)
		b.signal(1, 1)
		a.late(2)
		_, err := a.conditions().Beat(s.ctx(), "ready", nil, []uint64{2})
		require.NoError(t, err)
		assert.Equal(t, backend.Waited, c.status(2))
	})
}

// The next signal takes a signal back that was not acknowledged, and gives it to another waiter. This needs no heartbeat.
func TestASignalThatIsNotAcknowledgedGoesOnWithTheNext(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		for _, s := range []*site{s, s.withoutScripts()} {
			a, b, c, d := s.join("a"), s.join("b"), s.join("c"), s.join("d")
			for _, m := range []*member{a, c, d} {
				m.awaits(1)
			}
			b.take(1)
			b.signal(1, 1)
			a.late(2)
			b.signal(1, 2)
			assert.Equal(t, backend.Signalled, d.status(2))
			assert.Equal(t, backend.Signalled, c.status(2))
			s.run("FLUSHALL")
		}
	})
}

// When a process is killed, the kernel closes its connections, and Redis notices that at once. So other waiters need not wait
// until the patience with the process is over. The process keeps its place, since it may only be reconnecting, and gets a
// signal when no other waiter is left.
func TestASignalPassesOverAProcessThatWasKilled(t *testing.T) {
	s := realRedis(t)
	var killed, alive process
	first, second, signaller := s.joinVia(killed.open(s), "killed"), s.joinVia(alive.open(s), "alive"), s.join("signaller")
	first.awaits(1)
	second.awaits(1)
	killed.kill()
	s.eventually(func() bool {
		n, err := s.do("PUBSUB", "NUMSUB", "relock:session:killed").AsIntMap()
		return err == nil && n["relock:session:killed"] == 0
	}, "Redis has noticed that the connections are closed")
	signaller.take(1)
	signaller.signal(1, 1)
	require.Equal(t, []string{"alive:2"}, s.signalled())
	require.Equal(t, signal{2, true}, await(t, second.signals, "the other waiter is signalled"))
	signaller.signal(1, 2)
	assert.Equal(t, []string{"alive:2", "killed:2"}, s.signalled(), "the signal is not lost")
}

// signalled returns the waiters for "ready" that have a signal which they have not acknowledged yet.
func (s *site) signalled() []string {
	s.Helper()
	return must(s.do("ZRANGE", "relock:{"+s.name+"}:s:5:ready:"+s.name, "0", "-1").AsStrSlice())
}

// A process owns the connections of a client. kill closes them, and from then on the client can open no new ones.
type process struct {
	mu     sync.Mutex
	killed bool
	conns  []net.Conn
}

// open makes the process's backend.
func (p *process) open(s *site) *redisbackend.Backend {
	client := connect(s, redisserverAddr(s), func(o *rueidis.ClientOption) { o.DialCtxFn = p.dial })
	b, err := redisbackend.New(client)
	require.NoError(s, err)
	return b
}

func (p *process) dial(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed {
		return nil, net.ErrClosed
	}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err == nil {
		p.conns = append(p.conns, conn)
	}
	return conn, err
}

func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = true
	for _, c := range p.conns {
		_ = c.Close()
	}
}

// BenchmarkBeat measures what one heartbeat for all of a session's waiters for a condition costs Redis. Redis serves no other
// client while a script runs, so package reentrant limits the number of tickets in one command.
func BenchmarkBeat(b *testing.B) {
	for _, n := range []int{1, 500, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			remote, tickets := newBench(b), make([]uint64, n)
			for i := range tickets {
				require.NoError(b, remote.lock())
				tickets[i] = remote.req.Epoch + 1
				_, err := remote.remote.(backend.Conditions).Await(remote.ctx, backend.AwaitRequest{Condition: "ready", Epoch: remote.req.Epoch,
					Ticket: tickets[i], Owner: "o", Holds: 1, Patience: time.Hour, GrantTTL: time.Minute})
				require.NoError(b, err)
				remote.req.Epoch++
			}
			for b.Loop() {
				_, err := remote.remote.(backend.Conditions).Beat(remote.ctx, "ready", tickets, nil)
				require.NoError(b, err)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/ticket")
		})
	}
}

// Redis runs nothing else during a script, so one script wakes at most a hundred waiters, however many there are.
func TestSignalAllIsBoundedForRedis(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		const waiters = 250
		a, b := s.join("a"), s.join("b")
		for epoch := uint64(1); epoch < 2*waiters; epoch += 2 {
			a.take(epoch)
			_, err := a.conditions().Await(s.ctx(), backend.AwaitRequest{Condition: "ready", Epoch: epoch, Ticket: epoch + 1, Owner: "1",
				Holds: 1, Patience: time.Hour, GrantTTL: grantTTL}) // so long that all waiters still live at the end
			require.NoError(t, err)
		}
		b.take(1)
		told := int64(0)
		for op, left := range []int64{150, 50, 0} {
			reply, err := b.conditions().Signal(s.ctx(), backend.SignalRequest{Condition: "ready", Epoch: 1, Op: uint64(op) + 1, All: true})
			require.NoError(t, err)
			assert.Equal(t, left > 0, reply.More)
			got, err := s.do("ZCARD", "relock:{"+s.name+"}:c:5:ready:"+s.name).ToInt64()
			require.NoError(t, err)
			assert.Equal(t, left, got)
			for ; told < waiters-left; told++ {
				<-a.signals
			}
		}
	})
}
