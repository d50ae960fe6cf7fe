// Package explore runs the scripts of package redisbackend through everything that can happen in small worlds: every
// order of commands, with some of them lost, late or doubled, sessions that stop, and leases that end. It has only
// tests.
//
//	            actions                    call                 EVAL
//	explorer ────────────▶ world: clients ───────▶ store ─────────────────▶ embedded Redis: the scripts' own text
//	   ▲  │                 and the net   ◀───────  (remembers every run)
//	   │  ▼                    check      contract
//	states seen                drain
//
// # What runs
//
// The text of each script is what the backend sends, with all that it puts in front: it is overheard when the backend
// sends it (sources_test.go), as are the arguments, which a test compares with those of the model. It runs in the Lua
// of miniredis (redis_test.go, driver.lua). A memory of Redis is the content of seven keys and when they expire, so it
// can be put back; and what a call does to a memory is found out once.
//
// A world (world_test.go) is some sessions, each as reentrant keeps it for one lock, and what is under way between
// them and Redis. A session sends a new epoch only when none of its owners trusts anything older; its head has one
// command under way, and its watchdog one more. An attempt may be a repetition, a heartbeat, the next owner's, may
// yield, barge, keep the TTL, or have a fixed lease or a block of tokens. A command is executed and answered at once; or
// it is lost, or its answer is, or it arrives after its caller has gone, or slowly, or twice. A push is heard whenever
// it likes, or never. A session that does nothing for a while is one that is paused. Time has few instants: a
// grant and a waiter's patience take one tick, a lease two, and commands are refused from the next tick on.
//
// Every world has a budget of attempts, ticks, faults and so on, so all of its runs end. With RELOCK_FULL=1 it is gone
// through completely, nearest first (explore_test.go); without, its first few thousand states are. One that is cut, because it says so or there is no time, logs CUT; one
// that has grown too large fails. Sessions and owners that have not acted yet are alike. What is too large for that is
// walked at random; a failure prints its seed.
//
// # What must hold
//
// After every run of a script, its contract (contract_test.go): it leaves alone what others and newer attempts have;
// places keep their order, and only the dead, the served and those who leave lose them; a lock that is given away goes
// to the first who is alive, as it asked for it, with one message that says so; tokens rise; no free lock has a
// live waiter; and what the header of the script says.
//
// In every state (check_test.go): whoever trusts a lease has the lock in Redis, as that owner, with that epoch, count
// and token, for at least as long. So no two trust it at once. A hold that begins has a token above those of all that
// began before it. Nothing takes the lock or a place for an attempt that was given up. Every key expires.
//
// From every state (drain_test.go), when nothing fails any more, also if one session has died there: everybody who waits
// gets the lock without a single message, and nothing but the record is left. The exception is what nobody can
// know of: a copy that the network made of an attempt that was answered leaves no tombstone, so it may take a free
// lock when its session has gone, until the lease ends; and it may bring a hold back that an await gave up, so that the
// same await, sent again, becomes the last who waits.
//
// # Shared names
//
// Read-write locks and semaphores have worlds of their own (share_world_test.go). There package protocol is the server, and
// every run of it is compared with what the script does: the answer, the hash, and the messages (share_store_test.go). The
// sessions keep the rules of shared holds: what is given back is out of use first, an answer counts for the last epoch alone, and
// trust counts from when the copy that was answered was sent. In every state trusted units are within the limit, who is inside
// trusts enough, and equal versions have no write in between, by writers that lost their lease neither. From every state all who
// wait get in and out, when nothing fails any more.
//
// # Reading a failure
//
// It is the shortest run that breaks a rule, told step by step: what is sent, how it fares, what Redis answers and then
// has; the last line is the rule. Times are ticks, tokens microseconds since the first.
//
// RELOCK_EXPLORE=2000000 allows one fault more, and so many states of each world, and walks elsewhere each time;
// RELOCK_SEED=n walks as n did.
//
// It does not look at clocks that disagree (the model knows Redis's), ForceUnlock, lingering, resumed holds, nor several
// locks.
package explore
