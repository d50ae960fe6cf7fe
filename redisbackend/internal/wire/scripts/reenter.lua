-- reenter: sets the hold count of an attempt that has the lock. It never takes or recreates a hold, and never queues.
--
-- KEYS  1 hold  2 record
-- ARGV  1 session  2 epoch  3 owner  4 op: counts up within the epoch  5 holds wanted, at least 1
--       6 lease, ms; 0 leaves the TTL alone
-- Returns  {code, now, holds, first}   1 done: the count there is now, and the first token of the hold's block
--          2 gone: this epoch no longer has the lock
-- Keeps    the TTL never shrinks, and does not change when the count falls.
-- Twice    op is not above the record's op: nothing changes, and the present count is returned.
-- Late     after a later run of the epoch nothing changes, since op is not above the record's; nor if another epoch has
--          the lock.

local session, epoch, op, holds = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4]), tonumber(ARGV[5])
local DONE, GONE = 1, 2

local now = clock()
local rec = record(redis.pcall('GET', KEYS[2]))
if rec.err then return rec end
local name = session .. ':' .. ARGV[3]
local count = redis.pcall('HGET', KEYS[1], name)
if count and count.err then return count end
local current = count and counted(count)
if count and not current then return garbage('a hash that is not a lock') end
if not current or rec.session ~= session or tonumber(rec.epoch) ~= epoch then return {GONE, now, 0, 0} end
if op <= tonumber(rec.op) then return {DONE, now, current, rec.first} end

redis.call('HINCRBY', KEYS[1], name, text(holds - current))
local lease = tonumber(ARGV[6])
if holds > current and lease > 0 and redis.call('PTTL', KEYS[1]) < lease then
  redis.call('PEXPIRE', KEYS[1], ARGV[6])
end
rec.op = ARGV[4]
save(KEYS[2], rec, now)
return {DONE, now, holds, rec.first}
