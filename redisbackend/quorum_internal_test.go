package redisbackend

import (
	"context"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/reentrant"
)

type deafSink struct{ reentrant.Sink }

func (deafSink) Granted(reentrant.Grant) {}
func (deafSink) Resumed()                {}

// bound is a lock over three nodes.
func bound(t *testing.T) (*quorumConn, *quorumRemote) {
	return boundTo(t, redisserver.Start(t), redisserver.Start(t), redisserver.Start(t))
}

func boundTo(t *testing.T, nodes ...*redisserver.Server) (*quorumConn, *quorumRemote) {
	var clients []rueidis.Client
	for _, node := range nodes {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{node.Addr()}, DisableCache: true})
		require.NoError(t, err)
		t.Cleanup(client.Close)
		clients = append(clients, client)
	}
	q, err := NewQuorum(clients)
	require.NoError(t, err)
	conn, err := q.Connect(t.Context(), "a", deafSink{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	remote, err := conn.Bind("lock")
	require.NoError(t, err)
	return conn.(*quorumConn), remote.(*quorumRemote)
}

func attempt(epoch uint64) reentrant.AcquireRequest {
	return reentrant.AcquireRequest{Epoch: epoch, Owner: "1", Holds: 1, Lease: time.Minute, Tokens: 1,
		NotAfter: time.Now().Add(10 * time.Second)}
}

// The job of an attempt at one node may be so late that the others have given the lock, and have it back, before it
// begins. What it would take then nobody would give back.
func TestQuorumNothingOfAnAttemptComesAfterItsRelease(t *testing.T) {
	t.Parallel()
	_, r := bound(t)
	late, req := r.places[2], attempt(1)
	v := r.newVote(t.Context(), &req)
	result, err := r.Release(t.Context(), reentrant.ReleaseRequest{Epoch: 1})
	require.NoError(t, err)
	require.Equal(t, reentrant.Nothing, result)
	late.turn <- struct{}{} // the release has been at this node too
	late.leave()

	close(v.counted)
	v.kept = true
	close(v.final)
	v.at(t.Context(), 2, late)
	answer := <-v.answers
	require.NoError(t, answer.err)
	require.Equal(t, reentrant.Stale, answer.value.Status)

	reply, err := r.Acquire(t.Context(), attempt(2))
	require.NoError(t, err)
	require.Equal(t, reentrant.Granted, reply.Status)
}

// A closed conn sends nothing, so nothing goes on when Close has returned.
func TestQuorumSendsNothingAfterClose(t *testing.T) {
	t.Parallel()
	conn, r := bound(t)
	require.NoError(t, conn.Close())
	ctx := context.Background()
	_, err := r.Acquire(ctx, attempt(1))
	require.ErrorContains(t, err, "closed")
	_, err = r.Release(ctx, reentrant.ReleaseRequest{Epoch: 1})
	require.ErrorContains(t, err, "closed")
	_, err = r.Reenter(ctx, reentrant.ReenterRequest{Epoch: 1, Holds: 2})
	require.ErrorContains(t, err, "closed")
	_, err = r.Inspect(ctx)
	require.ErrorContains(t, err, "closed")
	_, err = r.ForceUnlock(ctx)
	require.ErrorContains(t, err, "closed")
	renewals := []reentrant.Renewal{{Remote: r, Epoch: 1, Lease: time.Minute}}
	conn.Renew(ctx, renewals)
	require.ErrorContains(t, renewals[0].Err, "closed")
}

// Whatever is under way, and although a node hangs.
func TestQuorumNothingRunsAfterClose(t *testing.T) {
	t.Parallel()
	nodes := []*redisserver.Server{redisserver.Start(t), redisserver.Start(t), redisserver.Start(t)}
	conn, r := boundTo(t, nodes...)
	ours := func() string {
		var all strings.Builder
		require.NoError(t, pprof.Lookup("goroutine").WriteTo(&all, 1))
		var found []string
		for one := range strings.SplitSeq(all.String(), "\n\n") {
			if strings.Contains(one, `"quorum":"close"`) && strings.Contains(one, "redisbackend.(*quorum") {
				found = append(found, one)
			}
		}
		return strings.Join(found, "\n\n")
	}
	nodes[2].Freeze()
	// What is started in there bears the label.
	pprof.Do(t.Context(), pprof.Labels("quorum", "close"), func(ctx context.Context) {
		_, err := r.Acquire(ctx, attempt(1))
		require.NoError(t, err)
		conn.Renew(ctx, []reentrant.Renewal{{Remote: r, Epoch: 1, Lease: time.Minute}})
		_, err = r.Release(ctx, reentrant.ReleaseRequest{Epoch: 1})
		require.NoError(t, err)
		r.conn.wait(r.name, 2)
	})
	require.NotEmpty(t, ours(), "something waits for the node that hangs")
	require.NoError(t, conn.Close())
	require.Empty(t, ours())
}

// A token that a majority has given is above all before, and known to that majority: nothing need be written.
func TestQuorumTokenOfAMajorityNeedsNoWrite(t *testing.T) {
	t.Parallel()
	q := &Quorum{need: 2}
	for _, c := range []struct {
		given  []reentrant.Token
		want   reentrant.Token
		agreed bool
	}{
		{[]reentrant.Token{5, 5}, 5, true},
		{[]reentrant.Token{5, 7}, 7, false},
		{[]reentrant.Token{7, 5, 5}, 5, true}, // the last of a majority already
		{[]reentrant.Token{7, 5, 6}, 7, false},
	} {
		token, agreed := quorumTally{tokens: c.given}.token(q)
		require.Equal(t, c.want, token, "%v", c.given)
		require.Equal(t, c.agreed, agreed, "%v", c.given)
	}
}

// What gives a copy back may be under way for longer than anybody waits for it. It would take away what another copy of
// the same attempt got at that node.
func TestQuorumDoesNotAskAgainWhereItGaveBack(t *testing.T) {
	t.Parallel()
	_, r := bound(t)
	p, req := r.places[0], attempt(1)
	given, err := p.acquire(t.Context(), req, r.asked.Add(1))
	require.NoError(t, err)
	require.Equal(t, reentrant.Granted, given.Status)
	p.limit = time.Nanosecond // the node does not hear of it
	p.giveBack(1)
	again, err := p.acquire(t.Context(), req, r.asked.Add(1))
	require.NoError(t, err)
	require.Equal(t, reentrant.Stale, again.Status)
}
