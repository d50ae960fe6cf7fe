-- pass: an attempt that takes the lock over from the session's last one, if the record is still as the session
-- remembers it. It stands alone, without common.lua: what it compares and writes are texts that the session has made.
--
-- KEYS  1 hold  2 record
-- ARGV  1 the record as it was left  2 least token  3 the record as it shall be, after its tokens: with the attempt's
--       epoch  4 field of the hold  5 the field it shall have  6 holds wanted
--       and only to begin a lease: 7 lease, ms  8 not after: Redis time, us, from which this copy is refused
--       9 seconds that the record is kept
-- Returns  0 nothing is changed: the record is another one, the hold is gone, or not after has passed; acquire then
--          says which. Otherwise it is the attempt's: 1, under the least token; or if a lease begins Redis's time in
--          us, under a token of that, or the least token if it is higher.
-- Keeps    at most one field in the hold hash, and its TTL unless a lease begins; tokens rise.
-- Twice    no record comes again, so the second run finds another one, whatever happened in between.

if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
local now, token = 1, ARGV[2]
if ARGV[7] then
  local t = redis.call('TIME')
  now = tonumber(t[1]) * 1000000 + tonumber(t[2])
  if now > tonumber(ARGV[8]) then return 0 end
  if now > tonumber(token) then token = string.format('%.0f', now) end
end
if ARGV[4] == ARGV[5] then
  if redis.call('HSET', KEYS[1], ARGV[5], ARGV[6]) == 1 then -- the hold was gone
    redis.call('HDEL', KEYS[1], ARGV[5])
    return 0
  end
else
  -- The new field comes before the old one goes, or the hash would go too, and its TTL.
  if redis.call('HEXISTS', KEYS[1], ARGV[5]) == 1 then return 0 end
  redis.call('HSET', KEYS[1], ARGV[5], ARGV[6])
  if redis.call('HDEL', KEYS[1], ARGV[4]) == 0 then
    redis.call('HDEL', KEYS[1], ARGV[5])
    return 0
  end
end
local after = token .. ' ' .. token .. ARGV[3]
if ARGV[7] then
  redis.call('PEXPIRE', KEYS[1], ARGV[7])
  redis.call('SET', KEYS[2], after, 'EX', ARGV[9])
else
  redis.call('SET', KEYS[2], after, 'KEEPTTL')
end
return now
