package quorum

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend/internal/single"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

func TestMain(m *testing.M) {
	testsize.Parallel(8)
	os.Exit(m.Run())
}

type deafSink struct{ backend.Sink }

func (deafSink) Granted(backend.Grant) {}
func (deafSink) Reconnected()          {}

// A hintSink receives the hints to try again.
type hintSink struct {
	deafSink
	hints chan backend.Grant
}

func (s hintSink) Granted(g backend.Grant) { s.hints <- g }

// allowed is a node's time limit in tests that do not check it: the machine may be busy.
const allowed = 30 * time.Second

// bound makes a lock over three nodes. The nodes have as much time as they need.
func bound(t *testing.T) (*Conn, *remote) {
	return boundTo(t, allowed, redisserver.Start(t), redisserver.Start(t), redisserver.Start(t))
}

// boundTo makes a lock over the given nodes. The client of the last node stops waiting for a reply after giveUp.
func boundTo(t *testing.T, giveUp time.Duration, nodes ...*redisserver.Server) (*Conn, *remote) {
	var deployments []*single.Deployment
	for i, node := range nodes {
		option := rueidis.ClientOption{InitAddress: []string{node.Addr()}, DisableCache: true, ConnWriteTimeout: allowed}
		if i == len(nodes)-1 {
			option.ConnWriteTimeout = giveUp
		}
		var client rueidis.Client
		require.Eventually(t, func() bool {
			var err error
			client, err = rueidis.NewClient(option)
			return err == nil
		}, allowed, time.Millisecond, "the node replies in time")
		t.Cleanup(client.Close)
		d := single.NewDeployment(client)
		require.NoError(t, d.Complete())
		deployments = append(deployments, &d)
	}
	q, err := New(deployments)
	require.NoError(t, err)
	q.Limit = allowed
	return joined(t, q, "a", deafSink{})
}

// joined opens one more session, and returns the session's lock.
func joined(t *testing.T, q *Quorum, id string, sink backend.Sink) (*Conn, *remote) {
	var conn backend.Conn
	var err error
	require.Eventually(t, func() bool { // a majority has five seconds to reply, and this machine may be too busy for that
		conn, err = q.Connect(t.Context(), id, sink)
		return !errors.Is(err, backend.ErrNoQuorum)
	}, allowed, time.Millisecond)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	bound, err := conn.Bind("lock")
	require.NoError(t, err)
	return conn.(*Conn), bound.(*remote)
}

func attempt(epoch uint64) backend.AcquireRequest {
	return backend.AcquireRequest{Epoch: epoch, Owner: "1", Holds: 1, Lease: time.Hour, Tokens: 1,
		NotAfter: time.Now().Add(time.Hour)}
}

// visited waits until the release of an attempt has run at the node.
func (rep *replica) visited(t *testing.T, epoch uint64) {
	require.Eventually(t, func() bool {
		rep.sem <- struct{}{}
		defer rep.leave()
		return rep.refuseBefore.epoch >= epoch
	}, allowed, time.Millisecond, "the release has run at this node too")
}

// The command of an attempt may be so late at one node that the other nodes have granted the attempt, and the lock has been
// released, before the command runs. The command must not take the lock then, because no command would release it.
func TestQuorumALateAttemptTakesNothingAfterItsRelease(t *testing.T) {
	t.Parallel()
	_, r := bound(t)
	late, req := r.replicas[2], attempt(1)
	v := r.newVote(t.Context(), &req)
	result, err := r.Release(t.Context(), backend.ReleaseRequest{Epoch: 1})
	require.NoError(t, err)
	require.Equal(t, backend.Nothing, result)
	late.visited(t, 1)

	close(v.counted)
	v.kept = true
	close(v.final)
	v.at(t.Context(), 2, late)
	answer := <-v.answers
	require.NoError(t, answer.err)
	require.Equal(t, backend.Stale, answer.value.Status)

	reply, err := r.Acquire(t.Context(), attempt(2))
	require.NoError(t, err)
	require.Equal(t, backend.Granted, reply.Status)
}

