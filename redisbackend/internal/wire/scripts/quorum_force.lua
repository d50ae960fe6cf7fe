-- quorum_force: takes the lock from its holder. A renewal at the same time may still find the hold at a majority of the
-- nodes, and would then put the hold back here: a tombstone prevents that.
--
-- KEYS  1 hold  2 record
-- ARGV  1 doubt, us: for so long from now on the last attempt that had the lock here does not get it
--       2 not after: Redis time, us, from which this copy is refused
-- Returns  {code, now}   1 it was held   0 it was free   2 late: not after has passed
--          or the error WRONGTYPE: the key has something else
-- Keeps    the last token stays known; other attempts can have the lock.
-- Twice    the second run takes the lock from the session that got it after the first, so do not send it again.
-- Late     until its not after it takes the lock from the next holder, too; after that it does nothing.

local HELD, FREE, LATE = 1, 0, 2

local now = clock()
if now > tonumber(ARGV[2]) then return {LATE, now} end
local rec, field = look(KEYS, '')
if rec.err then return rec end
local other = field and foreign(KEYS, rec, field, redis.call('PTTL', KEYS[1]), nil, redis.call('HGET', KEYS[1], field))
if other then return other end
if rec.session ~= '-' then
  entomb(rec, rec.session, tonumber(rec.epoch), now + tonumber(ARGV[1]), now)
  save(KEYS[2], rec, now)
end
redis.call('DEL', KEYS[1])
return {field and HELD or FREE, now}
