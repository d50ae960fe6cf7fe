-- pass: an attempt that takes the lock over from the session's last attempt, if the record is still as the session
-- remembers it. It stands alone, without common.lua: what it compares and writes are texts that the session has made.
--
-- KEYS  1 hold  2 record
-- ARGV  1 the record as the session left it  2 least token, if a lease begins  3 the new record, with the attempt's
--       epoch; without its tokens if a lease begins  4 the hold's field  5 the hold's new field  6 holds wanted
--       and only to begin a lease: 7 lease, ms  8 not after: Redis time, us, from which this copy is refused
--       9 seconds that the record is kept
-- Returns  0 the record is another one, the hold is gone, or not after has passed; the session then sends acquire.lua.
--          Nothing is changed, except that a hold which has the field 5 already gets the holds wanted.
--          Above 0: the attempt has the lock. If a lease begins, the number is Redis's time in us, and the token is
--          that time, or the least token if it is higher; if none begins, the number is 1.
-- Keeps    at most one field in the hold hash, and its TTL unless a lease begins; tokens rise.
-- Twice    no record is written twice, so the second run finds another record, whatever happened in between.
-- Late     a late copy does nothing if the record has changed, since the record that it compares with never comes
--          again.

if redis.pcall('GET', KEYS[2]) ~= ARGV[1] then return 0 end
local now, after = 1, ARGV[3]
if ARGV[7] then
  local t = redis.call('TIME')
  now = tonumber(t[1]) * 1000000 + tonumber(t[2])
  if now > tonumber(ARGV[8]) then return 0 end
  local token = ARGV[2]
  if now > tonumber(token) then token = string.format('%.0f', now) end
  after = token .. ' ' .. token .. after
end
-- The new field comes before the old one goes, or the hash would go too, and its TTL.
local added, had = redis.call('HSET', KEYS[1], ARGV[5], ARGV[6]) == 1
if ARGV[4] == ARGV[5] then had = not added else had = redis.call('HDEL', KEYS[1], ARGV[4]) == 1 end
if not had then
  if added then redis.call('HDEL', KEYS[1], ARGV[5]) end
  return 0
end
if ARGV[7] then
  redis.call('PEXPIRE', KEYS[1], ARGV[7])
  redis.call('SET', KEYS[2], after, 'EX', ARGV[9])
else
  redis.call('SET', KEYS[2], after, 'KEEPTTL')
end
return now
