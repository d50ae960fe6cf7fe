-- force: takes the lock from its holder and gives it to the first live waiter.
--
-- KEYS  1 hold  2 record  3 queue  4 waiters
-- ARGV  1 channel prefix  2 not after: Redis time, us, from which this copy is refused
-- Returns  {code, now}   1 it was held   0 it was free   2 late: not after has passed
--          or the error WRONGTYPE: a key has something else
-- Keeps    the old holder's epoch is "gone" from here on; the last token stays known.
-- Twice    the second run takes the lock from the one that the first gave it to: it is not for retrying.
-- Late     until its not after it takes the lock from the next holder, too; after that it does nothing.

local now = clock()
if now > tonumber(ARGV[2]) then return {2, now} end
local field = holder(KEYS[1], '')
if not field then
  redis.call('GET', KEYS[2]) -- refused if the name is that of another kind of lock
  return {0, now}
end
local other = foreign(field, redis.call('PTTL', KEYS[1]))
if other then return other end
redis.call('DEL', KEYS[1])
local next = waiting(KEYS[3], KEYS[4], now)
if next then
  grant(KEYS[1], KEYS[2], KEYS[3], KEYS[4], record(redis.call('GET', KEYS[2])), now, next, ARGV[1])
end
--redisson freed(KEYS[1])
return {1, now}
