package backendtest_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/backend/backendtest"
	"github.com/relock-go/relock/internal/memory"
)

// A mutant is a Backend with one fault, and the case that must fail with it.
type mutant struct {
	wrong string
	fails string
	make  func() hooks
}

// TestMutants shows that for each fault one case of the suite fails.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.wrong, func(t *testing.T) {
			failures := try(t, find(t, m.fails), func() backend.Backend {
				return &wrapper{memory.New(), m.make()}
			})
			require.NotEmpty(t, failures, "%s passes with a Backend that has this fault: %s", m.fails, m.wrong)
			t.Log(failures[0])
		})
	}
}

// TestMutantsAreOtherwiseRight shows that the cases do not fail because of the wrapper.
func TestMutantsAreOtherwiseRight(t *testing.T) {
	backendtest.Run(t, func(*testing.T) backend.Backend { return &wrapper{Backend: memory.New()} }, backendtest.InBubble())
}

func find(t *testing.T, name string) backendtest.Case {
	t.Helper()
	all := backendtest.Cases()
	i := slices.IndexFunc(all, func(c backendtest.Case) bool { return c.Name == name })
	require.GreaterOrEqual(t, i, 0, "there is no case %s", name)
	return all[i]
}

// try runs a case in a bubble and returns its failures.
func try(t *testing.T, c backendtest.Case, newBackend func() backend.Backend) (failures []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		done := make(chan struct{})
		go func() { // FailNow ends this goroutine, and not the goroutine of the test
			defer close(done)
			c.Func(r, newBackend())
		}()
		<-done
		r.finish()
		failures = r.failures
	})
	return failures
}

// A recorder is a testing.TB whose failures do not fail the test.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

func (r *recorder) Cleanup(f func())                  { r.cleanups = append(r.cleanups, f) }
func (r *recorder) FailNow()                          { runtime.Goexit() }
func (r *recorder) Fatal(args ...any)                 { r.Errorf("%s", fmt.Sprint(args...)); r.FailNow() }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); r.FailNow() }

func (r *recorder) finish() {
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
}

