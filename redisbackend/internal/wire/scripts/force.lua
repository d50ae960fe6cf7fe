-- force: takes the lock from its holder and gives it to the first live waiter.
--
-- KEYS  1 hold  2 record  3 queue  4 waiters
-- ARGV  1 channel prefix  2 not after: Redis time, us, from which this copy is refused
-- Returns  {code, now}   1 it was held   0 it was free   2 late: not after has passed
--          or the error WRONGTYPE: a key has something else
-- Keeps    the old holder's epoch is "gone" from here on; the last token stays known.
-- Twice    the second run takes the lock from the session to which the first gave it, so do not send it again.
-- Late     until its not after a run takes the lock from the next holder, too; after that it does nothing.

local now = clock()
if now > tonumber(ARGV[2]) then return {2, now} end
local rec, field = look(KEYS, '')
if rec.err then return rec end
if not field then return {0, now} end
local other = foreign(KEYS, rec, field, redis.call('PTTL', KEYS[1]), nil, redis.call('HGET', KEYS[1], field))
if other then return other end
local free = vacate(KEYS, rec, now, field, ARGV[1])
--redisson if free then freed(KEYS[1]) end
return {1, now}
