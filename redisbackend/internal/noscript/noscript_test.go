package noscript

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend/internal/clock"
	"github.com/relock-go/relock/redisbackend/internal/push"
	"github.com/relock-go/relock/redisbackend/internal/single"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// quiet is a sink that ignores everything.
type quiet struct{ backend.Sink }

func (quiet) Reconnected() {}

// plainOn makes a lock without scripts, on a server of its own.
func plainOn(t *testing.T) (noscript, *redisserver.Server) {
	remote, server := remoteOn(t, func(d *single.Deployment) { d.Verbs = Verbs{} })
	return remote.(noscript), server
}

// remoteOn makes a lock on a server of its own.
func remoteOn(t *testing.T, set func(*single.Deployment)) (backend.Remote, *redisserver.Server) {
	server := redisserver.Start(t)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	d := single.NewDeployment(client)
	set(&d)
	require.NoError(t, d.Complete())
	conn, err := single.Connect(t.Context(), &d, "s", quiet{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	remote, err := conn.Bind("lock")
	require.NoError(t, err)
	return remote, server
}

// command sends the server a command over another connection.
func command(t *testing.T, server *redisserver.Server, words ...string) {
	_, err := server.Command(words...)
	require.NoError(t, err)
}

// A state that was read by several commands may mix values from before and after a change. Such a state is not used, even if
// there is nothing to write.
func TestPlainNeverMixesTwoStates(t *testing.T) {
	r, server := plainOn(t)
	var tokens []backend.Token
	err := r.transact(t.Context(), lockOnly, func(_ protocol.Instant, l *protocol.Lock) {
		if tokens = append(tokens, l.Record.Last); len(tokens) == 1 {
			command(t, server, "SET", r.Keys[1], "7 7 other 1 0 h 300")
		}
	})
	require.NoError(t, err)
	assert.Equal(t, []backend.Token{0, 7}, tokens)
}

// A script that stopped half-way leaves the fields of two sessions in the hash. The record shows which of the two has the lock.
// When another session gets the lock, even by a transaction, both fields are deleted.
func TestPlainKnowsTheHolderOfTwoFields(t *testing.T) {
	r, _ := plainOn(t)
	client, release, err := push.Dedicate(t.Context(), r.Conn.Deployment.Client)
	require.NoError(t, err)
	defer release()
	for range 20 { // the fields come in any order
		for next, gone := range map[string][]string{"c": {"a:1", "b:1"}, "a": {"b:1"}} {
			s := snapshot{keys: r.Keys, now: time.Hour}
			s.lock.Record.Session = "b"
			require.NoError(t, s.parseHold(map[string]string{"a:1": "1", "b:1": "2"}, 1000))
			require.Equal(t, protocol.Hold{Session: "b", Owner: "1", Count: 2, Expires: time.Hour + time.Second}, s.lock.Hold)
			s.lock.Hold.Session = next
			commands := s.holdChanges(client)
			require.Len(t, commands, 2)
			require.Equal(t, []string{"HSET", "lock", next + ":1", "2"}, commands[0].Commands())
			require.Equal(t, []string{"HDEL", "lock"}, commands[1].Commands()[:2])
			require.ElementsMatch(t, gone, commands[1].Commands()[2:])
		}
	}
}

// If one command of a transaction fails, Redis still runs the rest. The call then reports neither a success nor that certainly
// nothing was done.
func TestPlainReportsACommandThatFailsInATransaction(t *testing.T) {
	r, server := plainOn(t)
	client, release, err := push.Dedicate(t.Context(), r.Conn.Deployment.Client)
	require.NoError(t, err)
	defer release()
	command(t, server, "HSET", "hash", "field", "1")
	done, err := r.commit(t.Context(), client, rueidis.Commands{
		client.B().Set().Key("a").Value("1").Build(), client.B().Incr().Key("hash").Build(), client.B().Set().Key("b").Value("1").Build(),
	})
	assert.True(t, done)
	require.ErrorContains(t, err, "WRONGTYPE")
	assert.True(t, backend.OutcomeUnknown(err))
	n, err := server.Command("EXISTS", "a", "b")
	require.NoError(t, err)
	assert.Equal(t, "2", n)
}

// If Redis refuses to queue a command, the error says why, and nothing is written.
func TestPlainReportsWhyATransactionWasDiscarded(t *testing.T) {
	r, server := plainOn(t)
	for _, words := range []string{"READONLY", "OOM"} {
		err := r.transact(t.Context(), lockOnly, func(now protocol.Instant, l *protocol.Lock) {
			_, _ = l.Force(now, forever)
			l.Hold = protocol.Hold{Session: "s", Owner: "1", Count: 1, Expires: now + wire.MinKeep}
			if words == "OOM" {
				command(t, server, "CONFIG", "SET", "maxmemory", "1")
			} else {
				command(t, server, "REPLICAOF", "127.0.0.1", "1")
			}
		})
		command(t, server, "REPLICAOF", "NO", "ONE")
		command(t, server, "CONFIG", "SET", "maxmemory", "0")
		require.ErrorContains(t, err, words)
		assert.False(t, backend.Refused(err), "the caller may try again: %v", err)
		assert.False(t, backend.OutcomeUnknown(err), "%v", err)
		st, err := r.Inspect(t.Context())
		require.NoError(t, err)
		assert.False(t, st.Locked)
	}
}

// Without the right to MULTI, a user's transaction would become single commands that Redis runs one by one.
func TestPlainWithoutTheRightToTransactions(t *testing.T) {
	r, server := plainOn(t)
	command(t, server, "ACL", "SETUSER", "default", "-multi")
	_, err := single.Connect(t.Context(), r.Conn.Deployment, "t", quiet{})
	require.ErrorContains(t, err, "NOPERM")
	assert.True(t, backend.Refused(err), "the missing right is found before a lock is changed")
	assert.False(t, backend.OutcomeUnknown(err))
	_, err = r.ForceUnlock(t.Context(), time.Now().Add(time.Minute))
	require.ErrorContains(t, err, "NOPERM")
	assert.False(t, backend.OutcomeUnknown(err), "nothing was to be written")
	_, err = r.Release(t.Context(), backend.ReleaseRequest{Epoch: 1, Until: clock.Started.AddDate(1, 0, 0)})
	require.ErrorContains(t, err, "NOPERM")
	assert.True(t, backend.OutcomeUnknown(err))
}

// If the connection is lost between reading and writing, the next connection may lead to another server, with another clock.
func TestPlainForgetsTheClockOfALostConnection(t *testing.T) {
	for name, write := range map[string]bool{"writing": true, "looking": false} {
		t.Run(name, func(t *testing.T) {
			r, server := plainOn(t)
			_, err := r.Inspect(t.Context())
			require.NoError(t, err)
			require.True(t, r.Clock.Mapping.Known)
			err = r.transact(t.Context(), lockOnly, func(now protocol.Instant, l *protocol.Lock) {
				if write {
					l.Hold = protocol.Hold{Session: "s", Owner: "1", Count: 1, Expires: now + wire.MinKeep}
				}
				command(t, server, "CLIENT", "KILL", "TYPE", "normal")
			})
			require.Error(t, err)
			assert.Equal(t, write, backend.OutcomeUnknown(err), "%v", err)
			assert.False(t, backend.Refused(err))
			assert.False(t, r.Clock.Mapping.Known)
		})
	}
}

func TestAnAcquireForgetsTheClockOfAConnectionThatIsLostWhileReplicasAreWaitedFor(t *testing.T) {
	r, server := remoteOn(t, func(d *single.Deployment) { d.Replicas = single.Replicas{Count: 1, Timeout: time.Minute} }) // no replica is connected
	got := make(chan error, 1)
	go func() {
		_, err := r.Acquire(t.Context(), backend.AcquireRequest{Epoch: 1, Owner: "1", Holds: 1, Lease: time.Minute,
			Tokens: 1, NotAfter: time.Now().Add(time.Minute)})
		got <- err
	}()
	require.Eventually(t, func() bool {
		clients, err := server.Command("CLIENT", "LIST")
		return err == nil && strings.Contains(clients, "cmd=wait ")
	}, time.Minute, time.Millisecond, "the acquire waits for replicas")
	command(t, server, "CLIENT", "KILL", "TYPE", "normal")
	assert.True(t, backend.OutcomeUnknown(<-got))
	assert.False(t, r.(*single.Remote).Clock.Mapping.Known)
}

// If the context has a cause, errors.Is(err, ctx.Err()) still holds.
func TestAProbeEndsWithItsContext(t *testing.T) {
	r, _ := plainOn(t)
	c := &single.Conn{Deployment: r.Conn.Deployment, Session: "without-a-listener", Sink: quiet{}, Probed: make(chan string, 1)}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, errors.New("a reason"))
	defer cancel()
	require.ErrorIs(t, c.Probe(ctx), context.DeadlineExceeded)
}

// The keys of the queue are kept for the longest time that any waiter needs, whatever the waiter's place in the queue is.
func TestPlainKeepsTheQueueForAllThatWait(t *testing.T) {
	r, _ := plainOn(t)
	client, release, err := push.Dedicate(t.Context(), r.Conn.Deployment.Client)
	require.NoError(t, err)
	defer release()
	for _, keeps := range [][]time.Duration{{time.Hour, time.Minute}, {time.Minute, time.Hour}} {
		s := snapshot{keys: r.Keys}
		for i, keep := range keeps {
			s.lock.Queue = append(s.lock.Queue, protocol.Waiter{Session: string(rune('a' + i)), Keep: keep})
		}
		commands := s.queueChanges(client)
		for i, key := range []string{r.Keys[2], r.Keys[3]} {
			require.Equal(t, []string{"EXPIRE", key, "3600"}, commands[len(commands)-2+i].Commands())
		}
	}
}

// A meanwhile is a client that calls happens once, before the first command that is not part of a transaction.
type meanwhile struct {
	rueidis.Client
	happens func()
}

func (m *meanwhile) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if m.happens != nil {
		m.happens()
		m.happens = nil
	}
	return m.Client.Do(ctx, cmd)
}

// On a full server a PEXPIRE outside of the transaction extends the lease. If another session got the lock just before, the
// PEXPIRE has extended that session's lease, and the hold that was to be renewed is reported as gone.
func TestPlainReportsAHoldThatHasGoneMeanwhile(t *testing.T) {
	r, server := plainOn(t)
	got, err := r.Acquire(t.Context(), backend.AcquireRequest{Epoch: 1, Owner: "1", Holds: 1, Lease: time.Hour, Tokens: 1,
		NotAfter: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.Equal(t, backend.Granted, got.Status)
	w := &backend.Renewal{Remote: r, Epoch: 1, Lease: time.Hour}
	require.NoError(t, r.renewWhenFull(t.Context(), w))
	require.False(t, w.Gone)
	r.Conn.Deployment.Client = &meanwhile{r.Conn.Deployment.Client, func() {
		command(t, server, "DEL", "lock")
		command(t, server, "HSET", "lock", "other:1", "1")
		command(t, server, "PEXPIRE", "lock", "3600000")
		command(t, server, "SET", r.Keys[1], "7 7 other 1 0 h 3600", "EX", "3600")
	}}
	require.NoError(t, r.renewWhenFull(t.Context(), w))
	require.True(t, w.Gone)
}
