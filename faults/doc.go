// Package faults tests the lock under faults: connections are killed, replies dropped, scripts flushed and servers
// stopped while many owners of several sessions use it on a real Redis. It is a module of its own, so that users do not
// depend on the libraries that inject faults. It contains only tests; package history, which judges what the processes
// of TestHistories did, is the exception.
//
// # The ranked faults
//
// These are the faults that have broken locks of this kind, the likeliest first. Each fault has a test here. For each fault
// mutants/faults.list names a rule of the library: without the rule the fault's test fails.
//
//	 1  a wake-up is lost               TestRankedAllWaitersAreServedWithoutMessages, TestHammer…
//	 2  a holder is paused too long     TestRankedAHolderThatIsPausedPastItsLease
//	 3  a reply is lost                 TestRankedRepliesThatAreLostAfterExecution
//	 4  an old incarnation is heard     TestRankedCommandsOfAnEarlierHoldChangeNothing
//	 5  a grant is late                 TestRankedAnAttemptThatArrivesAfterItsCallerHasLeft, …IsExecutedAfterItsTime,
//	                                    TestRankedAGrantWhoseReplyIsLateIsTrustedForLess
//	 6  a failover loses writes         TestRankedTokensRiseOverEveryLoss, TestHistories
//	 7  anything, in any order          TestHistories
//	 8  a cancel meets a grant          TestRankedCancelsAtTheInstantOfAGrant
//	 9  a renewal fails, or is wrong    TestRankedRenewalNeverBringsAHoldBack
//	10  the server forgets              TestRankedTokensRiseOverEveryLoss, TestHistories
//	11  a clock jumps                   TestRankedClockJumps
//	12  it costs more than it may       TestRankedASectionTakesTwoCommands
//
// Read-write locks and semaphores have rounds of their own in TestHistories. TestSimulation does a part of TestHistories
// in virtual time, on the embedded Redis.
package faults