// A closed conn sends nothing, so no command runs after Close has returned.
func TestQuorumSendsNothingAfterClose(t *testing.T) {
	t.Parallel()
	conn, r := bound(t)
	require.NoError(t, conn.Close())
	ctx := context.Background()
	_, err := r.Acquire(ctx, attempt(1))
	require.ErrorContains(t, err, "closed")
	_, err = r.Release(ctx, backend.ReleaseRequest{Epoch: 1})
	require.ErrorContains(t, err, "closed")
	_, err = r.Reenter(ctx, backend.ReenterRequest{Epoch: 1, Holds: 2})
	require.ErrorContains(t, err, "closed")
	_, err = r.Inspect(ctx)
	require.ErrorContains(t, err, "closed")
	_, err = r.ForceUnlock(ctx, time.Now().Add(time.Minute))
	require.ErrorContains(t, err, "closed")
	renewals := []backend.Renewal{{Remote: r, Epoch: 1, Lease: time.Minute}}
	conn.Renew(ctx, renewals)
	require.ErrorContains(t, renewals[0].Err, "closed")
}

// Whatever ran before, nothing runs after Close has returned, even if a node hangs.
func TestQuorumNothingRunsAfterClose(t *testing.T) {
	t.Parallel()
	nodes := []*redisserver.Server{redisserver.Start(t), redisserver.Start(t), redisserver.Start(t)}
	conn, r := boundTo(t, 200*time.Millisecond, nodes...)
	ours := func() string {
		var all strings.Builder
		require.NoError(t, pprof.Lookup("goroutine").WriteTo(&all, 1))
		var found []string
		for one := range strings.SplitSeq(all.String(), "\n\n") {
			if strings.Contains(one, `"quorum":"close"`) && strings.Contains(one, "internal/quorum.(*") {
				found = append(found, one)
			}
		}
		return strings.Join(found, "\n\n")
	}
	nodes[2].Freeze()
	// Goroutines that are started in Do inherit the label.
	pprof.Do(t.Context(), pprof.Labels("quorum", "close"), func(ctx context.Context) {
		for epoch := uint64(1); ours() == ""; epoch++ { // once, unless the background work has ended before
			_, err := r.Acquire(ctx, attempt(epoch))
			require.NoError(t, err)
			conn.Renew(ctx, []backend.Renewal{{Remote: r, Epoch: epoch, Lease: time.Hour}})
			_, err = r.Release(ctx, backend.ReleaseRequest{Epoch: epoch})
			require.NoError(t, err)
			r.conn.wait(r.name, epoch+1, 0)
		}
	})
	require.NoError(t, conn.Close())
	require.Empty(t, ours())
}

// A token that a majority has issued is above all earlier tokens, and that majority knows the token. So it need not be written.
func TestQuorumTokenOfAMajorityNeedsNoWrite(t *testing.T) {
	t.Parallel()
	q := &Quorum{need: 2}
	for _, c := range []struct {
		given  []backend.Token
		want   backend.Token
		agreed bool
	}{
		{[]backend.Token{5, 5}, 5, true},
		{[]backend.Token{5, 7}, 7, false},
		{[]backend.Token{7, 5, 5}, 5, true}, // two of the nodes have issued 5
		{[]backend.Token{7, 5, 6}, 7, false},
	} {
		token, agreed := tally{tokens: c.given}.token(q)
		require.Equal(t, c.want, token, "%v", c.given)
		require.Equal(t, c.agreed, agreed, "%v", c.given)
	}
}

// All nodes give the token that was proposed, and no node gives a token of its own clock. Otherwise an acquire would need a
// second round to write the highest token to the other nodes, and the next holder would wait for that round, too.
func TestQuorumAllNodesGiveTheProposedToken(t *testing.T) {
	t.Parallel()
	_, r := bound(t)
	r.taken(t, attempt(1))
	for epoch := uint64(2); ; epoch++ {
		req := attempt(epoch)
		v := r.newVote(t.Context(), &req)
		tokens := make(map[backend.Token]bool)
		for _, rep := range r.replicas {
			require.NoError(t, rep.enter(t.Context())) // wait until the first attempt's job at the node has ended
			given, err := rep.acquire(t.Context(), v.req, v.order)
			rep.leave()
			require.NoError(t, err)
			require.Equal(t, backend.Granted, given.Status)
			tokens[given.First] = true
		}
		if time.Since(v.sent) <= tokenLead/2 { // later a clock may have reached the proposed token
			require.Len(t, tokens, 1)
			return
		}
	}
}

