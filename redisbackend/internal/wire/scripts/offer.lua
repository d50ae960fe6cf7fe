-- offer: gives a lock that is free to the first live waiter. Redisson's clients free a lock without giving it.
--
-- KEYS  1 hold  2 record  3 queue  4 waiters
-- ARGV  1 channel prefix
-- Returns  {code, now}   1 it was free, and a session waits   0 otherwise
-- Keeps    a lock that is held stays as it is; tokens rise.
-- Twice    the second run finds the lock held.
-- Late     a late run gives a free lock to the first live waiter, too, as a waiter's heartbeat would.

local now = clock()
if redis.call('PTTL', KEYS[1]) ~= -2 then return {0, now} end
local next, dead = waiting(KEYS, now)
if not next then return {0, now} end
local rec = record(redis.call('GET', KEYS[2]))
if rec.err then return rec end
grant(KEYS, rec, now, next, dead, ARGV[1])
return {1, now}
