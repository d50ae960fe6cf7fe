// Package explore runs the scripts of package redisbackend, the machine of a lock, and the plan of a shared name through all
// that can happen in small worlds: every order of commands, with some of them lost, late or doubled, sessions that stop, and leases that end. It
// contains only tests.
//
//	            actions                    call                 EVAL
//	explorer ────────────▶ world: machines ──────▶ store ─────────────────▶ embedded Redis: the scripts' own text
//	   ▲  │                 and the net   ◀───────  (remembers every run)
//	   │  ▼                    check      contract
//	states seen                drain
//
// # What runs
//
// The text of each script is the one that the backend sends, prelude included: the tests record it when the backend
// sends it (sources_test.go), and the arguments too, which a test compares with those of the model. It runs in the Lua
// of miniredis (redis_test.go, driver.lua). A state of Redis is the content of seven keys and their expiry times, so it
// can be restored; and the effect of a call on a state is computed once.
//
// A world (world_test.go) has some sessions, and the commands and messages under way between them and Redis. What a session
// has and wants is decided by package machine; session_test.go is its driver, as an engine with goroutines and a queue is
// in a program. So when a session takes a new epoch, trusts a reply, keeps a lease, yields, inherits, lingers or resumes
// is not the world's choice. The world chooses what callers do, what becomes of each command, how much time passes, and
// whether a turn is over. The head has one command under way, and the keeper one more. A command is executed and
// returns at once; or it is lost, or its reply is, or it arrives after its caller has gone, or slowly, or twice. A push
// arrives at any later time, or never. In the worlds called "stopped" a script stops after any of its commands: what it
// has done stays, and its caller does not know what that is. A session that does nothing for a while is a paused one.
// Time has few instants: a grant and a waiter's patience take one tick, a lease two, and commands are refused from the
// next tick on.
//
// Every world has a budget of attempts, ticks, faults and so on, so all of its runs end. With RELOCK_FULL=1 it is
// explored completely, nearest states first (explore_test.go); without, only its first sixty states are. A world that
// is cut, by its own limit or for lack of time, logs CUT; a world that has grown too large fails. Sessions and owners
// that have not acted yet are interchangeable. Worlds that are too large are walked at random; a failure prints its
// seed.
//
// # What must hold
//
// After every run of a script, its contract (contract_test.go): it changes nothing that other sessions or newer
// attempts have; places keep their order, and only sessions that died, were served or left lose them; a lock that is
// granted goes to the first live waiter, in the way that the waiter asked for it, with one message; tokens rise; no free
// lock has a live waiter; and the header of the script is true.
//
// A script that stops has no contract, and neither have the runs after it; what follows must hold all the same.
//
// In every state (check_test.go): a session that trusts a lease has the lock in Redis, as that owner, with that epoch,
// count and token, for at least as long. So no two sessions trust a lease of the lock at the same time. A hold that another
// session has resumed is the exception, until the first session learns of that: the owner acts in the other session by then.
// A hold that begins has a token above those of all holds that began before it; one that is resumed keeps its token. Nothing
// takes the lock or a place for an attempt that was given up. Every key expires.
//
// From every state (drain_test.go), when nothing fails any more, also if one session has died there: every waiter gets
// the lock without a single message, and only the record is left. The exception is a copy that the network made of an
// attempt whose reply arrived. No session knows of such a copy, so there is no tombstone for it: it may take a free
// lock when its session has gone, until the lease ends; and it may bring a hold back that an await gave up, so that the
// same await, sent again, gets the last place among the waiters.
//
// # Shared names
//
// Read-write locks and semaphores have worlds of their own (share_world_test.go). Every run of the scripts there is
// compared with that of package protocol: the reply, the messages, and what is kept (share_store_test.go). The next command
// finds what the script left. So after every run the record's summary, which package protocol does not have, must be
// true of the entries: its totals are exact, nothing ends before its soonest time, each place of the queue is named once,
// and the head's is not below the first.
//
// What a session asks, trusts and gives back is decided by package share/plan, as in a program (share_world_test.go). The
// local tier is a value here, with the rules of package sharedqueue but no re-entry and no owner that goes on as a reader
// (share_tier_test.go): it is all of a session that is not the code that ships. A session has one copy of its request
// under way, and one renewal. It looks at its plan after each event for which the plan, a reply or a user asks that, and
// when the plan said; if there is something to send, the world chooses when. A writer's block has two tokens, so that it
// can be used up.
//
// In every state trusted units are within the limit, so no writer is beside a reader; the owners inside trust enough units; and
// equal versions have no write in between, not even by writers that lost their lease. A session loses no units while the
// server has them. A try is refused only if other sessions wait before it, or if the sessions that have answered it have more
// units than it leaves for all others. From every state, also after a session has died, all waiters get in and out once
// nothing fails any more; then no session has or owes anything, and the server has neither units nor places. Two worlds are
// explored completely: a session that goes from writing to reading replaces its request before it gets the reply; and an
// entry is forgotten.
//
// # Reading a failure
//
// A failure shows the shortest run that breaks a rule, step by step: each command, what happened to it, Redis's reply
// and state; the last line is the rule. Times are ticks, tokens microseconds since the first.
//
// RELOCK_EXPLORE=2000000 allows one fault more and that many states of each world, with a new seed each time;
// RELOCK_SEED=n repeats the walk of seed n.
//
// The explorer does not cover clocks that disagree (the model has only Redis's), machines that sleep, ForceUnlock, several
// locks, renewals that fail and are tried again, and callers that leave while their grant is on its way to a clean-up. Of
// shared names it does not cover requests that the server refuses, reconnects, nor the end of a session that closes.
package explore