// A hold that was granted before has a token that a majority knows. A copy of its attempt waits for the reply that shows this
// token, since another node may have given a higher token of its own.
func TestQuorumACopyOfAHoldKeepsItsToken(t *testing.T) {
	t.Parallel()
	_, r := bound(t)
	had, _ := r.taken(t, attempt(1))
	again := attempt(1)
	v := r.newVote(t.Context(), &again)
	v.limit = time.Hour
	for node, token := range []backend.Token{had.First, had.First + 7, had.First} {
		v.answers <- reply[backend.AcquireReply]{node: node, value: backend.AcquireReply{Status: backend.Granted, First: token, Last: token}}
		v.written <- reply[struct{}]{node: node}
	}
	got, err := v.count(t.Context())
	require.NoError(t, err)
	require.Equal(t, backend.Granted, got.Status)
	require.Equal(t, had.First, got.First)
}

// A release of one copy of an attempt may still run when no caller waits for it any more. The release would also give back what
// another copy of the attempt got at the same node, so no other copy is sent to that node.
func TestQuorumDoesNotAskANodeAgainThatIsSentARelease(t *testing.T) {
	t.Parallel()
	_, r := bound(t)
	rep, req := r.replicas[0], attempt(1)
	given, err := rep.acquire(t.Context(), req, r.asked.Add(1))
	require.NoError(t, err)
	require.Equal(t, backend.Granted, given.Status)
	rep.limit = time.Nanosecond // the node does not receive the command
	rep.giveBack(1)
	again, err := rep.acquire(t.Context(), req, r.asked.Add(1))
	require.NoError(t, err)
	require.Equal(t, backend.Stale, again.Status)
}

// If too few nodes have granted an attempt, the attempt is given back, and a node at which it was given back never grants it
// again. So it is not sent again: its hold would be at the other nodes only, and would end with the first of these that forgets
// it. The next epoch can have all nodes.
func TestQuorumAnAttemptThatWasGivenBackIsNotSentAgain(t *testing.T) {
	t.Parallel()
	_, r := bound(t)
	req := attempt(1)
	v := r.newVote(t.Context(), &req)
	v.answers <- reply[backend.AcquireReply]{node: 0, value: backend.AcquireReply{Status: backend.Granted, First: 1, Last: 1}}
	for _, node := range []int{1, 2} {
		v.answers <- reply[backend.AcquireReply]{node: node, value: backend.AcquireReply{Status: backend.Waiting}}
	}
	answer, err := v.count(t.Context())
	require.NoError(t, err)
	require.Equal(t, backend.Waiting, answer.Status)

	answer, err = r.Acquire(t.Context(), attempt(1))
	require.NoError(t, err)
	require.Equal(t, backend.Stale, answer.Status)
	for _, rep := range r.replicas {
		require.True(t, rep.free(t))
	}
	r.taken(t, attempt(2))
}

// A node whose reply does not come may have granted an attempt that fails. So the attempt is given back at that node, too: a
// caller that only tries does not come back, and no other session could have the node until the lease ends.
func TestQuorumGivesBackWhereTheReplyDidNotCome(t *testing.T) {
	t.Parallel()
	nodes := []*redisserver.Server{redisserver.Start(t), redisserver.Start(t), redisserver.Start(t)}
	_, r := boundTo(t, allowed, nodes...)
	rep, req, err := r.replicas[2], attempt(1), error(nil)
	nodes[2].Freeze()
	var v *vote
	for limit := 10 * time.Millisecond; !backend.OutcomeUnknown(err); limit *= 2 { // the time may be over before it is sent
		require.Less(t, limit, allowed, "%v", err)
		v = r.newVote(t.Context(), &req)
		v.limit = limit
		close(v.counted) // the attempt has failed
		go v.at(t.Context(), 2, rep)
		err = (<-v.answers).err
		if !backend.OutcomeUnknown(err) {
			close(v.final)
		}
	}
	nodes[2].Thaw()
	got, err := rep.remote.Acquire(t.Context(), req) // this is what the command does if it arrives now
	require.NoError(t, err)
	require.Equal(t, backend.Granted, got.Status)
	close(v.final)
	require.NoError(t, rep.enter(t.Context())) // wait until the job at the node has ended
	defer rep.leave()
	require.True(t, rep.free(t))
}

