// Package redisbackend keeps the locks of package reentrant in Redis, where sessions of many processes share them. A
// lock is a hash, each verb is one script and one round trip, and a lock that is given up is pushed to the longest waiter.
//
//	backend, err := redisbackend.Open(ctx, "redis://localhost:6379")
//	session, err := reentrant.NewSession(backend)
//
// # Keys
//
//	hold     hash    orders                     <session>:<owner> → holds     its TTL is the lease
//	record   string  relock:{orders}:t:orders   tokens, session, epoch, …     what has to be remembered
//	queue    list    relock:{orders}:q:orders   sessions, longest first       who waits
//	waiters  hash    relock:{orders}:w:orders   session → attempt, deadline   and for what
//
// Each condition of a lock has three more keys, which internal/wire/scripts/conditions.lua describes.
//
//	             acquire, reenter, release, renew
//	session a ──────────────────────────────────────▶ ┌───────────────────────┐
//	          ◀────────────────────────────────────── │ hold ▸ a:7 = 1        │
//	             granted, first token, last token     │ record ▸ … a 12 …     │
//	                                                  │ queue ▸ b c           │
//	session b ◀────────────────────────────────────── │ waiters ▸ b: 31 …     │
//	             "g 31 token token ttl time orders"   └───────────────────────┘
//	             on channel relock:session:b
//
// The keys of a lock are in one Cluster slot, and no lock name reaches another lock's keys. Everything expires. The hold
// expires with its lease; the other keys five minutes after their last change, or after twice the lease if that is longer.
// For a lock that was free and for which no session waited, 30 seconds take the place of the five minutes. A prefix
// ([WithPrefix]) precedes all keys and channels.
//
// # Protocol
//
// The scripts are the protocol: internal/wire/scripts/common.lua describes the keys, and the header of each other
// script says what the script takes, returns and preserves, and why it may run twice. In one paragraph:
//
// An attempt has an epoch, which counts the attempts of its session. Acquire takes a free lock, or a place in the
// queue, and records the session and epoch that have the lock. So an attempt with the same epoch is a repetition and
// gets the same reply, one with a higher epoch takes over what its session has, and one with a lower epoch is stale.
// Release gives the lock to the first session in the queue whose heartbeats show that it is alive: the hash then has
// that session's owner, for a short grant TTL, and that session alone gets a message. If no such session waits, release
// deletes the hash. The message is a hint and can be lost. So a waiter repeats its attempt at every heartbeat: the
// attempt finds that its session has the lock, takes the lock if that is free, or keeps the place.
//
// Tokens rise with every acquire: each is above the lock's last token and above all that the session has seen, and not
// below Redis's clock in µs. So they rise over expiry, FLUSHALL, restarts and failovers too.
//
// # Clocks
//
// Only Redis's clock decides. An attempt carries the Redis time from which it is refused, so a copy that was held up
// on its way does not take a lock that its session no longer waits for; and a grant carries the Redis time at which it was
// made, so a session knows from when to count its lease. Both need the difference between Redis's clock and the local
// monotonic one. Every reply bounds that difference, since the script ran after the command was sent and before the
// reply came. A session that knows no bounds guesses none: its attempt is refused as late, with Redis's time in the
// reply, and repeated once; and a grant is passed on as one that has to be confirmed. The bounds are dropped when a
// connection is lost or when two replies contradict each other, as after a failover to a node with another clock. In a
// Cluster there are separate bounds for each slot in use.
//
// # What it needs
//
// It needs Redis 6.2 or later, or Valkey, with scripts, pub/sub, and the right to both. With ACLs a user needs ~prefix* (or all
// keys), the channels prefix + "relock:session:*", and the commands eval, evalsha, subscribe, publish, pubsub|numsub,
// ping, time, get, set, del, exists, type, expire, pexpire, pttl, hget, hgetall, hset, hincrby, hdel, hexists, lindex,
// lpos, lpop, lrange, lrem, rpush, zadd, zrange, zrangebyscore, zrem and zscore. Opening a session checks that scripts
// run, that the server is no replica, and that a published message arrives. Keys must not be evicted, and every key of a
// lock has a TTL, so use maxmemory-policy noeviction. A session with a logger reads the policy (INFO memory), and warns
// of any other policy if the server has a memory limit; without the right to INFO it gives no warning. The page
// docs/rights.md has the ACL SETUSER lines, also for [WithReplicas] and [WithoutScripts].
//
// A client of the caller's own ([New]) needs one place in its BlockingPoolSize for each session's channel, or with
// AlwaysRESP2 two connections; and one (or two) for each command that is under way with [WithoutScripts], or for each
// acquire with [WithReplicas]. All other options work: RESP2 and RESP3, client-side caching or not, pipelining or not,
// replicas for reading. PipelineMultiplex: -1 keeps commands in order, which is not needed for safety but saves
// repetitions; a ConnWriteTimeout well below the lease lets a renewal be tried twice ([Open] sets both). rueidis serves a
// connection in its fast, synchronous mode until two commands meet on it, one comes with a context that can be
// cancelled and has no deadline, or one subscribes: package reentrant does neither of the last two.
//
// # Redisson
//
// A hold is the hash that Redisson's getLock keeps, so Redisson's clients and sessions exclude each other. With
// [WithRedisson] they also wake each other: a script that frees a lock publishes on Redisson's channel, and a session
// that waits listens to that channel. A Redisson client that frees a lock grants it to no session. So each session that
// receives the client's message runs the script offer, which grants the lock to the first waiter if the lock is still free.
//
// # Without scripts
//
// Where Lua is forbidden, [WithoutScripts] has each verb read the lock under WATCH, decide in this process by the same rules,
// and write the changes in MULTI and EXEC; without changes, an empty transaction proves that the values read were
// consistent. The keys and messages are those of the scripts, so sessions with and without scripts may share locks. It
// costs two round trips for each command instead of one, and two more whenever another client changed the lock in
// between; a connection of the client's pool for the time of each command, which stays open for the next one; as much
// traffic as the lock's queue is long; and one transaction for each renewal, where a script renews up to a hundred locks
// of a slot at once. In a Cluster its messages go over the bus.
//
// # Cluster and Sentinel
//
// In a Cluster a message by PUBLISH goes over the bus to every node. So a session that waits for a lock also listens on
// a channel of its own for the lock's hash tag, relock:session:{tag}:<session>, on the node that has the tag's slot
// (SSUBSCRIBE, in the background). The scripts send a message there first (SPUBLISH), and with PUBLISH if no session received
// it. There is no option for this: where the server is older than Redis 7, or the right is missing, SPUBLISH fails inside the
// script and PUBLISH is used; the session does not try to subscribe again. The channel is closed a minute after the session
// last waited for that tag. When a slot moves, or a connection is lost, the waiters ask again, and the session
// subscribes at the slot's new node.
//
// In a Cluster it also needs cluster|slots, cluster|shards, asking, readonly, spublish, ssubscribe and sunsubscribe.
// Redis 6.2 does not know the last three, and without them everything works, over the bus. Servers from version 8 on are asked
// for cluster|shards, and older ones for cluster|slots. The client takes one more connection from its pool for each node
// that has a slot which the session waits for.
//
// After a Sentinel failover the session's channel follows as soon as a waiter's attempt, or a renewal, is answered by
// the new master: within a heartbeat. If the client also reads from replicas (SendToReplicas) it does not show which
// node is the master, and the channel follows when the old master has been demoted, some ten seconds later. Until then
// waiters depend on their heartbeats.
//
// # Quorum
//
// [NewQuorum] makes another kind of backend, over 3 or 5 independent masters: a session has a lock when a majority has
// granted it and has its token. A quorum survives the loss of a master, but has no queue between processes, and so no
// conditions.
package redisbackend