// mutants are the faulty Backends that the suite must detect, by area.
var mutants = []mutant{
	// Taking.
	{"every attempt is granted", "Acquire/WaitsWhileAnotherHasTheLock", answers(func(a *backend.AcquireReply) { a.Status = backend.Granted })},
	{"the hold count starts at one", "Acquire/TakesAFreeLock", requests(func(q *backend.AcquireRequest) { q.Holds = 1 })},
	{"a wait does not report the holder's TTL", "Acquire/WaitsWhileAnotherHasTheLock", answers(func(a *backend.AcquireReply) { a.TTL = -1 })},
	{"every attempt queues", "Acquire/ATryLeavesNoPlace", requests(func(q *backend.AcquireRequest) { q.Queue = true })},
	{"a resend gets a new token", "Acquire/AResendKeepsTheTokenAndSetsTheFullLease", resendIsNew},
	{"a resend does not set the full lease", "Acquire/AResendKeepsTheTokenAndSetsTheFullLease", requests(func(q *backend.AcquireRequest) { q.Fixed = true })},
	{"a resend resets the hold count", "Acquire/AResendKeepsTheHoldCount", resendResets},
	{"a takeover keeps the token", "Acquire/ATakeoverGivesANewTokenAndOwner", takeoverKeepsToken},
	{"a takeover keeps the owner", "Acquire/ATakeoverGivesANewTokenAndOwner", takeoverKeepsOwner},
	{"a takeover never changes the lease", "Acquire/ATakeoverSetsItsLease", requests(func(q *backend.AcquireRequest) { q.KeepTTL = true })},
	{"KeepTTL is ignored", "Acquire/ATakeoverWithKeepTTLLeavesTheLease", requests(func(q *backend.AcquireRequest) { q.KeepTTL = false })},
	{"a lower epoch is taken for the highest", "Acquire/ALowerEpochIsStale", lowerEpochs},
	{"a lower epoch waits", "Acquire/ALowerEpochIsStale", answers(func(a *backend.AcquireReply) {
		if a.Status == backend.Stale {
			a.Status = backend.Waiting
		}
	})},
	{"an epoch can get the lock twice", "Acquire/AnEpochThatHadItsTurnIsStale", twoTurns},
	{"an epoch can get the lock again when its lease has ended", "Acquire/AnEpochWhoseLeaseEndedIsStale", twoTurns},
	{"leases do not end", "Acquire/TheLeaseEnds", requests(func(q *backend.AcquireRequest) { q.Lease = forever })},
	{"a fixed lease is prolonged", "Acquire/AFixedLeaseStartsOnce", requests(func(q *backend.AcquireRequest) { q.Fixed = false })},
	{"a fixed lease does not end while it is repeated", "Acquire/AFixedLeaseEndsThoughRepeated", requests(func(q *backend.AcquireRequest) { q.Fixed = false })},
	{"no attempt barges", "Acquire/BargingPassesTheQueue", requests(func(q *backend.AcquireRequest) { q.Barge = false })},
	{"barging passes the holder", "Acquire/BargingDoesNotPassTheHolder", bargeForces},
	{"owners are trimmed", "Acquire/OwnersAreAnyBytes", requests(func(q *backend.AcquireRequest) { q.Owner = strings.TrimSpace(q.Owner) })},

	// Re-entry.
	{"re-entry adds", "Reenter/SetsTheCount", reenters(func(r *remote, q *backend.ReenterRequest) { q.Holds += r.state().Holds })},
	{"an old re-entry counts", "Reenter/AnOpThatIsNotAboveTheLastChangesNothing", oldOps},
	{"re-entry's numbers go on over attempts", "Reenter/ANewAttemptCountsItsOwnOps", opsGoOn},
	{"re-entry shortens the lease", "Reenter/NeverShortensTheLease", reenterSetsLease},
	{"re-entry does not prolong the lease", "Reenter/ProlongsAShorterLeaseWhenTheCountRises", reenters(func(_ *remote, q *backend.ReenterRequest) { q.Lease = 0 })},
	{"a partial unlock changes the lease", "Reenter/LeavesTheLeaseAloneWhenTheCountFalls", reenterSetsLease},
	{"any epoch re-enters", "Reenter/IsGoneWithoutTheLock", reenters(func(r *remote, q *backend.ReenterRequest) {
		if r.mine() {
			q.Epoch = r.state().Epoch
		}
	})},
	{"re-entry recreates the hold", "Reenter/IsGoneWithoutTheLock", reenterRecreates},
	{"re-entry gives a new token", "Reenter/KeepsTheTokenAndTheQueue", reenterRetakes},

	// Release.
	{"a release is always a success", "Release/FreesTheLockOnce", releaseAlwaysReleases},
	{"a release by any session counts", "Release/OfAnotherSessionChangesNothing", releaseForces},
	{"any release of the session counts", "Release/OfALowerEpochChangesNothing", releases(func(_ *remote, q *backend.ReleaseRequest) { q.Epoch = math.MaxInt32 })},
	{"a release needs exactly the hold's epoch", "Release/OfAHigherEpochCoversTheLower", releaseNeedsEpoch},
	{"a place cannot be withdrawn", "Release/WithdrawsFromTheQueue", releaseKeepsPlaces},
	{"a release forgets to grant", "Release/GivesTheLockToTheLongestWaiter", releaseForgetsToGrant},
	{"a release forgets to pass on a grant", "Release/OfAGrantGivesItToTheNext", releaseForgetsToGrant},
	{"a release that is repeated takes the lock from the next", "Release/AgainDoesNotTakeTheLockFromTheNext", releaseForces},
	{"a lock does not stay", "Stays/TheLockIsNobodys", releases(func(_ *remote, q *backend.ReleaseRequest) { q.StaysUntil = time.Time{} })},
	{"a lock that stays does not end", "Stays/ItEnds", releases(func(_ *remote, q *backend.ReleaseRequest) { q.StaysUntil = time.Now().Add(forever) })},
	{"a lock stays for the lease", "Stays/ForLessThanTheLease", releases(func(r *remote, q *backend.ReleaseRequest) { q.StaysUntil = time.Now().Add(r.state().TTL) })},
	{"a repeated release frees a lock that stays", "Stays/ARepeatedReleaseChangesNothing", releaseEndsAStay},
	{"ForceUnlock leaves a lock that stays", "Stays/ForceUnlockEndsIt", forceLeavesAStay},
	{"a lock stays without a hold", "Stays/OnlyWithAHold", staysWithoutAHold},
	{"a lock stays for a time that is over", "Stays/InThePastTheLockIsFree", releases(func(_ *remote, q *backend.ReleaseRequest) { q.StaysUntil = time.Now().Add(time.Minute) })},
	{"a lock that stays is the owner's", "Stays/TheLockIsNobodys", staysWithTheOwner},
	{"Inspect does not say that the holder has released it", "Stays/TheLockIsNobodys", states(func(st *backend.State) { st.Unlocked = false })},
	{"a release refuses the attempts to come", "Release/LetsTheSessionsNextAttemptIn", releases(func(_ *remote, q *backend.ReleaseRequest) {
		q.Epoch, q.Until = q.Epoch+1, time.Now().Add(forever)
	})},

	// The queue.
	{"the queue is last in, first out", "Queue/IsFirstInFirstOut", lifo},
	{"a heartbeat moves to the end of the queue", "Queue/ABeatKeepsThePlace", beatGoesToTheEnd},
	{"a new attempt goes to the end of the queue", "Queue/ANewAttemptKeepsThePlace", beatGoesToTheEnd},
	{"an older attempt takes over the place", "Queue/AnOlderAttemptLeavesThePlaceAlone", olderTakesPlace},
	{"a heartbeat does not keep the place alive", "Queue/ABeatKeepsThePlaceAlive", beatShowsNoLife},
	{"dead waiters are granted the lock", "Queue/DeadWaitersAreSkipped", requests(func(q *backend.AcquireRequest) { q.Patience = forever })},
	{"a dead waiter is granted the lock if no other waits", "Queue/OnlyDeadWaitersLeaveTheLockFree", requests(func(q *backend.AcquireRequest) { q.Patience = forever })},
	{"a waiter does not find an expired lock free", "Queue/AWaiterTakesAnExpiredLock", beatShowsNoLife},
	{"a take ignores the queue", "Queue/AnExpiredLockGoesToTheLongestWaiter", requests(func(q *backend.AcquireRequest) { q.Barge = true })},
	{"a try ignores the queue", "Queue/ATryDoesNotPassTheQueue", requests(func(q *backend.AcquireRequest) { q.Barge = true })},
	{"an attempt that does not queue is not helped by its place", "Queue/ASessionUsesItsPlaceUp", tryForgetsPlace},
	{"a barger keeps its place", "Queue/ABargerUsesItsPlaceUp", bargerKeepsPlace},

	// Grants.
	{"grants are not pushed", "Grant/HasAllThatTheWaiterNeeds", pushes(nil)},
	{"a grant is one token", "Grant/HasAllThatTheWaiterNeeds", pushes(func(g *backend.Grant) { g.Last = g.First })},
	{"a grant reports another TTL", "Grant/HasAllThatTheWaiterNeeds", pushes(func(g *backend.Grant) { g.TTL++ })},
	{"a grant counts from its arrival", "Grant/SaysWhenItWasMade", arrivalCounts},
	{"a grant counts from another clock", "Grant/SaysWhenItWasMade", pushes(func(g *backend.Grant) { g.NotBefore = time.Unix(1, 0) })},
	{"a grant is sent to every session", "Grant/IsSentOnlyToTheNewHolder", sentToAll},
	{"the grant TTL is not set", "Grant/LastsForItsTTL", requests(func(q *backend.AcquireRequest) { q.GrantTTL = q.Lease })},
	{"a confirmation has another token", "Grant/IsConfirmedByItsAttempt", resendIsNew},
	{"a new attempt accepts the old one's grant", "Grant/IsTakenOverByANewAttempt", takeoverIsConfirmation},
	{"a grant is no hold until it is confirmed", "Grant/IsAHoldWithoutBeingConfirmed", unconfirmed},
	{"a grant that is not accepted lasts", "Grant/ThatIsNotAcceptedGoesToTheNext", requests(func(q *backend.AcquireRequest) { q.GrantTTL = forever })},
	{"a fixed lease does not start at its acceptance", "Grant/AFixedLeaseStartsWhenItIsAccepted", fixedKeepsGrantTTL},
	{"the first push to each session is lost", "Grant/IsNeverLostSilently", firstPushLost},

	// Yielding.
	{"no attempt yields", "Yield/GivesTheLockToTheFirstWaiterAndQueuesUp", requests(func(q *backend.AcquireRequest) { q.Yield = false })},
	{"a yield leaves no place", "Yield/GivesTheLockToTheFirstWaiterAndQueuesUp", yieldWithdraws},
	{"every yield leaves a place", "Yield/WithoutQueueLeavesNoPlace", requests(func(q *backend.AcquireRequest) { q.Queue = q.Queue || q.Yield })},
	{"a copy of a yield gives the lock away again", "Yield/AgainKeepsThePlace", yieldTwice},
	{"a yield frees the lock if no session waits", "Yield/WithoutAWaiterTakesOver", yieldFrees},
	{"a yield goes to a dead waiter", "Yield/DoesNotGiveTheLockToADeadWaiter", requests(func(q *backend.AcquireRequest) { q.Patience = forever })},
	{"every takeover yields", "Yield/ATakeoverWithoutItDoesNotYield", requests(func(q *backend.AcquireRequest) { q.Yield = true })},

	// Late copies.
	{"NotAfter is ignored", "Late/NothingHappensAfterNotAfter", requests(func(q *backend.AcquireRequest) { q.NotAfter = time.Now().Add(time.Hour) })},
	{"tombstones are ignored", "Late/ACopyIsRefusedAfterTheRelease", releases(func(_ *remote, q *backend.ReleaseRequest) { q.Until = time.Time{} })},
	{"a withdrawal leaves no tombstone", "Late/ACopyIsRefusedAfterTheWithdrawal", releases(func(_ *remote, q *backend.ReleaseRequest) { q.Until = time.Time{} })},
	{"a release of nothing leaves no tombstone", "Late/ACopyIsRefusedThoughItsReleaseCameFirst", releases(func(r *remote, q *backend.ReleaseRequest) {
		if !r.mine() {
			q.Until = time.Time{}
		}
	})},
	{"a tombstone refuses every session", "Late/ATombstoneIsTheSessionsAlone", tombs{shared: true}.hooks},
	{"only one tombstone is kept", "Late/ATombstoneIsTheSessionsAlone", tombs{single: true}.hooks},
	{"a tombstone is shortened by the next", "Late/ATombstoneIsNotShortened", tombs{}.hooks},
	{"tombstones last", "Late/ATombstoneEnds", releases(func(_ *remote, q *backend.ReleaseRequest) { q.Until = time.Now().Add(forever) })},

	// Renewal.
	{"a renewal renews nothing", "Renew/ProlongsTheLeaseAndNothingElse", renewsFirst(0)},
	{"a renewal renews any epoch", "Renew/NeedsTheVeryEpoch", renewsAnyEpoch},
	{"a renewal recreates the hold", "Renew/NeverRecreatesAHold", renewRecreates},
	{"a renewal stops at the first that is gone", "Renew/ManyLocksAtOnce", renewStops},
	{"a renewal has room for 100 locks", "Renew/ManyLocksAtOnce", renewsFirst(100)},
	{"a renewal answers for another session's hold", "Renew/NeedsTheVeryEpoch", renewsForOthers},

	// Tokens.
	{"tokens start again with each holder", "Token/RisesWithEveryHolder", answers(func(a *backend.AcquireReply) { a.First, a.Last = 1, 1+a.Last-a.First })},
	{"tokens start again after expiry", "Token/RisesOverExpiry", answers(func(a *backend.AcquireReply) { a.First, a.Last = 1, 1+a.Last-a.First })},
	{"what the session has seen is ignored", "Token/RisesAboveWhatTheSessionHasSeen", requests(func(q *backend.AcquireRequest) { q.Seen = 0 })},
	{"a block is one token", "Token/BlocksHaveTheirSizeAndDoNotOverlap", requests(func(q *backend.AcquireRequest) { q.Tokens = 1 })},
	{"the unused tail is kept", "Token/AnUnusedTailIsGivenBack", releases(func(_ *remote, q *backend.ReleaseRequest) { q.Used = 0 })},
	{"a renewal is about another hold", "Token/RepliesSayWhichHoldTheyAreAbout", renews(func(_ context.Context, _ *conn, _ *remote, one *backend.Renewal) { one.First++ })},
	{"a re-entry is about another hold", "Token/RepliesSayWhichHoldTheyAreAbout", reenterReplies(func(a *backend.ReenterReply) { a.First++ })},
	{"the state is of another hold", "Token/RepliesSayWhichHoldTheyAreAbout", states(func(st *backend.State) { st.First++ })},
	{"any release gives back a tail", "Token/AForeignReleaseGivesNothingBack", releases(func(r *remote, q *backend.ReleaseRequest) {
		if r.mine() && q.Used > 0 {
			q.Epoch = r.state().Epoch
		}
	})},

	// Conditions.
	{"await always has a ticket", "Condition/AwaitWithoutTheHoldTakesNoTicket", awaitAnswers(backend.Waited)},
	{"a copy of await waits again", "Condition/AwaitAgainFindsItsTicket", awaitAnswers(backend.Waited)},
	{"a waiter comes back with one hold", "Condition/SignalGivesThePlaceThatTheLockIsPushedTo", awaits(func(q *backend.AwaitRequest) { q.Holds = 1 })},
	{"await leaves no tombstone", "Condition/LateCopiesOfTheAttemptAreRefusedAfterAwait", awaits(func(q *backend.AwaitRequest) { q.Until = time.Time{} })},
	{"dead waiters are signalled", "Condition/SignalSkipsDeadWaiters", awaits(func(q *backend.AwaitRequest) { q.Patience = forever })},
	{"a signal that no session received is used up", "Condition/ASignalThatNoSessionReceivedGoesToTheNext", awaits(func(q *backend.AwaitRequest) { q.Patience = forever })},
	{"every signal is for all", "Condition/SignalGoesToTheLongestWaiter", signals(func(q *backend.SignalRequest) { q.All = true })},
	{"no signal is for all", "Condition/SignalAllGoesToAllInOrder", signals(func(q *backend.SignalRequest) { q.All = false })},
	{"a copy of a signal is another", "Condition/ACopyOfASignalWakesNoWaiter", copiesSignal},
	{"a signal without the hold seems to succeed", "Condition/SignalWithoutTheHoldWakesNoWaiter", signalReplies(func(a *backend.SignalReply) { a.Gone = false })},
	{"own tickets are not named", "Condition/SignalOfTheOwnSessionNamesTheTicketAndTakesNoPlace", signalReplies(func(a *backend.SignalReply) { a.Tickets = nil })},
	{"no session is sent a signal", "Condition/SignalGivesThePlaceThatTheLockIsPushedTo", signalsLost},
	{"the message hides the place", "Condition/SignalGivesThePlaceThatTheLockIsPushedTo", placesHidden},
	{"withdrawing acknowledges the signal", "Condition/WithdrawReportsWhetherTheSignalCameFirst", withdrawAcknowledges},
	{"a signal is used up by a waiter that leaves", "Condition/TheSignalOfAWaiterThatLeavesGoesToTheNext", withdrawAcknowledges},
	{"a heartbeat acknowledges the signals that it reports", "Condition/ABeatReportsASignalWhoseMessageWasLost", beatAcknowledges},
	{"a heartbeat reports no signals", "Condition/ABeatReportsASignalWhoseMessageWasLost", beatReportsNothing},
	{"a heartbeat does not keep a ticket alive", "Condition/ABeatKeepsATicketAlive", beatKeepsNothing},
	{"signals are not acknowledged", "Condition/AnAcknowledgedSignalGoesToNoOtherWaiter", servedInVain},
	{"a lock has one condition", "Condition/NamesDoNotMix", oneCondition},

	// Reading.
	{"a free lock seems held", "Inspect/ShowsAFreeLock", states(func(st *backend.State) { st.Locked = true })},
	{"Inspect forgets the session", "Inspect/ShowsEveryField", states(func(st *backend.State) { st.Session = "" })},
	{"Inspect forgets the owner", "Inspect/ShowsEveryField", states(func(st *backend.State) { st.Owner = "" })},
	{"Inspect forgets the holds", "Inspect/ShowsEveryField", states(func(st *backend.State) { st.Holds = 1 })},
	{"Inspect forgets the TTL", "Inspect/ShowsEveryField", states(func(st *backend.State) { st.TTL = 0 })},
	{"Inspect invents since when", "Inspect/ShowsEveryField", states(func(st *backend.State) { st.Since = time.Now().Add(-time.Hour) })},
	{"Inspect forgets the epoch", "Inspect/ShowsEveryField", states(func(st *backend.State) { st.Epoch = 0 })},
	{"Inspect forgets the token", "Inspect/ShowsEveryField", states(func(st *backend.State) { st.Token = 0 })},
	{"Inspect turns the queue round", "Inspect/ShowsEveryField", states(func(st *backend.State) { slices.Reverse(st.Waiting) })},
	{"Inspect forgets the token of a free lock", "Inspect/KnowsTheTokenOfALockThatWasReleased", states(func(st *backend.State) {
		if !st.Locked {
			st.Token = 0
		}
	})},
	{"Inspect counts its calls", "Inspect/ShowsTheSameToAllSessions", inspectCounts},
	{"InspectAll mixes up the locks", "Inspect/ShowsManyLocksAtOnce", reads(func(all []backend.Inspection) { slices.Reverse(all) })},
	{"InspectAll fails as a whole", "Inspect/OneBadLockDoesNotHideTheOthers", reads(func(all []backend.Inspection) {
		for i := range all {
			all[i].Err = all[0].Err
		}
	})},
	{"InspectAll reads another session's locks", "Inspect/OneBadLockDoesNotHideTheOthers", reads(func(all []backend.Inspection) { all[0].Err = nil })},
	{"Inspect hands a free lock on", "Inspect/ChangesNothing", inspectGrants},

	// Force.
	{"a session cannot force another's lock", "Force/FreesTheLock", forceOwn},
	{"force always succeeds", "Force/ReportsThatTheLockWasFree", forceSays(true)},
	{"force does not report whether there was a holder", "Force/FreesTheLock", forceSays(false)},
	{"a late force is carried out", "LateVerb/ForceUnlock", func() hooks {
		return hooks{force: func(ctx context.Context, r *remote, _ time.Time) (bool, error) {
			return r.Remote.ForceUnlock(ctx, time.Now().Add(forever))
		}}
	}},
	{"force forgets to grant", "Force/GivesTheLockToTheLongestLiveWaiter", forceFrees},
	{"the old holder takes the lock back", "Force/LeavesTheOldHolderWithNothing", twoTurns},

	// Names.
	{"names end at a zero byte", "Name/IsOneLockEach", names(func(s string) string { s, _, _ = strings.Cut(s, "\x00"); return s })},
	{"names have 1 KiB", "Name/IsOneLockEach", names(func(s string) string { return s[:min(len(s), 1024)] })},
	{"names are trimmed", "Name/IsOneLockEach", names(strings.TrimSpace)},
	{"names are hash tags", "Name/IsOneLockEach", names(func(s string) string { s, _, _ = strings.Cut(s, "{"); return s })},
	{"a grant has a cleaned name", "Name/IsAnyBytes", pushes(func(g *backend.Grant) { g.Name = strings.ToValidUTF8(g.Name, "?") })},
	{"a grant has a trimmed name", "Name/IsAnyBytes", pushes(func(g *backend.Grant) { g.Name = strings.TrimSpace(g.Name) })},

	// The Conn.
	{"Close releases", "Conn/CloseLeavesTheLocks", closeReleases},
	{"Connect ignores that its context has ended", "Conn/ConnectsOnlyWhileItsContextLasts", connects(func(ctx context.Context, id string) (context.Context, string) {
		return context.WithoutCancel(ctx), id
	})},
	{"the Conn ends with the context of Connect", "Conn/OutlivesTheContextOfConnect", connEndsWithContext},
	{"session ids are cut", "Conn/SessionsAreTwoThoughTheirIdsBeginAlike", connects(func(ctx context.Context, id string) (context.Context, string) {
		return ctx, id[:20]
	})},
	{"a command is executed although its error says that it was not sent", "Conn/ACommandOfAnEndedContextIsHonest", dishonest},

	// Together.
	{"two sessions can have the lock", "Together/OneHolderAtATime", sometimesForces},
	{"two sessions take the same free lock", "Together/ALockIsTakenOnce", answers(func(a *backend.AcquireReply) { a.Status = backend.Granted })},
}