// A release that was not confirmed is sent again, even if a later attempt waits by then. The later attempt continues to wait.
func TestQuorumALateReleaseLeavesTheWaitOfALaterAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hints := make(chan backend.Grant, 10)
		c := &Conn{sink: hintSink{hints: hints}, waiting: make(map[string]*waiter)}
		c.wait("lock", 2, 0)
		c.stop("lock", 1)
		time.Sleep(time.Second)
		require.Len(t, hints, 1)
		require.Equal(t, uint64(2), (<-hints).Epoch)
		c.wait("lock", 2, 0)
		c.stop("lock", 2)
		time.Sleep(time.Second)
		require.Empty(t, hints)
	})
}

// The lock may be released while a waiter's new attempt runs. The reply that another session has the lock is then out of date,
// so the hint that the lock is free must not be lost.
func TestQuorumAHintDuringAnAttemptIsNotLost(t *testing.T) {
	t.Parallel()
	conn, _ := bound(t)
	hints := make(chan backend.Grant, 10)
	waiter, r := joined(t, conn.quorum, "b", hintSink{hints: hints})
	waiter.wait("lock", 1, 0)
	<-hints // this hint is about the first attempt; the session goes on with the next one
	for _, rep := range r.replicas[:2] {
		require.NoError(t, rep.enter(t.Context())) // two nodes are slow
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		req := attempt(2)
		req.Queue, req.Patience, req.GrantTTL = true, time.Hour, time.Hour
		_, _ = r.Acquire(t.Context(), req)
	}()
	require.Eventually(t, func() bool {
		state, err := r.replicas[2].remote.Inspect(t.Context())
		return err == nil && state.Epoch == 2
	}, allowed, time.Millisecond, "the attempt is at the nodes")
	waiter.subscribers[0].Received("f lock")
	require.Equal(t, uint64(2), (<-hints).Epoch)
	for _, rep := range r.replicas[:2] {
		rep.leave()
	}
	<-answered
}

// When one session yields, another session gets a hint, and then needs two round trips to acquire the lock. The yielding
// session must not come back earlier, or the other session could never acquire the lock.
func TestQuorumAYieldIsLongerThanTheRoundTripsOfTheNext(t *testing.T) {
	t.Parallel()
	conn, other := bound(t)
	hints := make(chan backend.Grant, 10)
	_, r := joined(t, conn.quorum, "b", hintSink{hints: hints})
	reply, err := r.Acquire(t.Context(), attempt(1))
	require.NoError(t, err)
	require.Equal(t, backend.Granted, reply.Status)
	for _, rep := range other.replicas {
		rep.Want(time.Hour)
	}
	for _, rep := range r.replicas {
		require.NoError(t, rep.enter(t.Context()))
	}
	asked, answered := r.asked.Load(), make(chan backend.AcquireReply, 1)
	go func() {
		req := attempt(2)
		req.Yield, req.Queue, req.Patience, req.GrantTTL = true, true, time.Hour, time.Hour
		reply, _ := r.Acquire(t.Context(), req)
		answered <- reply
	}()
	require.Eventually(t, func() bool { return r.asked.Load() > asked }, allowed, time.Millisecond, "the release is at the nodes")
	const trip = 10 * time.Millisecond
	time.Sleep(trip) // the yield takes at least this long
	told := time.Now()
	for _, rep := range r.replicas {
		rep.leave()
	}
	require.Equal(t, uint64(2), (<-hints).Epoch)
	require.Greater(t, time.Since(told), 3*trip)
	require.Equal(t, backend.Waiting, (<-answered).Status)
}

