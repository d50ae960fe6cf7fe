package redisbackend_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/backend/backendtest"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/redisbackend/redistest"
)

// quorumSkips lists the cases that a quorum cannot pass, and why. Some of these cases need a queue only in part:
// quorum_verbs_test.go tests the rest of them.
var quorumSkips = []backendtest.Option{
	backendtest.InParallel(),
	backendtest.Skip("a quorum has no conditions: Await and Signal say so", "Condition"),
	backendtest.Skip("nodes keep no queue: each would grant the lock to another session", "Queue"),
	backendtest.Skip("nothing is granted to a waiter: it is told to try again", "Grant",
		"Acquire/OwnersAreAnyBytes", "Conn/OutlivesTheContextOfConnect", "Force/GivesTheLockToTheLongestLiveWaiter",
		"Force/LeavesTheOldHolderWithNothing", "Name/IsAnyBytes", "Release/AgainDoesNotTakeTheLockFromTheNext",
		"Release/GivesTheLockToTheLongestWaiter", "Release/OfAGrantGivesItToTheNext", "Token/RisesWithEveryHolder",
		"Token/RisesAboveWhatTheSessionHasSeen", "Wanted/IsNotSentToOtherOwners",
		"Wanted/IsSentToAWaiterThatGetsTheLockBeforeOthers", "Yield/AgainKeepsThePlace",
		"Yield/GivesTheLockToTheFirstWaiterAndQueuesUp", "Yield/WithoutQueueLeavesNoPlace", "Watch/AGrantThatIsWatchedIsAccepted"),
	backendtest.Skip("a waiting session has no place, and is not listed", "Acquire/BargingPassesTheQueue", "Conn/CloseLeavesTheLocks",
		"Inspect/ChangesNothing", "Inspect/ShowsEveryField", "Inspect/ShowsTheSameToAllSessions",
		"Late/ACopyIsRefusedAfterTheWithdrawal", "Late/ATombstoneEnds", "Late/ATombstoneIsTheSessionsAlone",
		"Late/NothingHappensAfterNotAfter", "Reenter/KeepsTheTokenAndTheQueue", "Release/OfAHigherEpochCoversTheLower",
		"Release/OfALowerEpochChangesNothing", "Release/OfAnotherSessionChangesNothing", "Release/WithdrawsFromTheQueue",
		"Release/LetsTheSessionsNextAttemptIn", "Renew/ProlongsTheLeaseAndNothingElse",
		"Wanted/IsSentToANewAttemptThatTakesTheHoldOver", "Yield/ATakeoverWithoutItDoesNotYield", "Yield/DoesNotGiveTheLockToADeadWaiter"),
	backendtest.Skip("a lease ends at each node by itself: an attempt that some have given the lock and others not is stale",
		"Acquire/TheLeaseEnds"),
	backendtest.Skip("an attempt that is repeated is stale if a node that lagged behind the holder's majority had granted it",
		"Acquire/WaitsWhileAnotherHasTheLock", "Token/AnUnusedTailIsGivenBack", "Token/BlocksHaveTheirSizeAndDoNotOverlap",
		"Wanted/IsSentWhenAnotherQueues", "Wanted/IsSentAtEachHeartbeat", "Watch/ReportsASessionThatQueuesUp",
		"Watch/ReportsAtEachHeartbeat"),
	backendtest.Skip("a session reports that it waits after the reply, and is known for a while after it has left", "Watch/ReportsASessionThatWaitsAlready"),
	backendtest.Skip("a takeover always gives a full lease: a node may have missed the last renewal",
		"Acquire/ATakeoverWithKeepTTLLeavesTheLease"),
	backendtest.Skip("nothing is remembered of a quorum: the nodes' records differ", "Prior"),
	backendtest.Skip("sessions that ask at once may split the nodes: then none has the lock, and the attempt is stale",
		"Together"),
}

func TestQuorumConformanceEmbedded(t *testing.T) {
	onlyWithoutAServer(t)
	t.Parallel()
	backendtest.Run(t, func(t *testing.T) backend.Backend {
		var clients []rueidis.Client
		for range 3 {
			clients = append(clients, redistest.Start(t).Client())
		}
		q, err := redisbackend.NewQuorum(clients)
		require.NoError(t, err)
		redisbackend.SetNodeLimit(q, patient)
		return unhurried{q}
	}, quorumSkips...)
}

func TestQuorumConformanceOf3(t *testing.T) {
	testsize.OfATopology(t)
	t.Parallel()
	quorumConformance(t, 3)
}

func TestQuorumConformanceOf5(t *testing.T) {
	testsize.OfATopology(t)
	t.Parallel()
	quorumConformance(t, 5)
}

func quorumConformance(t *testing.T, n int) {
	var addrs []string
	for range n {
		addrs = append(addrs, redisserver.Start(t).Addr())
	}
	backendtest.Run(t, func(t *testing.T) backend.Backend {
		var clients []rueidis.Client
		for _, addr := range addrs {
			clients = append(clients, connect(t, addr))
		}
		q, err := redisbackend.NewQuorum(clients)
		require.NoError(t, err)
		redisbackend.SetNodeLimit(q, patient)
		return unhurried{q}
	}, quorumSkips...)
}

// unhurried gives attempts more time, since the machine may be busy. A short lease that the suite uses might otherwise end
// before the reply, which a quorum reports as an error. A node's time is also limited by the attempt's time and by the
// context's deadline.
type unhurried struct{ backend.Backend }

const unhurriedLease = 400 * time.Millisecond

// A timeless context hides its deadline, but still ends when the deadline passes.
type timeless struct{ context.Context }

func (timeless) Deadline() (time.Time, bool) { return time.Time{}, false }

func (u unhurried) Connect(ctx context.Context, session string, sink backend.Sink) (backend.Conn, error) {
	conn, err := u.Backend.Connect(ctx, session, sink)
	for errors.Is(err, backend.ErrNoQuorum) && ctx.Err() == nil { // Connect gives up after five seconds
		conn, err = u.Backend.Connect(ctx, session, sink)
	}
	if err != nil {
		return nil, err
	}
	return unhurriedConn{conn}, nil
}

type unhurriedConn struct{ backend.Conn }

func (u unhurriedConn) Bind(name string) (backend.Remote, error) {
	remote, err := u.Conn.Bind(name)
	if err != nil {
		return nil, err
	}
	return unhurriedRemote{remote}, nil
}

func (u unhurriedConn) Renew(ctx context.Context, renewals []backend.Renewal) {
	wrapped := make([]backend.Remote, len(renewals))
	for i := range renewals {
		wrapped[i] = renewals[i].Remote
		if own, ok := wrapped[i].(unhurriedRemote); ok {
			renewals[i].Remote = own.Remote
		}
	}
	u.Conn.Renew(ctx, renewals)
	for i := range renewals {
		renewals[i].Remote = wrapped[i]
	}
}

type unhurriedRemote struct{ backend.Remote }

func (u unhurriedRemote) Acquire(ctx context.Context, req backend.AcquireRequest) (backend.AcquireReply, error) {
	if req.Lease > 0 {
		req.Lease = max(req.Lease, unhurriedLease)
	}
	if ctx.Err() == nil && req.NotAfter.After(time.Now()) {
		ctx, req.NotAfter = timeless{ctx}, time.Now().Add(time.Hour)
	}
	return u.Remote.Acquire(ctx, req)
}
