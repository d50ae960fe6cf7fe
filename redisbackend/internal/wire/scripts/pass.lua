-- pass: an attempt that takes the lock over from the session's last one, if the record is still as the session
-- remembers it. It stands alone, without common.lua: what it compares and writes are texts that the session has made.
--
-- KEYS  1 hold  2 record
-- ARGV  1 the record as it was left  2 as it shall be: with the attempt's epoch, and a higher token
--       3 field of the hold  4 the field it shall have  5 holds wanted
--       and only to begin a lease: 6 lease, ms  7 not after: Redis time, us, from which this copy is refused
--       8 seconds that the record is kept
-- Returns  0 nothing is changed: the record is another one, the hold is gone, or not after has passed; acquire then
--          says which. Otherwise it is the attempt's: 1, or Redis's time in us if a lease begins.
-- Keeps    at most one field in the hold hash, and its TTL unless a lease begins; tokens rise.
-- Twice    no record comes again, so the second run finds another one, whatever happened in between.

if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
local now = 1
if ARGV[6] then
  local t = redis.call('TIME')
  now = tonumber(t[1]) * 1000000 + tonumber(t[2])
  if now > tonumber(ARGV[7]) then return 0 end
end
if ARGV[3] == ARGV[4] then
  if redis.call('HSET', KEYS[1], ARGV[4], ARGV[5]) == 1 then -- the hold was gone
    redis.call('HDEL', KEYS[1], ARGV[4])
    return 0
  end
else
  -- The new field comes before the old one goes, or the hash would go too, and its TTL.
  if redis.call('HEXISTS', KEYS[1], ARGV[4]) == 1 then return 0 end
  redis.call('HSET', KEYS[1], ARGV[4], ARGV[5])
  if redis.call('HDEL', KEYS[1], ARGV[3]) == 0 then
    redis.call('HDEL', KEYS[1], ARGV[4])
    return 0
  end
end
if ARGV[6] then
  redis.call('PEXPIRE', KEYS[1], ARGV[6])
  redis.call('SET', KEYS[2], ARGV[2], 'EX', ARGV[8])
else
  redis.call('SET', KEYS[2], ARGV[2], 'KEEPTTL')
end
return now