// A node was down when the session was opened, and refuses the session when the node is up again. The session does not ask the
// node again and again.
func TestQuorumANodeThatRefusesLaterIsLeftAlone(t *testing.T) {
	t.Parallel()
	node := redisserver.Start(t)
	conn, _ := boundTo(t, allowed, node, redisserver.Start(t), redisserver.Start(t))
	_, err := node.Command("ACL", "SETUSER", "default", "-subscribe")
	require.NoError(t, err)
	late := &subscriber{conn: conn, node: conn.nodes[0]}
	late.ctx, late.cancel = context.WithTimeout(t.Context(), allowed)
	defer late.cancel()
	late.rejoin(errors.New("the node is down"))
	require.NoError(t, late.ctx.Err(), "the session tries to reach the node again")
	require.Nil(t, late.open)
}

// free reports whether the lock is free at a node.
func (rep *replica) free(t *testing.T) bool {
	state, err := rep.remote.Inspect(t.Context())
	require.NoError(t, err)
	return !state.Locked
}

// taken makes an attempt that all nodes grant. It returns the reply and the hold.
func (r *remote) taken(t *testing.T, req backend.AcquireRequest) (backend.AcquireReply, hold) {
	reply, err := r.Acquire(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, backend.Granted, reply.Status)
	for _, rep := range r.replicas {
		require.Eventually(t, func() bool { return !rep.free(t) }, allowed, time.Millisecond)
	}
	h, ok := r.holds(req.Epoch)
	require.True(t, ok)
	return reply, h
}

// restored puts a hold back at the node.
func (rep *replica) restored(t *testing.T, h hold, until time.Time) {
	_, err := rep.restore(t.Context(), h, time.Hour, until)
	require.NoError(t, err)
}

// A node that missed a renewal has less of the lease left than the other nodes. So a pass within a turn begins a new lease at
// every node, although on a single Redis it would keep the TTL.
func TestQuorumAPassGivesEveryNodeTheFullLease(t *testing.T) {
	t.Parallel()
	_, r := bound(t)
	r.taken(t, attempt(1))
	client := r.replicas[0].remote.Conn.Deployment.Client
	require.NoError(t, client.Do(t.Context(), client.B().Pexpire().Key("lock").Milliseconds((time.Hour/4).Milliseconds()).Build()).Error())
	pass := attempt(2)
	pass.KeepTTL = true
	reply, err := r.Acquire(t.Context(), pass)
	require.NoError(t, err)
	require.Equal(t, backend.Granted, reply.Status)
	for i, rep := range r.replicas {
		var state backend.State
		require.Eventually(t, func() bool {
			state, err = rep.remote.Inspect(t.Context())
			return err == nil && state.Epoch == 2
		}, allowed, time.Millisecond, "node %d has the pass", i)
		require.Greater(t, state.TTL, time.Hour/2, "the lease at node %d", i)
	}
}

// soon returns a time that is so far away that a command which puts a hold back comes before it.
func soon() time.Time { return time.Now().Add(time.Hour) }

// A hold is put back, with its token, at a node where it has ended or was forgotten, and only if the node has nothing newer.
func TestQuorumPutsAHoldBackOnlyWhereItIsMissing(t *testing.T) {
	t.Parallel()
	conn, r := bound(t)
	_, other := joined(t, conn.quorum, "b", deafSink{})
	req := attempt(3)
	req.Tokens = 4
	reply, h := r.taken(t, req)
	rep := r.replicas[0]
	lose := func(keys ...string) {
		client := rep.remote.Conn.Deployment.Client
		require.NoError(t, client.Do(t.Context(), client.B().Del().Key(keys...).Build()).Error())
	}
	for _, keys := range [][]string{{"lock"}, {"lock", "relock:{lock}:t:lock"}, {"relock:{lock}:t:lock"}} {
		lose(keys...)
		rep.restored(t, h, soon())
		state, err := rep.remote.Inspect(t.Context())
		require.NoError(t, err)
		require.Greater(t, state.TTL, time.Hour/2)
		state.TTL, state.Since = 0, time.Time{}
		require.Equal(t, backend.State{Locked: true, Session: "a", Owner: "1", Holds: 1, Epoch: 3, First: reply.First, Token: reply.Last}, state, "%q", keys)
	}
	lose(rep.remote.Keys[:2]...)
	got, err := rep.remote.Acquire(t.Context(), attempt(1))
	require.NoError(t, err)
	require.Equal(t, backend.Granted, got.Status)
	rep.restored(t, h, soon())
	state, err := rep.remote.Inspect(t.Context())
	require.NoError(t, err)
	require.Equal(t, uint64(3), state.Epoch, "the node missed the later attempt that took the hold over")

	lose("lock")
	rep.restored(t, h, time.Now())
	require.True(t, rep.free(t), "the command is late")
	rep.releasedHere = 3
	rep.restored(t, h, soon())
	require.True(t, rep.free(t), "the hold was released at this node")
	rep.releasedHere = 2
	req = attempt(1)
	req.Tokens = 4
	got, err = other.replicas[0].remote.Acquire(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, backend.Granted, got.Status)
	rep.restored(t, h, soon())
	state, err = rep.remote.Inspect(t.Context())
	require.NoError(t, err)
	require.Equal(t, "b", state.Session, "another session has the lock")
	result, err := other.replicas[0].remote.Release(t.Context(), backend.ReleaseRequest{Epoch: 1})
	require.NoError(t, err)
	require.Equal(t, backend.Released, result)

	rep.restored(t, h, soon())
	require.False(t, rep.free(t))
	state, err = rep.remote.Inspect(t.Context())
	require.NoError(t, err)
	require.Equal(t, got.Last, state.Token, "the record's last token never falls")
	require.Equal(t, got.Last, state.First, "and a release of this hold does not take back b's tokens")
	_, err = rep.remote.Acquire(t.Context(), attempt(4))
	require.NoError(t, err)
	_, err = rep.remote.Release(t.Context(), backend.ReleaseRequest{Epoch: 4})
	require.NoError(t, err)
	rep.restored(t, h, soon())
	require.True(t, rep.free(t), "a later attempt was here")
}

// A node remembers one of the sessions that wait: the first that says so, until that session gets the lock at this node or
// gives it back there. When the lock is released at the node, the remembered session gets a message, unless another session has
// the lock by then.
func TestQuorumANodeKnowsOneSessionThatWaits(t *testing.T) {
	t.Parallel()
	conn, a := bound(t)
	_, b := joined(t, conn.quorum, "b", deafSink{})
	_, c := joined(t, conn.quorum, "c", deafSink{})
	said := func(r *remote, s *wire.Script, args ...string) bool {
		rep := r.replicas[0]
		answer, err := rep.remote.Run(t.Context(), s, []string{rep.wanted, rep.remote.Keys.Hold(), rep.remote.Keys[1]},
			append([]string{rep.remote.Conn.Session}, args...), 0)
		require.NoError(t, err)
		return answer.Code == 1
	}
	scripts := wire.LoadQuorumScripts()
	waits := func(r *remote) bool { return said(r, &scripts.Want, "3600000", "channel:") }
	calls := func(r *remote) bool { return said(r, &scripts.Call, "channel:") }
	takes := func(r *remote, epoch uint64) {
		got, err := r.replicas[0].remote.Acquire(t.Context(), attempt(epoch))
		require.NoError(t, err)
		require.Equal(t, backend.Granted, got.Status)
	}
	frees := func(r *remote, epoch uint64) {
		result, err := r.replicas[0].remote.Release(t.Context(), backend.ReleaseRequest{Epoch: epoch})
		require.NoError(t, err)
		require.Equal(t, backend.Released, result)
	}

	require.False(t, calls(a), "no session waits")
	require.True(t, waits(b))
	require.True(t, waits(b))
	require.False(t, waits(c), "b was first")
	takes(c, 1)
	require.False(t, calls(a), "c has the lock")
	frees(c, 1)
	require.True(t, calls(a))
	takes(b, 1)
	require.True(t, waits(c), "b has the lock here")
	frees(b, 1)
	require.False(t, calls(c), "c itself has given it back")
	require.True(t, waits(b), "so c is not known any more")
}

// A node may have given the token with a smaller block than the other nodes. Such a node does not count as having the block:
// after the loss of another node it would give tokens of the block out again.
func TestQuorumWritesABlockWhereItWasSmaller(t *testing.T) {
	t.Parallel()
	_, r := bound(t)
	req := attempt(1)
	req.Tokens = 4
	v := r.newVote(t.Context(), &req)
	rep := r.replicas[0]
	smaller := v.req
	smaller.Tokens = 2
	given, err := rep.acquire(t.Context(), smaller, v.order)
	require.NoError(t, err)
	require.Equal(t, given.First+1, given.Last)
	v.won, v.first, v.size = true, given.First, 4
	require.NoError(t, v.agree(t.Context(), rep, true, given))
	state, err := rep.remote.Inspect(t.Context())
	require.NoError(t, err)
	require.Equal(t, given.First+3, state.Token)
}

// A hold is put back with the hold count that it has now, although a late copy of its attempt has the first count.
func TestQuorumACopyLeavesTheCountAlone(t *testing.T) {
	t.Parallel()
	_, r := bound(t)
	r.taken(t, attempt(1))
	counted, err := r.Reenter(t.Context(), backend.ReenterRequest{Epoch: 1, Owner: "1", Op: 1, Holds: 2})
	require.NoError(t, err)
	require.Equal(t, 2, counted.Holds)
	_, h := r.taken(t, attempt(1))
	require.Equal(t, 2, h.holds)
}

// Two copies of an attempt may have settled on different tokens. If the lower token comes to a node last, the node does not
// write it.
func TestQuorumALateTokenIsNotWritten(t *testing.T) {
	t.Parallel()
	_, r := bound(t)
	reply, _ := r.taken(t, attempt(1))
	rep := r.replicas[0]
	require.NoError(t, rep.write(t.Context(), 1, reply.First-1, reply.Last-1))
	state, err := rep.remote.Inspect(t.Context())
	require.NoError(t, err)
	require.Equal(t, reply.Last, state.Token)
}

// A node has lost the hold, and other sessions that poll often have the lock there for a moment. The hold is still put back at
// that node.
func TestQuorumPutsBackAlthoughOthersPoll(t *testing.T) {
	t.Parallel()
	conn, r := bound(t)
	_, other := joined(t, conn.quorum, "b", deafSink{})
	_, h := r.taken(t, attempt(1))
	rep, poller := r.replicas[0], other.replicas[0].remote
	renewals := []backend.Renewal{{Remote: r, Epoch: 1, Lease: time.Hour}}
	conn.Renew(t.Context(), renewals)
	conn.Jobs.Wait()
	client := rep.remote.Conn.Deployment.Client
	require.NoError(t, client.Do(t.Context(), client.B().Del().Key("lock").Build()).Error())
	_, err := poller.Acquire(t.Context(), attempt(1))
	require.NoError(t, err)
	calls := func() (n int) { // of scripts
		stats, err := client.Do(t.Context(), client.B().Info().Section("commandstats").Build()).ToString()
		require.NoError(t, err)
		_, after, _ := strings.Cut(stats, "cmdstat_evalsha:calls=")
		_, _ = fmt.Sscanf(after, "%d", &n)
		return n
	}
	rep.restored(t, h, soon()) // loads the script on the node
	before := calls()
	conn.Renew(t.Context(), renewals)
	require.False(t, renewals[0].Gone)
	require.Eventually(t, func() bool { return calls() >= before+2 }, allowed, time.Millisecond, "the renewal and the command that puts the hold back")
	state, err := rep.remote.Inspect(t.Context())
	require.NoError(t, err)
	require.Equal(t, "b", state.Session)
	_, err = poller.Release(t.Context(), backend.ReleaseRequest{Epoch: 1})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		state, err = rep.remote.Inspect(t.Context())
		return err == nil && state.Session == "a"
	}, testsize.Patience(allowed), time.Millisecond, "the command is sent again")
}

// A copy of the command that puts a hold back may arrive at a node after the hold's release. Then it does nothing.
func TestQuorumNothingIsPutBackAfterItsRelease(t *testing.T) {
	t.Parallel()
	nodes := []*redisserver.Server{redisserver.Start(t), redisserver.Start(t), redisserver.Start(t)}
	_, r := boundTo(t, allowed, nodes...)
	_, h := r.taken(t, attempt(1))
	rep := r.replicas[2]
	require.NoError(t, rep.enter(t.Context()))
	nodes[2].Freeze()
	var err error
	for wait := 10 * time.Millisecond; !backend.OutcomeUnknown(err); wait *= 2 { // the time may be over before it is sent
		require.Less(t, wait, allowed, "%v", err)
		short, cancel := context.WithTimeout(t.Context(), wait)
		_, err = rep.restore(short, h, time.Hour, soon())
		cancel()
	}
	nodes[2].Thaw()
	rep.leave()

	_, err = r.Release(t.Context(), backend.ReleaseRequest{Epoch: 1})
	require.NoError(t, err)
	rep.visited(t, 1)
	require.NoError(t, rep.enter(t.Context()))
	defer rep.leave()
	rep.restored(t, h, soon())
	require.True(t, rep.free(t))
}

// When a new attempt has begun after a loss, the session forgets the lost hold, and no renewal puts it back.
func TestQuorumForgetsALostHold(t *testing.T) {
	t.Parallel()
	conn, r := bound(t)
	for _, ends := range []func(epoch uint64){
		func(epoch uint64) {
			_, err := r.ForceUnlock(t.Context(), time.Now().Add(time.Minute))
			require.NoError(t, err)
			lost := []backend.Renewal{{Remote: r, Epoch: epoch, Lease: time.Hour}}
			conn.Renew(t.Context(), lost)
			require.True(t, lost[0].Gone)
		},
		func(epoch uint64) {
			for _, rep := range r.replicas {
				require.NoError(t, rep.enter(t.Context()))
			}
			conn.quorum.Limit = time.Millisecond // no command can run at the node
			_, err := r.Acquire(t.Context(), attempt(epoch+1))
			require.Error(t, err)
			for _, rep := range r.replicas {
				rep.leave()
			}
		},
	} {
		epoch := uint64(0)
		require.Eventually(t, func() bool { // a node may learn late that the lock is free
			epoch += 10
			reply, err := r.Acquire(t.Context(), attempt(epoch))
			return err == nil && reply.Status == backend.Granted
		}, allowed, time.Millisecond)
		_, ok := r.holds(epoch)
		require.True(t, ok)
		ends(epoch)
		_, ok = r.holds(epoch)
		require.False(t, ok)
	}
}

// A renewal that runs at the same time as ForceUnlock does not put back the hold that ForceUnlock ended.
func TestQuorumAForcedHoldIsNotPutBack(t *testing.T) {
	t.Parallel()
	_, r := bound(t)
	_, h := r.taken(t, attempt(1))
	_, err := r.ForceUnlock(t.Context(), time.Now().Add(time.Minute))
	require.NoError(t, err)
	for _, rep := range r.replicas {
		require.Eventually(t, func() bool { return rep.free(t) }, allowed, time.Millisecond)
		rep.restored(t, h, soon())
		require.True(t, rep.free(t))
	}
	reply, err := r.Acquire(t.Context(), attempt(2))
	require.NoError(t, err)
	require.Equal(t, backend.Granted, reply.Status, "the session's next attempt gets the lock")
}

// A node refuses a copy of ForceUnlock that arrives too late, so that the next holder keeps the lock.
func TestQuorumALateForceUnlockIsRefused(t *testing.T) {
	t.Parallel()
	_, r := bound(t)
	r.taken(t, attempt(1))
	for _, rep := range r.replicas {
		had, err := rep.force(t.Context(), time.Now().Add(-time.Second))
		require.ErrorContains(t, err, "too late")
		require.False(t, backend.OutcomeUnknown(err))
		require.False(t, had)
		require.False(t, rep.free(t))
	}
}

// A hold is put back only until its leases at the majority end. After that another session may have had the lock, and a late
// copy of the command could give the old hold a majority again.
func TestQuorumPutsBackWithinTheLease(t *testing.T) {
	t.Parallel()
	conn, r := bound(t)
	sent := time.Now()
	for lease, want := range map[time.Duration]time.Duration{time.Minute: time.Second, 100 * time.Millisecond: 97 * time.Millisecond} {
		_, all := conn.renewals([]backend.Renewal{{Remote: r, Epoch: 1, Lease: lease}}, sent, time.Second, nil)
		require.Equal(t, want, all[0].until.Sub(sent))
	}
}
